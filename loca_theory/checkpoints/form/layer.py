"""Which weights an adapter can change, and how their modules are called."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from loca_theory.checkpoints.change.adapter.increments import AdapterIncrements
from loca_theory.checkpoints.change.comparable import Weight
from loca_theory.checkpoints.change.pair import CheckpointPair
from loca_theory.checkpoints.form.config import target_modules
from loca_theory.checkpoints.model.model import EXPERTS
from loca_theory.checkpoints.source.checkpoint import Reason


@dataclass(frozen=True)
class Layer:
    """A matrix of a pair, as a layer that an adapter may change.

    Attributes:
        name: Its key in the pair's names.
        weight: Name of the weight in the model with a head, which both checkpoints need not have.
        shape: (p, q) as PEFT's layer has it; of one of several experts.
        obstacle: Why it can have no adapter of any form; None if it can.
        is_transposed: Whether it is stored as (inputs, outputs).
        kernel: Sides of a convolution kernel; empty for a linear layer.
        experts: Number of experts whose weights are one parameter; 1 for a layer's weight.
        is_taken: Whether PEFT takes a LoRA of its name for one of experts.
    """

    name: str
    weight: str
    shape: tuple[int, int]
    obstacle: Reason | None = None
    is_transposed: bool = False
    kernel: tuple[int, ...] = ()
    experts: int = 1
    is_taken: bool = False

    @property
    def sides(self) -> tuple[int, int]:
        """Rows of LoRA's B and columns of A, of all experts."""
        p, q = self.shape
        return self.experts * p, self.experts * q

    @property
    def stack(self) -> tuple[int, int]:
        """Shape of the weights of all experts, one below the other, as they are stored."""
        p, q = self.shape[::-1] if self.experts > 1 and self.is_transposed else self.shape
        return self.experts * p, q

    @property
    def module(self) -> str:
        """Name of the module that holds the weight."""
        return self.weight.removesuffix(".weight")


def layers_of(pair: CheckpointPair) -> list[Layer]:
    """Every matrix of a pair, also those with an obstacle."""
    return [_layer(pair, weight) for weight in pair.matrices.values()]


def _layer(pair: CheckpointPair, weight: Weight) -> Layer:
    model, shape, experts = pair.model, weight.entry.shape, 1
    adapter = pair.tuned if isinstance(pair.tuned, AdapterIncrements) else None
    if adapter is not None:
        name, adapted = adapter.own_name(weight.tensor), adapter.layers.get(weight.tensor)
        is_parameter = adapted is not None and adapted.is_parameter
        obstacle = EXPERTS if is_parameter else model.obstacle(name)
        is_transposed = adapted is not None and adapted.is_transposed
    else:
        name = weight.name
        obstacle, is_transposed = model.obstacle(weight.tensor), model.is_transposed(weight.tensor)
    if weight.note:
        obstacle = obstacle or Reason("not the same layer", weight.note)
    if obstacle == EXPERTS and model.is_known and weight.expert is None and adapter is None:
        (experts, *shape), obstacle = shape, None
    rows, columns = weight.shape
    p, q = (columns, rows // experts) if is_transposed else (rows // experts, columns)
    kernel = tuple(shape[2:]) if weight.expert is None else ()
    is_taken = name.removesuffix(".weight") in model.taken_for_experts
    return Layer(weight.name, name, (p, q), obstacle, is_transposed, kernel, experts, is_taken)


def has_ambiguous_names(pair: CheckpointPair, layers: Iterable[Layer]) -> bool:
    """Whether PEFT may take a list of the modules of layers to fit others as well.

    The names in an adapter do not show which other modules the model has.
    """
    modules = {layer.module for layer in layers}
    return pair.base is None or end_others(modules, pair.model.modules)


def settings_of_layers(
    pair: CheckpointPair, layers: Iterable[Layer], base: str | None, saved: Sequence[str] = ()
) -> dict[str, Any]:
    """PEFT's settings of an adapter of some layers, whatever its form."""
    turned = {layer.module: layer.is_transposed for layer in layers}
    is_ambiguous = end_others(turned, pair.model.modules.keys() - turned.keys())
    return {
        "base_model_name_or_path": base,
        "fan_in_fan_out": any(turned.values()),
        "target_modules": target_modules(turned, is_ambiguous=is_ambiguous),
        "modules_to_save": list(saved) or None,
    }


def end_others(modules: Collection[str], around: Collection[str]) -> bool:
    """Whether the name of a module ends the name of another module, after a dot.

    >>> end_others(["fc"], ["block.fc"])
    True
    """
    chosen = set(modules)
    split = (other.split(".") for other in around)
    return any(".".join(parts[i:]) in chosen for parts in split for i in range(1, len(parts)))
