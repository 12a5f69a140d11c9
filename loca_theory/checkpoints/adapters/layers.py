"""The tensors of an adapter by the layer of the model that they change."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from loca_theory.checkpoints.weights.layouts import by
from loca_theory.errors import InvalidArgumentError

FUSED_ATTENTION = "in_proj_weight"
"""Name of the weight of the queries, keys and values of ``MultiheadAttention``."""

_WHOLE = "base_model."
_MODEL = f"{_WHOLE}model."
_WRAPPED = "base_layer"


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


def split_by_layer(
    names: Iterable[str], prefix: str
) -> tuple[dict[str, dict[str, str]], dict[str, str], list[str]]:
    """Sort the tensors of an adapter by the layer that they belong to.

    The names in the file: of each layer's tensors, by what they are; of other tensors of the model,
    by their names in it; of those that layers share.
    """
    own = re.compile(rf"^(?P<module>.+)\.(?P<what>{re.escape(prefix)}.*)$")
    layers: dict[str, dict[str, str]] = {}
    others: dict[str, str] = {}
    shared: list[str] = []
    for name in names:
        inside = name.removeprefix(_MODEL)
        if inside == name and name.startswith(_WHOLE):
            shared.append(name)
        elif found := own.match(inside):
            layers.setdefault(found["module"], {})[found["what"]] = name
        else:
            others[inside] = name
    return layers, others, shared


def without_wrappers(module: str) -> str:
    """Name of a layer in the model without PEFT, whose wrappers call what they wrap base_layer."""
    return ".".join(part for part in module.split(".") if part != _WRAPPED)


def wanted_names(layers: Iterable[str], config: Mapping[str, Any]) -> Iterator[str]:
    """All names that weights of an adapter's layers may have in the base."""
    for module in map(without_wrappers, layers):
        yield f"{module}.weight"
        yield f"{module}.{FUSED_ATTENTION}"
        yield from targeted_parameters(module, config)


def targeted_parameters(module: str, config: Mapping[str, Any]) -> list[str]:
    """Parameters of a module that PEFT's ``target_parameters`` name."""
    patterns = config.get("target_parameters")
    names = [one for one in patterns if isinstance(one, str)] if isinstance(patterns, list) else []
    parts = [name.rpartition(".") for name in names]
    return [
        f"{module}.{leaf}"
        for owner, _, leaf in parts
        if not owner or module == owner or module.endswith(f".{owner}")
    ]


def fits(weight: tuple[int, ...], shape: tuple[int, ...] | None, *, can_turn: bool) -> bool:
    """Whether a weight may have an increment that is of this shape in the adapter."""
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
    msg = f"the base has no weight {name}{size}, which the adapter changes; "
    msg += "if it has another name or parts in the file, save the loaded model again with "
    msg += "save_original_format=False; otherwise "
    return AnotherModelError(msg + "pass the base that the adapter was trained on")
