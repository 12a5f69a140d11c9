"""Name, shape and orientation of each weight that an adapter changes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from loca_theory.checkpoints.change.adapter.kinds import LOCA, LORA, by_peft, needs_weights
from loca_theory.checkpoints.change.adapter.layers import (
    AdaptedLayer,
    fits,
    flattened,
    of_another_model,
    targeted_parameters,
    without_wrappers,
)
from loca_theory.checkpoints.change.adapter.loca import loca_shape
from loca_theory.checkpoints.change.adapter.lora import EMBEDDING, lora_rank, product_of
from loca_theory.checkpoints.change.adapter.match import AdapterMatch
from loca_theory.checkpoints.model.layouts import has_conv1d_name, resized, stores_transposed
from loca_theory.checkpoints.model.matching import NameMatch
from loca_theory.checkpoints.model.model import Model
from loca_theory.checkpoints.model.skeleton import FUSED_ATTENTION
from loca_theory.checkpoints.names import kind_of, layer_of
from loca_theory.checkpoints.source.checkpoint import Checkpoint, Entry, LeftOutError

UNTOLD = "its shape is only in the base"
"""Why a weight is left out whose shape the adapter does not tell."""

# Names of embeddings. LoCA's file has p×q of their weights q×p, and not what their layers are.
_EMBEDDING = re.compile(r"embed(?!_out)(?!.*proj)|^w[pt]e$|^shared$")


@dataclass(frozen=True)
class AdaptedWeights:
    """The weights that an adapter changes.

    Attributes:
        config: Configuration of the adapter.
        source: The file with its tensors.
        base: The base; empty if it is not there.
        layers: For each layer, as wrapped by PEFT, the names of its tensors.
        model: The model of the base; None if it is not known.
    """

    config: Mapping[str, Any]
    source: Checkpoint
    base: Checkpoint
    layers: Mapping[str, Mapping[str, str]]
    model: Model | None
    partners: dict[str, str] = field(init=False, default_factory=dict)

    def match(self, whole: Mapping[str, str]) -> NameMatch:
        """Find where the weights belong in the base, with the tensors that are stored whole."""
        entries = self.source.entries
        shapes: dict[str, tuple[int, ...] | None] = {
            name: entries[key].shape for name, key in whole.items() if key in entries
        }
        for raw, keys in self.layers.items():
            module = without_wrappers(raw)
            shape = None
            with suppress(LeftOutError):
                shape, _ = self._told(keys)
            shapes |= dict.fromkeys((f"{module}.weight", f"{module}.{FUSED_ATTENTION}"), shape)
        match = AdapterMatch(
            self.config, self.source, self.base, self.model, self.layers, whole, shapes
        ).find()
        self.partners.update(match.partners)
        return match

    def find(self, left_out: dict[str, LeftOutError]) -> Iterator[AdaptedLayer]:
        """Yield the weights that an adapter changes; note why others are left out, by name."""
        parameters = self._parameters()
        for raw, keys in self.layers.items():
            module = without_wrappers(raw)
            name = parameters.get(raw, f"{module}.weight")
            try:
                adapted = self._of_parameter if raw in parameters else self._of_layer
                yield adapted(module, name, keys)
            except LeftOutError as error:
                left_out[name] = error.with_traceback(None)

    def _entry(self, name: str) -> Entry | None:
        """The base's weight by the adapter's name; None if it is not there."""
        own = self.partners.get(name)
        return None if own is None else self.base.entry(own)

    def _told(self, keys: Mapping[str, str]) -> tuple[tuple[int, ...] | None, int]:
        """Shape of ΔW, p×q, if the adapter tells it, and the rank of LoRA's factors, or 0."""
        tensors = {what: self.source.entry(key) for what, key in keys.items()}
        # The factors of ``use_bdlora`` have diagonal blocks, and only the blocks are stored.
        if self.config["peft_type"] == LORA and not self.config.get("use_bdlora"):
            return product_of(tensors, self.config)
        return (loca_shape(keys, self.source) if self.config["peft_type"] == LOCA else None), 0

    def _of_layer(self, module: str, name: str, keys: Mapping[str, str]) -> AdaptedLayer:
        shape, found = self._told(keys)
        if found and found != (rank := lora_rank(self.config, module)):
            msg = f"the factors have rank {found}, and the configuration says {rank}"
            raise LeftOutError(msg, damaged=True)
        # The factors of an embedding tell how it is stored, and a kernel is not stored transposed.
        can_turn = EMBEDDING[0] not in keys and (shape is None or len(shape) == 2)
        for asked in (name, f"{module}.{FUSED_ATTENTION}"):
            entry = self._entry(asked)
            if entry is None or not fits(entry.shape, shape, can_turn=can_turn):
                continue
            own, weight = self.partners[asked], entry.shape
            is_told = shape is not None and shape != shape[::-1]
            turned = weight != shape if is_told else can_turn and self._is_guessed_transposed(own)
            return AdaptedLayer(own, module, keys, weight, turned and len(weight) == 2)
        turned = self._is_embedding_of_loca(module)
        if not self.base.entries:
            turned = can_turn and self._is_guessed_transposed(name)
        shape = shape[::-1] if turned and shape is not None else shape
        own = self.partners.get(name, name)
        return AdaptedLayer(own, module, keys, self._without_weight(name, shape), turned)

    def _without_weight(self, name: str, shape: tuple[int, ...] | None) -> tuple[int, ...]:
        """The shape of a weight that the base does not have, or has with more or fewer rows.

        Only an embedding may have another number of rows, and only without a base there is no need
        of any other weight.
        """
        if not self.base.entries:
            if shape is None:
                raise LeftOutError(UNTOLD)
            return shape
        entry = self._entry(name)
        if kind_of(name) != "embedding":
            raise of_another_model(name, shape)
        if entry is None:
            # A head that is tied to the embedding is not in the base a second time.
            if needs_weights(self.config) or shape is None:
                msg = "not in the base checkpoint by this name: tied to another weight"
                raise LeftOutError(msg)
            return shape
        if shape is None or entry.shape[1:] != shape[1:]:
            raise of_another_model(name, shape)
        if needs_weights(self.config):
            raise LeftOutError(resized(entry.shape, shape))
        return shape

    def _is_guessed_transposed(self, name: str) -> bool:
        """Whether a weight is stored as q×p, where shapes do not tell.

        PEFT notes in ``fan_in_fan_out`` only whether the layer that it adapted last is a
        ``Conv1D``. A head comes last and is none.
        """
        if self._is_embedding_of_loca(name.removesuffix(".weight")):
            return True
        flag = bool(self.config.get("fan_in_fan_out"))
        modules = [without_wrappers(raw) for raw in self.layers]
        if not any(has_conv1d_name(f"{module}.weight") for module in modules):
            return flag
        if not has_conv1d_name(name):
            return False
        known = stores_transposed(self.base)
        has_head = any(layer_of(module) is None for module in modules)
        return (flag or has_head) if known is None else known

    def _is_embedding_of_loca(self, module: str) -> bool:
        last = module.rpartition(".")[2]
        return self.config["peft_type"] == LOCA and _EMBEDDING.search(last) is not None

    # --- parameters that are targeted by their names, such as those of all experts ---

    def _parameters(self) -> dict[str, str]:
        """Name of the parameter of each layer that PEFT targets by the parameter's name.

        PEFT wraps a module once for each of its parameters and does not store their names. The
        parameter that the module has first is innermost. A wrapper gets the first that fits.
        """
        found: dict[str, str] = {}
        # The name of the innermost is the longest.
        for raw in sorted(self.layers, key=len, reverse=True):
            module = without_wrappers(raw)
            targeted = targeted_parameters(module, self.config)
            free = [one for one in targeted if one not in found.values()]
            fitting = [name for name in free if self._fits_parameter(name, self.layers[raw])]
            if not fitting and f"{module}.weight" not in self.partners:
                fitting = free
            if fitting:
                found[raw] = fitting[0]
        return found

    def _fits_parameter(self, name: str, keys: Mapping[str, str]) -> bool:
        """Whether the tensors of a layer fit a parameter of this name."""
        try:
            entry, (shape, rank) = self._entry(name), self._told(keys)
        except LeftOutError:
            return False
        if entry is None or shape is None:
            return False
        if not rank:
            return flattened(entry.shape) == shape
        if len(entry.shape) != 3:
            return entry.shape == shape
        return entry.shape[1:] in (shape, shape[::-1]) and rank % entry.shape[0] == 0

    def _of_parameter(self, module: str, name: str, keys: Mapping[str, str]) -> AdaptedLayer:
        """The parameter that some tensors of LoRA or LoCA change."""
        entry, (shape, found) = self._entry(name), self._told(keys)
        is_loca = self.config["peft_type"] == LOCA
        if not is_loca and by_peft(self.config):
            raise LeftOutError("only plain LoRA and LoCA have target_parameters")  # noqa: EM101
        if not self.base.entries:
            raise LeftOutError(UNTOLD)
        rank = lora_rank(self.config, name)
        if entry is None or shape is None or not self._fits_parameter(name, keys):
            stack = (found // rank,) if found > rank else ()
            raise of_another_model(name, None if shape is None else (*stack, *shape))
        targeted = targeted_parameters(module, self.config)
        if is_loca and sum(self._fits_parameter(one, keys) for one in targeted) > 1:
            msg = "one of several parameters of this shape in a module, and the file does not "
            msg += "tell which; merge the adapter and analyse the merged checkpoint"
            raise LeftOutError(msg)
        experts = entry.shape[0] if found and len(entry.shape) == 3 else None
        if found and found != rank * (experts or 1):
            msg = f"the factors have rank {found}, and the configuration says {rank} for "
            raise LeftOutError(msg + "each expert", damaged=True)
        own = self.partners[name]
        turned = experts is not None and self._are_transposed(own, entry.shape[1:], shape)
        return AdaptedLayer(own, name, keys, entry.shape, turned, experts, is_parameter=True)

    def _are_transposed(self, own: str, shape: tuple[int, ...], product: tuple[int, ...]) -> bool:
        """Whether the base stores each expert's weight as q×p."""
        if shape != shape[::-1]:
            return shape != product
        if self.model is None or not self.model.is_known:
            msg = "square weights of experts, of which only their model tells how it stores them; "
            raise LeftOutError(msg + "put its config.json beside the base")
        return self.model.is_transposed(own)
