"""Name, shape and orientation of each weight that an adapter changes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
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
from loca_theory.checkpoints.change.adapter.match import Likeness, adapted_part
from loca_theory.checkpoints.model.matching import NameMatch, match_names
from loca_theory.checkpoints.model.model import Model
from loca_theory.checkpoints.model.names import kind_of, layer_of
from loca_theory.checkpoints.model.skeleton import FUSED_ATTENTION, Shape
from loca_theory.checkpoints.source.checkpoint import Checkpoint, LeftOutError, TensorEntry
from loca_theory.checkpoints.source.layouts import has_conv1d_name, resized, stores_transposed

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
        model: The model of the base; None if it is not there.
        layers: For each layer, as wrapped by PEFT, the names of its tensors.
        whole: Name in the file of each tensor that is stored whole, by its name in the model.
    """

    config: Mapping[str, Any]
    source: Checkpoint
    base: Checkpoint
    model: Model | None
    layers: Mapping[str, Mapping[str, str]]
    whole: Mapping[str, str]

    @cached_property
    def modules(self) -> dict[str, str]:
        """The name in the model of each layer."""
        return {raw: without_wrappers(raw) for raw in self.layers}

    def find(self, left_out: dict[str, LeftOutError]) -> Iterator[AdaptedLayer]:
        """Yield the weights that an adapter changes; note why others are left out, by name."""
        for raw, module in self.modules.items():
            name = self._parameters.get(raw)
            try:
                yield self._layer(raw) if name is None else self._parameter(raw, name)
            except LeftOutError as error:
                left_out[name or f"{module}.weight"] = error.with_traceback(None)

    @cached_property
    def match(self) -> NameMatch:
        """The base's name of each weight, also of those that are stored whole."""
        entries, shapes = self.source.entries, dict[str, Shape | None]()
        for name, key in self.whole.items():
            shapes[name] = entries[key].shape if key in entries else None
        for raw, module in self.modules.items():
            shape = None
            with suppress(LeftOutError):
                shape, _ = self._told(raw)
            shapes |= dict.fromkeys(targeted_parameters(module, self.config))
            shapes |= dict.fromkeys((f"{module}.weight", f"{module}.{FUSED_ATTENTION}"), shape)

        def fits_base(name: str, partner: str) -> bool:
            entry = self.base.entries.get(partner)
            return entry is None or fits(entry.shape, shapes[name], can_turn=True)

        magnitudes = {
            f"{module}.weight": key
            for raw, module in self.modules.items()
            for part, key in self.layers[raw].items()
            if "magnitude" in part
        }
        likeness = Likeness(self.source, self.base, self.whole, magnitudes)
        part = adapted_part(self.config, self.model)
        names = self.base.names
        return match_names(shapes, names, fits=fits_base, likeness=likeness, part=part)

    def _entry(self, name: str) -> TensorEntry | None:
        """The base's weight by the adapter's name; None if it is not there."""
        partner = self.match.partners.get(name)
        return None if partner is None else self.base.entry(partner)

    def _told(self, raw: str) -> tuple[Shape | None, int]:
        """Shape of ΔW, p×q, if the adapter tells it, and the rank of LoRA's factors, or 0."""
        keys = self.layers[raw]
        tensors = {part: self.source.entry(key) for part, key in keys.items()}
        # The factors of ``use_bdlora`` have diagonal blocks, and only the blocks are stored.
        if self.config["peft_type"] == LORA and not self.config.get("use_bdlora"):
            return product_of(tensors, self.config)
        return (loca_shape(keys, self.source) if self.config["peft_type"] == LOCA else None), 0

    def _check_rank(self, rank: int, name: str, experts: int | None = None) -> None:
        if rank and rank != (expected := lora_rank(self.config, name)) * (experts or 1):
            case = "factors of another rank than in the configuration"
            ranks = f"{rank}, not {expected}{' for each expert' if experts else ''}"
            raise LeftOutError(case, ranks, damaged=True)

    def _layer(self, raw: str) -> AdaptedLayer:
        """The weight of a layer."""
        (shape, rank), module, keys = self._told(raw), self.modules[raw], self.layers[raw]
        self._check_rank(rank, module)
        name = f"{module}.weight"
        # An embedding's factors tell its orientation; a convolution is never stored transposed.
        can_turn = EMBEDDING[0] not in keys and (shape is None or len(shape) == 2)
        for candidate in (name, f"{module}.{FUSED_ATTENTION}"):
            entry = self._entry(candidate)
            if entry is not None and fits(entry.shape, shape, can_turn=can_turn):
                partner, weight = self.match.partners[candidate], entry.shape
                is_told = shape is not None and shape != shape[::-1]
                turned = weight != shape if is_told else self._is_guessed_turned(partner)
                turned = turned and can_turn and len(weight) == 2
                return AdaptedLayer(partner, module, keys, weight, turned)
        if self.base.entries:
            turned = self._is_embedding_of_loca(module)
        else:
            turned = can_turn and self._is_guessed_turned(name)
        shape = shape[::-1] if turned and shape is not None else shape
        partner = self.match.partners.get(name, name)
        return AdaptedLayer(partner, module, keys, self._without_weight(name, shape), turned)

    def _without_weight(self, name: str, shape: Shape | None) -> Shape:
        """The shape of a weight that the base does not have, or has with more or fewer rows.

        Only an embedding may have another number of rows. Without a base, no weight is needed.
        """
        entry = self._entry(name)
        if not self.base.entries:
            if shape is None:
                raise LeftOutError(UNTOLD)
            return shape
        is_embedding, needs = kind_of(name) == "embedding", needs_weights(self.config)
        if is_embedding and entry is None and (needs or shape is None):
            # A head that is tied to the embedding is not in the base a second time.
            case = "not in the base checkpoint by this name"
            raise LeftOutError(case, "tied to another weight")
        has_columns = entry is None or (shape is not None and entry.shape[1:] == shape[1:])
        if not is_embedding or shape is None or not has_columns:
            raise of_another_model(name, shape)
        if entry is not None and needs:
            raise LeftOutError(resized(entry.shape, shape))
        return shape

    def _is_guessed_turned(self, name: str) -> bool:
        """Whether a weight is stored as q×p, where shapes do not tell.

        PEFT notes in ``fan_in_fan_out`` only whether the layer that it adapted last is a
        ``Conv1D``. A head comes last and is none.
        """
        if self._is_embedding_of_loca(name.removesuffix(".weight")):
            return True
        flag, modules = bool(self.config.get("fan_in_fan_out")), self.modules.values()
        if not any(has_conv1d_name(f"{module}.weight") for module in modules):
            return flag
        turned = stores_transposed(self.base)
        if turned is None:
            turned = flag or any(layer_of(module) is None for module in modules)
        return turned and has_conv1d_name(name)

    def _is_embedding_of_loca(self, module: str) -> bool:
        last = module.rpartition(".")[2]
        return self.config["peft_type"] == LOCA and _EMBEDDING.search(last) is not None

    # --- parameters that are targeted by their names, such as those of all experts ---

    @cached_property
    def _parameters(self) -> dict[str, str]:
        """Name of the parameter of each layer that PEFT targets by the parameter's name.

        PEFT wraps a module once for each of its parameters and does not store their names. The
        parameter that the module has first is innermost. A wrapper gets the first that fits.
        """
        parameters: dict[str, str] = {}
        # The name of the innermost is the longest.
        for raw in sorted(self.layers, key=len, reverse=True):
            module = self.modules[raw]
            names = targeted_parameters(module, self.config)
            free = [name for name in names if name not in parameters.values()]
            fitting = [name for name in free if self._fits_parameter(name, raw)]
            if not fitting and f"{module}.weight" not in self.match.partners:
                fitting = free
            if fitting:
                parameters[raw] = fitting[0]
        return parameters

    def _fits_parameter(self, name: str, raw: str) -> bool:
        """Whether the tensors of a layer fit a parameter of this name."""
        try:
            entry, (shape, rank) = self._entry(name), self._told(raw)
        except LeftOutError:
            return False
        if entry is None or shape is None:
            return False
        if rank and len(entry.shape) == 3:
            return entry.shape[1:] in (shape, shape[::-1]) and rank % entry.shape[0] == 0
        return shape == (entry.shape if rank else flattened(entry.shape))

    def _parameter(self, raw: str, name: str) -> AdaptedLayer:
        """The parameter that some tensors of LoRA or LoCA change."""
        entry, (shape, rank) = self._entry(name), self._told(raw)
        if by_peft(self.config):
            raise LeftOutError("only plain LoRA and LoCA have target_parameters")
        if not self.base.entries:
            raise LeftOutError(UNTOLD)
        if entry is None or shape is None or not self._fits_parameter(name, raw):
            raise of_another_model(name, shape)
        targeted = targeted_parameters(self.modules[raw], self.config)
        if not rank and sum(self._fits_parameter(other, raw) for other in targeted) > 1:
            raise LeftOutError(
                "one of several parameters of this shape in a module, and the file does not "
                "tell which; merge the adapter and analyse the merged checkpoint"
            )
        experts = entry.shape[0] if rank and len(entry.shape) == 3 else None
        self._check_rank(rank, name, experts)
        partner = self.match.partners[name]
        turned = experts is not None and shape != entry.shape[1:]
        if experts is not None and shape == shape[::-1]:
            if self.model is None or not self.model.is_known:
                raise LeftOutError(
                    "square weights of experts, of which only their model tells how it stores "
                    "them; put its config.json beside the base"
                )
            turned = self.model.is_transposed(partner)
        keys = self.layers[raw]
        return AdaptedLayer(partner, name, keys, entry.shape, turned, experts, is_parameter=True)
