"""The tensors of an adapter by the layer of the model that they change."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from loca_theory.checkpoints.source.layouts import by
from loca_theory.errors import InvalidArgumentError

WHOLE = "base_model."
PREFIX = f"{WHOLE}model."
"""Prefix of the names of a model's modules in PEFT."""

_WRAPPED = "base_layer"
# What other wrappers than PEFT's call the module that they wrap. PEFT knows none of them.
_COMPILED = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
# The name that PEFT gives an adapter when it loads one. It may stand in the file as well, but not
# at the end of this one.
_ADAPTER = re.compile(r"(?<!lora_magnitude_vector)\.default(?=$|\.\w+$)")


@dataclass(frozen=True)
class AdaptedLayer:
    """One weight that an adapter changes.

    Attributes:
        name: The base's name of the weight; without a base, its name in the model.
        module: Name in the model of its layer, or of the parameter that PEFT targets by its name.
        keys: The name in the file of each of its tensors, by what it is (``lora_A.weight``).
        shape: Shape of the weight, as the base stores it.
        is_transposed: Whether the base stores it as q×p, or as q×p for each expert.
        experts: Number of experts if the weight is one tensor of all experts.
        is_parameter: Whether PEFT targets the parameter, and not the weight of a layer.
    """

    name: str
    module: str
    keys: Mapping[str, str]
    shape: tuple[int, ...]
    is_transposed: bool = False
    experts: int | None = None
    is_parameter: bool = False

    @property
    def bias(self) -> str:
        """The base's name of the bias beside the weight."""
        return f"{self.name.removesuffix('weight')}bias"


class AdapterTensors(NamedTuple):
    """Names of the tensors in the file of an adapter, by what PEFT does with them.

    Attributes:
        layers: Those of each layer, by what they are.
        copies: Those of other tensors of the model, by their names in it.
        shared: Those that layers share.
        not_loaded: Why PEFT does not load a tensor, by the name of its weight or its own name.
    """

    layers: dict[str, dict[str, str]]
    copies: dict[str, str]
    shared: list[str]
    not_loaded: dict[str, str]


def split_by_layer(
    names: Iterable[str], prefix: str, base: Iterable[str], *, adds_prefix: bool
) -> AdapterTensors:
    """Sort the tensors of an adapter by the layer that they belong to.

    PEFT loads a tensor if the model has one of its name, with or without the adapter's name in it.

    Args:
        names: Names of the tensors in the file.
        prefix: How the names of the adapter's own tensors begin inside their layer.
        base: Names of the tensors of the base; empty if it is not there.
        adds_prefix: Whether PEFT puts :data:`PREFIX` before names that lack it.
    """
    adapted = re.compile(rf"^(?P<module>.+)\.(?P<what>{re.escape(prefix)}.*)$")
    wrappers = _COMPILED.difference(part for name in base for part in name.split("."))
    tensors = AdapterTensors({}, {}, [], {})
    for name in names:
        inside = name.removeprefix(PREFIX)
        match = adapted.match(inside)
        wrapper = next((part for part in inside.split(".") if part in wrappers), None)
        if wrapper is not None or not (
            name.startswith(WHOLE) or (adds_prefix and PREFIX not in name)
        ):
            weight = f"{without_wrappers(match['module'])}.weight" if match else inside
            reason = f"{name} does not begin with {PREFIX}"
            if wrapper is not None:
                reason = f"{name} has the part {wrapper}, which no name of the model has"
            tensors.not_loaded[weight] = reason
        elif inside == name and name.startswith(WHOLE):
            tensors.shared.append(name)
        elif match:
            part = _ADAPTER.sub("", match["what"])
            tensors.layers.setdefault(match["module"], {})[part] = name
        else:
            tensors.copies[inside] = name
    return tensors


def without_wrappers(module: str) -> str:
    """Name of a layer in the model without PEFT, whose wrappers call what they wrap base_layer."""
    return ".".join(part for part in module.split(".") if part != _WRAPPED)


def targeted_parameters(module: str, config: Mapping[str, Any]) -> list[str]:
    """Parameters of a module that PEFT's ``target_parameters`` name."""
    patterns = config.get("target_parameters")
    names = patterns if isinstance(patterns, list) else []
    parts = [name.rpartition(".") for name in names if isinstance(name, str)]
    return [
        f"{module}.{leaf}"
        for owner, _, leaf in parts
        if not owner or module == owner or module.endswith(f".{owner}")
    ]


def fits(weight: tuple[int, ...], shape: tuple[int, ...] | None, *, can_turn: bool) -> bool:
    """Whether a weight may have an increment of this shape in the adapter."""
    if len(weight) > 2:
        # A kernel may be flattened.
        return shape in (None, weight, (weight[0], math.prod(weight[1:])))
    return shape in (None, weight) or (can_turn and shape == weight[::-1])


def flattened(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of the matrices of a stack, one below the other, as LoCA adapts a parameter."""
    return (math.prod(shape[:-1]), *shape[-1:])


class AnotherModelError(InvalidArgumentError):
    """The base lacks a weight which the adapter changes, at least under the names of its files."""


def of_another_model(name: str, shape: tuple[int, ...] | None) -> AnotherModelError:
    """The error for a base that lacks a weight which the adapter changes."""
    size = "" if shape is None else f" of shape {by(shape)}"
    return AnotherModelError(
        f"the base has no weight {name}{size}, which the adapter changes; "
        "if it has another name or parts in the file, save the loaded model again with "
        "save_original_format=False; otherwise "
        "pass the base that the adapter was trained on"
    )


def is_whole(name: str) -> bool:
    """Whether a tensor that is not of a layer replaces one of the model."""
    return ".base_layer." not in name and not name.endswith("trainable_tokens_delta")


def whole_name(name: str) -> str:
    """Name in the model of a tensor that is stored whole."""
    return without_wrappers(name.replace(".modules_to_save.", "."))


def narrowest(increment: torch.Tensor) -> torch.Tensor:
    """The increment in float32 if its largest entry fits there, with full precision."""
    largest = float(torch.stack(increment.aminmax()).abs().max())
    return increment.float() if largest == 0 or 2.0**-64 < largest < 2.0**64 else increment
