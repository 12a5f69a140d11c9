"""Name, shape and orientation of each weight that an adapter changes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from loca_theory.checkpoints.adapters.file import UNTOLD, AdapterFile, of_another_model, resized
from loca_theory.checkpoints.adapters.kinds import LOCA, LORA
from loca_theory.checkpoints.adapters.layers import AdaptedLayer, without_wrappers
from loca_theory.checkpoints.adapters.lora import lora_rank
from loca_theory.checkpoints.adapters.parameters import adapted_parameter, parameters_of
from loca_theory.checkpoints.adapters.weight_names import FUSED_ATTENTION
from loca_theory.checkpoints.names import kind_of, layer_of
from loca_theory.checkpoints.rows import Skipped
from loca_theory.checkpoints.weights.checkpoint import Entry, LeftOutError
from loca_theory.checkpoints.weights.conv1d import (
    has_conv1d_name,
    has_fused_attention,
    stores_transposed,
)

_MATRIX_DIMENSIONS = 2
# Names of embeddings. LoCA's file has p×q of their weights q×p, and not what their layers are.
_EMBEDDING = re.compile(r"embed(?!_out)(?!.*proj)|^w[pt]e$|^shared$")


def adapted_layers(file: AdapterFile) -> Iterator[AdaptedLayer | Skipped]:
    """The weights that an adapter changes, and those that are left out."""
    parameters, damaged = parameters_of(file), file.source.damaged
    for raw, keys in file.layers.items():
        module = without_wrappers(raw)
        name = parameters.get(raw, f"{module}.weight")
        try:
            if spoilt := [damaged[key] for key in keys.values() if key in damaged]:
                raise LeftOutError(spoilt[0], damaged=True)  # noqa: TRY301
            adapted = adapted_parameter if raw in parameters else _adapted_layer
            yield adapted(file, module, name, keys)
        except LeftOutError as error:
            yield Skipped(name, str(error), error.damaged)


def _adapted_layer(
    file: AdapterFile, module: str, name: str, keys: Mapping[str, str]
) -> AdaptedLayer:
    shape, can_turn = _shape(file, module, keys)
    if file.base is None:
        if shape is None:
            raise LeftOutError(UNTOLD)
        turned = can_turn and _guess_transposed(file, name)
        shape = shape[::-1] if turned else shape
        return AdaptedLayer(name, module, keys, shape, is_transposed=turned)

    def fits(weight: Entry) -> bool:
        return shape in (None, *_matrices_of(weight.shape, can_turn=can_turn))

    own = file.names.find(name, fits) or file.names.find(f"{module}.{FUSED_ATTENTION}", fits)
    if own is None:
        return _not_found(file, name, module, keys, shape)
    weight = file.base.entries[own].shape
    if len(weight) > _MATRIX_DIMENSIONS:
        turned = False
    elif shape is not None and shape != shape[::-1]:
        turned = weight != shape
    else:
        turned = can_turn and _guess_transposed(file, own)
    return AdaptedLayer(own, module, keys, weight, is_transposed=turned)


def _shape(
    file: AdapterFile, module: str, keys: Mapping[str, str]
) -> tuple[tuple[int, ...] | None, bool]:
    """Shape of ΔW as p×q if the adapter tells it, and whether the base may store it as q×p."""
    # The factors of ``use_bdlora`` have diagonal blocks, and only the blocks are stored.
    if file.kind.name != LORA or file.config.get("use_bdlora"):
        return file.own_shape(keys), True
    factors, rank = file.factors(keys), lora_rank(file.config, module)
    if rank != factors.rank:
        msg = f"the factors have rank {factors.rank}, and the configuration says {rank}"
        raise LeftOutError(msg, damaged=True)
    is_matrix = len(factors.shape) == _MATRIX_DIMENSIONS
    return factors.shape, is_matrix and not factors.is_embedding


def _not_found(
    file: AdapterFile,
    name: str,
    module: str,
    keys: Mapping[str, str],
    shape: tuple[int, ...] | None,
) -> AdaptedLayer:
    """A layer whose weight is not in the base, or not in a shape that fits."""
    own = file.names.any(name)
    turned = _is_loca_embedding(file, module)
    shape = shape[::-1] if turned and shape is not None else shape
    if file.base is not None and own in file.base.damaged:
        raise LeftOutError(file.base.damaged[own], damaged=True)
    if kind_of(name) != "embedding":
        raise of_another_model(name, shape)
    if own is None:
        # A head that is tied to the embedding is not in the base a second time.
        if file.kind.needs_weights or shape is None:
            msg = "not in the base checkpoint by this name: tied to another weight"
            raise LeftOutError(msg)
        return AdaptedLayer(name, module, keys, shape, is_transposed=turned)
    was = file.weights[own].shape
    if shape is None or was[1:] != shape[1:]:
        raise of_another_model(name, shape)
    raise LeftOutError(resized(was, shape))


def _guess_transposed(file: AdapterFile, name: str) -> bool:
    """Whether a weight is stored as q×p, where shapes do not tell.

    PEFT notes in ``fan_in_fan_out`` only whether the layer that it adapted last is a ``Conv1D``.
    A head comes last and is none.
    """
    if _is_loca_embedding(file, name.removesuffix(".weight")):
        return True
    flag = bool(file.config.get("fan_in_fan_out"))
    modules = [without_wrappers(raw) for raw in file.layers]
    if not any(has_conv1d_name(f"{module}.weight") for module in modules):
        return flag
    if not has_conv1d_name(name):
        return False
    if file.base is not None and has_fused_attention(file.base):
        return stores_transposed(file.base)
    return flag or any(layer_of(module) is None for module in modules)


def _is_loca_embedding(file: AdapterFile, module: str) -> bool:
    last = module.rpartition(".")[2]
    return file.kind.name == LOCA and _EMBEDDING.search(last) is not None


def _matrices_of(weight: tuple[int, ...], *, can_turn: bool) -> list[tuple[int, ...]]:
    """Shapes that the increment of a weight may have in an adapter; a kernel may be flattened."""
    if len(weight) > _MATRIX_DIMENSIONS:
        return [weight, (weight[0], math.prod(weight[1:]))]
    return [weight, weight[::-1]] if can_turn else [weight]
