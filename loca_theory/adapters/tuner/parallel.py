"""Tensor-parallel base layers, which LoCA refuses."""

from __future__ import annotations

from typing import Any

from peft.tuners.lora.model import get_tp_plan_and_mesh
from torch import nn

from loca_theory.errors import InvalidArgumentError


def refuse_plan(model: Any, base: nn.Module, name: str) -> None:
    """Refuse a layer that a tensor-parallel plan splits over processes.

    A process computes a part of the outputs or of the inputs of such a layer, and each component of
    ΔW is spread over all of them.

    Args:
        model: The whole model, which has the plan of transformers.
        base: The layer.
        name: Its name.

    Raises:
        InvalidArgumentError: there is a plan for the layer, or its weight is split by one.
    """
    plan = getattr(base, "_hf_tp_plan", None) or get_tp_plan_and_mesh(model, name)[0]
    mesh = getattr(base._parameters.get("weight"), "device_mesh", None)
    if plan is not None:
        raise InvalidArgumentError(_message(name, f"by the plan {plan!r}"))
    # FSDP2 gathers the weight for each pass; PEFT knows it by the same names of its mesh.
    if mesh is not None and set(mesh.mesh_dim_names or ()) - {"fsdp"}:
        raise InvalidArgumentError(_message(name, f"over the mesh {mesh.mesh_dim_names}"))


def refuse_split_weight(base: nn.Module, name: str) -> None:
    """Refuse a forward pass through a layer whose weight is split over processes.

    Raises:
        InvalidArgumentError: the weight is a DTensor, which it is not within a pass of FSDP2.
    """
    if hasattr(base._parameters.get("weight"), "full_tensor"):
        raise InvalidArgumentError(_message(name, "as a DTensor"))


def _message(name: str, how: str) -> str:
    return (
        f"{name}: its weight is split over processes for tensor parallelism ({how}), and LoCA "
        "needs whole layers; use data parallelism or FSDP2, or choose other target modules"
    )
