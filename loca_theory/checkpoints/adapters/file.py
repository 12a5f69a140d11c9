"""The file of an adapter beside its base: what both say of the shape of a layer's increment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loca_theory.checkpoints.adapters.kinds import AdapterKind
from loca_theory.checkpoints.adapters.layers import BaseNames
from loca_theory.checkpoints.adapters.lora import Factors
from loca_theory.checkpoints.weights.checkpoint import Checkpoint, Entry, LeftOutError
from loca_theory.checkpoints.weights.stored_matrices import holds_experts
from loca_theory.errors import InvalidArgumentError

UNTOLD = "its shape is only in the base"
"""Why a weight is left out whose shape the adapter does not tell."""

_LOCA_SHAPE = "loca_spectrum.shape"
# Tensors of plain LoRA that matter only in training.
_TRAINING_ONLY = ("lora_velora", "lora_monteclora")


@dataclass(frozen=True)
class AdapterFile:
    """The file of an adapter, beside its base.

    Attributes:
        kind: Type of the adapter.
        config: Its configuration.
        source: The file with its tensors.
        base: The base, or None.
        layers: For each layer, as wrapped by PEFT, the names of its tensors.
        names: The base's names of the weights.
    """

    kind: AdapterKind
    config: Mapping[str, Any]
    source: Checkpoint
    base: Checkpoint | None
    layers: Mapping[str, Mapping[str, str]]
    names: BaseNames

    @property
    def weights(self) -> Mapping[str, Entry]:
        """The weights of the base; none without one."""
        return {} if self.base is None else self.base.entries

    def factors(self, keys: Mapping[str, str]) -> Factors:
        """Shapes of LoRA's factors of a layer."""
        found = Factors.of({what: self.source.entries[key] for what, key in keys.items()})
        if not self.kind.by_peft:
            for what in keys.keys() - set(found.names):
                if not what.endswith(".bias") and not what.startswith(_TRAINING_ONLY):
                    msg = f"the file holds {what}, and the configuration has no option for it"
                    raise LeftOutError(msg, damaged=True)
        return found

    def own_shape(self, keys: Mapping[str, str]) -> tuple[int, ...] | None:
        """Shape of ΔW, p×q, as LoCA's file tells it; None for other types."""
        key = keys.get(_LOCA_SHAPE)
        if key is None or self.source.entries[key].shape != (2,):
            return None
        shape = tuple(int(side) for side in self.source.load(key))
        return shape if min(shape) > 0 else None


def of_another_model(name: str, shape: tuple[int, ...] | None) -> InvalidArgumentError:
    """The error for a base that lacks a weight which the adapter changes."""
    size = "" if shape is None else f" of shape {'x'.join(map(str, shape))}"
    msg = f"the base has no weight {name}{size}, which the adapter changes; "
    if holds_experts(name, shape or ()):
        msg += "if it stores each expert by itself, save the loaded model again with "
        msg += "save_original_format=False; otherwise "
    return InvalidArgumentError(msg + "pass the base that the adapter was trained on")


def resized(was: tuple[int, ...], now: tuple[int, ...]) -> str:
    """The reason for a weight that has another shape than that of the base."""
    before, after = ("x".join(map(str, shape)) for shape in (was, now))
    return f"resized from {before} to {after}"
