"""A model made of the names and shapes of tensors alone, where nothing says which model it is.

The weight of a module with two dimensions is that of a linear layer, or of an embedding if its name
says so; with more, that of a convolution. The names of GPT-2 and its relatives are of layers that
store the transpose. What has another name than ``weight``, and the weights of several experts in
one tensor, are parameters of a module without a class.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import torch
from torch import nn

from loca_theory.checkpoints.model.names import kind_of
from loca_theory.checkpoints.source.layouts import holds_experts

Shape: TypeAlias = tuple[int, ...]

FUSED_ATTENTION = "in_proj_weight"
"""Name of the weight of the queries, keys and values of ``MultiheadAttention``."""

_MOST = 2**62
# torch looks for modules by recursion; no model is nested so deeply.
_DEEPEST = 100
_CONVOLUTIONS: dict[int, Any] = {3: nn.Conv1d, 4: nn.Conv2d, 5: nn.Conv3d}


class Conv1D(nn.Module):
    """A linear layer that stores its weight as (inputs, outputs)."""


def skeleton(shapes: Mapping[str, Shape], transposed: Iterable[str]) -> nn.Module:
    """The modules that tensors of these names and shapes are of, without memory for weights.

    Args:
        shapes: Shape of each tensor, by its name.
        transposed: Names of the weights that are stored as (inputs, outputs).
    """
    turned = set(transposed)
    leaves: dict[str, dict[str, Shape]] = {}
    for name, shape in shapes.items():
        path, _, leaf = name.rpartition(".")
        leaves.setdefault(path, {})[leaf] = shape
    modules = {"": nn.Module()}
    with torch.device("meta"):
        for path in leaves:
            parts = path.split(".") if path else []
            if len(parts) > _DEEPEST:
                continue
            for depth, last in enumerate(parts):
                inside = ".".join(parts[: depth + 1])
                if inside not in modules:
                    is_turned = f"{inside}.weight" in turned
                    modules[inside] = _layer(inside, leaves.get(inside, {}), is_turned=is_turned)
                    # Unlike add_module, this takes names of torch's own methods and attributes.
                    parent = modules[".".join(parts[:depth])]
                    parent._modules[last] = modules[inside]
        for name, shape in shapes.items():
            path, _, leaf = name.rpartition(".")
            # Names of torch's own attributes cannot be those of parameters, and torch counts
            # entries in 64 bits.
            with suppress(KeyError, RuntimeError):
                parameter = nn.Parameter(torch.empty(shape), requires_grad=False)
                modules[path].register_parameter(leaf, parameter)
    return modules[""]


def _layer(path: str, leaves: Mapping[str, Shape], *, is_turned: bool) -> nn.Module:
    """An empty module for some tensors."""
    name, shape = f"{path}.weight", leaves.get("weight", ())
    fused = leaves.get(FUSED_ATTENTION, ())
    if len(fused) == 2 and fused[0] == 3 * fused[1] > 0:
        return nn.MultiheadAttention(fused[1], 1)
    if holds_experts(name, shape) or not 0 < math.prod(shape) < _MOST:
        return nn.Module()
    has_bias = "bias" in leaves
    if convolution := _CONVOLUTIONS.get(len(shape)):
        # With one input channel it is a depthwise convolution, most likely.
        groups = shape[0] if shape[1] == 1 else 1
        return convolution(groups * shape[1], shape[0], shape[2:], groups=groups, bias=has_bias)
    if len(shape) != 2:
        return nn.Module()
    if is_turned:
        return Conv1D()
    if kind_of(name) == "embedding" and "lm_head" not in name:
        # Without a weight torch draws one, for which it imports its compiler in 1.5 s.
        return nn.Embedding(*shape, _weight=torch.empty(shape))
    return nn.Linear(shape[1], shape[0], bias=has_bias)
