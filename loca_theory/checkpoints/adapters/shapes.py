"""Name, shape and orientation of each weight that an adapter changes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from loca_theory.checkpoints.adapters.kinds import LOCA, LORA, AdapterKind
from loca_theory.checkpoints.adapters.layers import AdaptedLayer, BaseNames, depth, without_wrappers
from loca_theory.checkpoints.adapters.lora import Factors, lora_rank
from loca_theory.checkpoints.adapters.weight_names import (
    FUSED_ATTENTION,
    parameter_patterns,
    targeted_parameters,
)
from loca_theory.checkpoints.names import kind_of, layer_of
from loca_theory.checkpoints.rows import Skipped
from loca_theory.checkpoints.weights.checkpoint import Checkpoint, Entry, LeftOutError
from loca_theory.checkpoints.weights.conv1d import (
    has_conv1d_name,
    has_fused_attention,
    stores_transposed,
)
from loca_theory.checkpoints.weights.stored_matrices import holds_experts
from loca_theory.errors import InvalidArgumentError

UNTOLD = "its shape is only in the base"
"""Why a weight is left out whose shape the adapter does not tell."""

_MATRIX_DIMENSIONS, _STACK_DIMENSIONS = 2, 3
_LOCA_SHAPE = "loca_spectrum.shape"
# Names of embeddings. LoCA's file has p×q of their weights q×p, and not what their layers are.
_EMBEDDING = re.compile(r"embed(?!_out)(?!.*proj)|^w[pt]e$|^shared$")
_GATE_UP = "gate_up_proj"
# Tensors of plain LoRA that matter only in training, and their reasons.
_TRAINING_ONLY = ("lora_velora", "lora_monteclora")


@dataclass(frozen=True)
class LayerShapes:
    """Find the weights that an adapter changes.

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

    def __iter__(self) -> Iterator[AdaptedLayer | Skipped]:
        parameters = self._parameters()
        for raw, keys in self.layers.items():
            module = without_wrappers(raw)
            name = parameters.get(raw, f"{module}.weight")
            spoilt = [
                self.source.damaged[key] for key in keys.values() if key in self.source.damaged
            ]
            if spoilt:
                yield Skipped(name, spoilt[0], damaged=True)
                continue
            try:
                if raw in parameters:
                    yield self._of_parameter(module, name, keys)
                else:
                    yield self._of_layer(module, name, keys)
            except LeftOutError as error:
                yield Skipped(name, str(error), error.damaged)

    @property
    def _base(self) -> Mapping[str, Entry]:
        return {} if self.base is None else self.base.entries

    # --- layers ----------------------------------------------------------------------------------

    def _of_layer(self, module: str, name: str, keys: Mapping[str, str]) -> AdaptedLayer:
        shape, can_turn = self._shape(module, keys)
        if self.base is None:
            if shape is None:
                raise LeftOutError(UNTOLD)
            turned = can_turn and self._guess_transposed(name)
            return self._layer(name, module, keys, shape[::-1] if turned else shape, turned)

        def fits(weight: Entry) -> bool:
            return shape in (None, *_matrices_of(weight.shape, can_turn=can_turn))

        own = self.names.find(name, fits) or self.names.find(f"{module}.{FUSED_ATTENTION}", fits)
        if own is None:
            return self._not_found(name, module, keys, shape)
        weight = self.base.entries[own].shape
        if len(weight) > _MATRIX_DIMENSIONS:
            turned = False
        elif shape is not None and shape != shape[::-1]:
            turned = weight != shape
        else:
            turned = can_turn and self._guess_transposed(own)
        return self._layer(own, module, keys, weight, turned)

    def _shape(self, module: str, keys: Mapping[str, str]) -> tuple[tuple[int, ...] | None, bool]:
        """Shape of ΔW as p×q if the adapter tells it, and whether the base may store it as q×p."""
        # The factors of ``use_bdlora`` have diagonal blocks, and only the blocks are stored.
        if self.kind.name != LORA or self.config.get("use_bdlora"):
            return self._own_shape(keys), True
        factors, rank = self._factors(keys), lora_rank(self.config, module)
        if rank != factors.rank:
            msg = f"the factors have rank {factors.rank}, and the configuration says {rank}"
            raise LeftOutError(msg, damaged=True)
        is_matrix = len(factors.shape) == _MATRIX_DIMENSIONS
        return factors.shape, is_matrix and not factors.is_embedding

    def _layer(
        self,
        name: str,
        module: str,
        keys: Mapping[str, str],
        shape: tuple[int, ...],
        is_transposed: bool,
    ) -> AdaptedLayer:
        return AdaptedLayer(name, module, keys, shape, is_transposed, None, module)

    def _not_found(
        self, name: str, module: str, keys: Mapping[str, str], shape: tuple[int, ...] | None
    ) -> AdaptedLayer:
        """A layer whose weight is not in the base, or not in a shape that fits."""
        own = self.names.any(name)
        turned = self._is_loca_embedding(module)
        shape = shape[::-1] if turned and shape is not None else shape
        is_vocabulary = kind_of(name) == "embedding"
        if own is not None and self.base is not None and own in self.base.damaged:
            raise LeftOutError(self.base.damaged[own], damaged=True)
        if own is None and is_vocabulary:
            # A head that is tied to the embedding is not in the base a second time.
            if self.kind.needs_weights or shape is None:
                msg = "not in the base checkpoint by this name: tied to another weight"
                raise LeftOutError(msg)
            return self._layer(name, module, keys, shape, is_transposed=turned)
        if own is not None and is_vocabulary and shape is not None:
            was = self._base[own].shape
            if was[1:] == shape[1:]:
                raise LeftOutError(resized(was, shape))
        raise _of_another_model(name, shape)

    def _factors(self, keys: Mapping[str, str]) -> Factors:
        entries = {what: self.source.entries[key] for what, key in keys.items()}
        found = Factors.of(entries)
        if not self.kind.by_peft:
            for what in set(keys) - set(found.names):
                if not what.endswith(".bias") and not what.startswith(_TRAINING_ONLY):
                    msg = f"the file holds {what}, and the configuration has no option for it"
                    raise LeftOutError(msg, damaged=True)
        return found

    def _own_shape(self, keys: Mapping[str, str]) -> tuple[int, ...] | None:
        """Shape of ΔW, p×q, as LoCA's file tells it; None for other types."""
        key = keys.get(_LOCA_SHAPE)
        if key is None or self.source.entries[key].shape != (2,):
            return None
        shape = tuple(int(side) for side in self.source.load(key))
        return shape if min(shape) > 0 else None

    # --- Conv1D ----------------------------------------------------------------------------------

    def _guess_transposed(self, name: str) -> bool:
        """Whether a weight is stored as q×p, where shapes do not tell.

        PEFT notes in ``fan_in_fan_out`` only whether the layer that it adapted last is a
        ``Conv1D``. A head comes last and is none.
        """
        if self._is_loca_embedding(name.removesuffix(".weight")):
            return True
        flag = bool(self.config.get("fan_in_fan_out"))
        modules = [without_wrappers(raw) for raw in self.layers]
        if not any(has_conv1d_name(f"{module}.weight") for module in modules):
            return flag
        if not has_conv1d_name(name):
            return False
        if self.base is not None and has_fused_attention(self.base):
            return stores_transposed(self.base)
        return flag or any(layer_of(module) is None for module in modules)

    def _is_loca_embedding(self, module: str) -> bool:
        last = module.rpartition(".")[2]
        return self.kind.name == LOCA and _EMBEDDING.search(last) is not None

    # --- parameters that are targeted by name, such as those of all experts ----------------------

    def _parameters(self) -> dict[str, str]:
        """Name of the parameter of each layer that PEFT targets by the parameter's name.

        PEFT wraps a module once for each of its parameters and does not store their names. The
        parameter that the module has first is innermost. A wrapper gets the first that fits.
        """
        patterns = parameter_patterns(self.config)
        found: dict[str, str] = {}
        taken: set[str] = set()
        for raw in sorted(self.layers, key=depth, reverse=True) if patterns else ():
            module = without_wrappers(raw)
            free = [name for name in targeted_parameters(module, patterns) if name not in taken]
            fitting = [name for name in free if self._parameter_fits(name, self.layers[raw])]
            if not fitting and self.names.any(f"{module}.weight") is None:
                fitting = free
            if fitting:
                found[raw] = fitting[0]
                taken.add(fitting[0])
        return found

    def _parameter_fits(self, name: str, keys: Mapping[str, str]) -> bool:
        if self.base is None:
            return True
        if self.kind.name == LOCA:
            return self._loca_parameter(name, keys) is not None
        try:
            factors = self._factors(keys)
        except (LeftOutError, KeyError):
            return False
        return self.names.find(name, factors.fits_parameter) is not None

    def _loca_parameter(self, name: str, keys: Mapping[str, str]) -> str | None:
        """The base's name of a parameter, whose matrices LoCA adapts as one below the other."""
        flat = self._own_shape(keys)
        return self.names.find(name, lambda weight: flattened(weight.shape) == flat)

    def _of_parameter(self, module: str, name: str, keys: Mapping[str, str]) -> AdaptedLayer:
        if self.kind.name == LOCA:
            return self._of_loca_parameter(module, name, keys)
        if self.kind.by_peft:
            raise LeftOutError("only plain LoRA and LoCA have target_parameters")  # noqa: EM101
        if (
            self.base is None
            and len(targeted_parameters(module, parameter_patterns(self.config))) > 1
        ):
            # The file says neither which of them a tensor belongs to, nor their order.
            msg = "one of several parameters of a module, and only the base tells which: pass the "
            raise LeftOutError(msg + "base as well")
        factors, rank = self._factors(keys), lora_rank(self.config, name)
        experts, odd = divmod(factors.rank, rank)
        shape = factors.shape if experts == 1 else (experts, *factors.shape)
        own: str | None = name
        turned = False
        if self.base is not None:
            own = self.names.find(name, factors.fits_parameter)
            if own is None:
                raise _of_another_model(name, shape)
            shape = self.base.entries[own].shape
            if len(shape) == _STACK_DIMENSIONS:
                odd = odd or shape[0] != experts
                turned = self._experts_transposed(own, factors.shape)
            else:
                odd = odd or experts != 1
        if odd or not experts:
            msg = (
                f"the factors have rank {factors.rank}, and the configuration says {rank} for each "
            )
            msg += "expert"
            raise LeftOutError(msg, damaged=True)
        stacked = experts if len(shape) == _STACK_DIMENSIONS else None
        return AdaptedLayer(own, module, keys, shape, turned, stacked, name)

    def _of_loca_parameter(self, module: str, name: str, keys: Mapping[str, str]) -> AdaptedLayer:
        if self.base is None:
            raise LeftOutError(UNTOLD)
        own = self._loca_parameter(name, keys)
        if own is None:
            raise _of_another_model(name, self._own_shape(keys))
        targeted = targeted_parameters(module, parameter_patterns(self.config))
        if sum(self._parameter_fits(one, keys) for one in targeted) > 1:
            msg = "one of several parameters of this shape in a module, and the file does not tell "
            raise LeftOutError(msg + "which; merge the adapter and analyse the merged checkpoint")
        shape = self._base[own].shape
        return AdaptedLayer(own, module, keys, shape, False, None, name)

    def _experts_transposed(self, own: str, product: tuple[int, ...]) -> bool:
        """Whether the base stores each expert's weight as q×p."""
        shape = self._base[own].shape[1:]
        if shape != shape[::-1]:
            return shape != product
        # A square weight is stored like the one beside it, which has 2m rows (or columns) for m.
        beside = self._base.get(f"{own.rpartition('.')[0]}.{_GATE_UP}")
        return beside is not None and beside.shape[2:] == (2 * beside.shape[1],)


def _matrices_of(weight: tuple[int, ...], *, can_turn: bool) -> list[tuple[int, ...]]:
    """Shapes that the increment of a weight may have in an adapter; a kernel may be flattened."""
    if len(weight) > _MATRIX_DIMENSIONS:
        return [weight, (weight[0], math.prod(weight[1:]))]
    return [weight, weight[::-1]] if can_turn else [weight]


def flattened(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of the matrices of a stack, one below the other, as LoCA adapts a parameter."""
    return (math.prod(shape[:-1]), *shape[-1:])


def resized(was: tuple[int, ...], now: tuple[int, ...]) -> str:
    """The reason for a weight that has another shape than that of the base."""
    before, after = ("x".join(map(str, shape)) for shape in (was, now))
    return f"resized from {before} to {after}"


def _of_another_model(name: str, shape: tuple[int, ...] | None) -> InvalidArgumentError:
    size = "" if shape is None else f" of shape {'x'.join(map(str, shape))}"
    msg = f"the base has no weight {name}{size}, which the adapter changes; "
    if holds_experts(name, shape or ()):
        msg += "if it stores each expert by itself, save the loaded model again with "
        msg += "save_original_format=False; otherwise "
    return InvalidArgumentError(msg + "pass the base that the adapter was trained on")
