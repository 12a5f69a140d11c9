"""Open a base and fine-tunes of any kind as pairs, under the names of files or of their model."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path, PurePath
from typing import NamedTuple

import torch

from loca_theory.checkpoints.adapters.increments import AdapterIncrements
from loca_theory.checkpoints.adapters.layers import AnotherModelError
from loca_theory.checkpoints.adapters.stored import FILES as ADAPTER_FILES
from loca_theory.checkpoints.adapters.stored import (
    StoredAdapter,
    adapter_in_folder,
    adapter_in_memory,
    base_weights,
    has_adapters,
)
from loca_theory.checkpoints.pairs.as_loaded import AsLoaded, as_loaded
from loca_theory.checkpoints.pairs.linear_layers import Layer, end_others, layers_of, module_names
from loca_theory.checkpoints.pairs.loaded_model import LoadedModel
from loca_theory.checkpoints.pairs.pair import CheckpointPair
from loca_theory.checkpoints.settings import Selection
from loca_theory.checkpoints.weights.checkpoint import Checkpoint, is_array
from loca_theory.checkpoints.weights.sources import (
    ADAPTER_CONFIG,
    SAFETENSORS,
    TORCH,
    Source,
    is_path,
    open_checkpoint,
    resolve,
)
from loca_theory.errors import InvalidArgumentError

ALONE = "tuned"
"""Label of the fine-tune if there is only one."""

# Names of files that say nothing about the fine-tune: the folder's name is used.
_GENERIC = {"model", "pytorch_model", "adapter_model"}


def open_pair(
    first: Source, second: Source | None = None, selection: Selection | None = None
) -> CheckpointPair:
    """Open a base and a fine-tune or an adapter side by side; or an adapter, or ΔW, alone."""
    chosen = selection or Selection()
    if is_array(first):
        # The caller has chosen this matrix, however small it is.
        chosen = replace(chosen, smallest_side=1)
    source = first if second is None else second
    adapter, is_from_files = stored_adapter(source), is_path(first) and is_path(source)
    # A model in memory with an adapter has the base's weights as well.
    has_base = second is not None or has_adapters(first)
    base = open_base(first) if has_base else None
    if adapter is not None:
        # The adapter holds the whole increment, or computes it from the base.
        base = base or Checkpoint()
        try:
            increments = AdapterIncrements(adapter, base)
        except AnotherModelError:
            # The model of the base, if it is known, may have other names than its files.
            view, *_ = as_loaded(base, base)
            increments = AdapterIncrements(adapter, view)
        return CheckpointPair(increments, None, chosen, is_from_files)
    tuned = open_checkpoint(source)
    if second is None and not is_array(first):
        what = f"{os.fspath(first)} is" if is_path(first) else "these weights are"
        msg = f"{what} not an adapter; pass the fine-tuned checkpoint as well"
        raise InvalidArgumentError(msg)
    return CheckpointPair(tuned, base, chosen, is_from_files)


def adapter_folder(source: Source) -> Path | None:
    """The folder of the adapter at a path, or of the only one below it; None if there is none.

    A model that an adapter was merged into is none, even if the adapter's configuration is there.
    """
    if not is_path(source):
        return None
    folder = resolve(source)
    weights = map(PurePath, (SAFETENSORS, TORCH))
    is_model = any(any(folder.glob(f"{one.stem}*{one.suffix}")) for one in weights)
    is_adapter = any((folder / name).is_file() for name in ADAPTER_FILES)
    if (folder / ADAPTER_CONFIG).is_file() and (is_adapter or not is_model):
        return folder
    inside = sorted(one.parent for one in folder.glob(f"*/{ADAPTER_CONFIG}"))
    if not inside or any(folder.glob("*.safetensors")) or any(folder.glob("*.bin")):
        return None
    if len(inside) > 1:
        names = ", ".join(one.name for one in inside)
        msg = f"{folder} holds adapters in folders of their own ({names}); pass one of "
        raise InvalidArgumentError(msg + "these folders")
    return inside[0]


def stored_adapter(source: Source) -> StoredAdapter | None:
    """The adapter in a folder or in a model in memory; None if there is none."""
    if has_adapters(source):
        return adapter_in_memory(source)
    folder = adapter_folder(source)
    return None if folder is None else adapter_in_folder(folder)


def open_base(source: Source) -> Checkpoint:
    """Open a base, without the adapters that a model in memory has."""
    return open_checkpoint(base_weights(source) if has_adapters(source) else source)


def open_fine_tunes(
    base: Source, tuned: Sequence[Source], selection: Selection
) -> dict[str, CheckpointPair]:
    """Open every fine-tune beside the base."""
    if len(tuned) < 2:
        return {ALONE: open_pair(base, *tuned, selection=selection)}
    opened = (open_pair(base, one, selection) for one in tuned)
    return dict(zip(labels(tuned), opened, strict=True))


def labels(sources: Sequence[Source]) -> list[str]:
    """Short and different labels: the last parts of paths, as many as are needed.

    >>> labels(["runs/a/checkpoint-100", "runs/b/checkpoint-100"])
    ['a/checkpoint-100', 'b/checkpoint-100']
    """
    paths = [
        PurePath(os.path.normpath(one) if is_path(one) else f"fine-tune {number}")
        for number, one in enumerate(sources, 1)
    ]
    parts = [_parts(one) for one in paths]
    if len(set(parts)) < len(parts):  # two files of one folder, perhaps
        parts = [one.parts for one in paths]
    if repeated := [one for one, times in Counter(parts).items() if times > 1]:
        msg = f"{PurePath(*repeated[0])} is given twice; give every fine-tune once"
        raise InvalidArgumentError(msg)
    ends = ([PurePath(*one[-length:]).as_posix() for one in parts] for length in count(1))
    return next(found for found in ends if len(set(found)) == len(found))


def _parts(path: PurePath) -> tuple[str, ...]:
    """The parts of a path that tell a fine-tune from others."""
    path = PurePath(str(path).removeprefix("hub:"))
    if path.suffix not in (".safetensors", ".bin", ".pt", ".pth"):
        return path.parts
    is_generic = path.stem in _GENERIC and len(path.parts) > 1
    return path.parts[:-1] if is_generic else (*path.parts[:-1], path.stem)


def open_model_pair(
    base: Source, tuned: Source, selection: Selection, module: torch.nn.Module | None
) -> tuple[CheckpointPair, LoadedModel | None, str | None]:
    """Open a base and a fine-tune under the names of their model.

    Without a model the names are those of the checkpoints. An adapter has the names of the model
    that it was trained in. The last value says why names are not checked; it is usually None.
    """
    if has_adapters(tuned) or adapter_folder(tuned) is not None:
        return open_pair(base, tuned, selection), None, None
    side = open_checkpoint(tuned)
    sides = side, side if base is tuned else open_base(base)
    mine, other, model, unchecked = as_loaded(*sides, module)
    if model is None and module is not None:
        raise InvalidArgumentError(unchecked)
    is_from_files = is_path(tuned) and is_path(base)
    return CheckpointPair(mine, other, selection, is_from_files), model, unchecked


class ModelLayers(NamedTuple):
    """The matrices of a pair as layers of the model that the fine-tune is loaded into.

    Attributes:
        layers: Each matrix of the pair.
        has_ambiguous_names: Whether PEFT may take a list of the modules to fit others as well. The
            names in an adapter do not show which other modules the model has.
        unchecked: What of the names is not checked, and why; usually None.
    """

    layers: list[Layer]
    has_ambiguous_names: bool
    unchecked: str | None


def model_layers(pair: CheckpointPair) -> ModelLayers:
    """The layers of a pair that has the names of the checkpoints."""
    model = names = unchecked = None
    # An adapter has the names of its model.
    if pair.base is not None:
        view, _, model, unchecked = as_loaded(pair.tuned, pair.base)
        names = view.renamed if isinstance(view, AsLoaded) else None
    found = layers_of(pair, model, names)
    own = {one.module for one in found}
    is_ambiguous = pair.base is None or end_others(own, module_names(pair, model))
    return ModelLayers(found, is_ambiguous, unchecked)
