"""Open a base and fine-tunes of any kind as pairs, under the names of their model."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path, PurePath

import torch

from loca_theory.checkpoints.change.adapter.increments import AdapterIncrements
from loca_theory.checkpoints.change.adapter.layers import AnotherModelError
from loca_theory.checkpoints.change.adapter.stored import FILES as ADAPTER_FILES
from loca_theory.checkpoints.change.adapter.stored import (
    StoredAdapter,
    adapter_in_folder,
    adapter_in_memory,
    base_weights,
    has_adapters,
)
from loca_theory.checkpoints.change.pair import CheckpointPair
from loca_theory.checkpoints.change.selection import MatrixSelection
from loca_theory.checkpoints.model.loading import views_of
from loca_theory.checkpoints.model.model import Model
from loca_theory.checkpoints.source.checkpoint import Checkpoint
from loca_theory.checkpoints.source.memory import is_array
from loca_theory.checkpoints.source.open import (
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
    first: Source,
    second: Source | None = None,
    selection: MatrixSelection | None = None,
    module: torch.nn.Module | None = None,
) -> CheckpointPair:
    """Open a base and a fine-tune or an adapter side by side; or an adapter, or ΔW, alone.

    Both have the names of the model that they are loaded into: of the module, or of what their
    configurations and tensors tell. The matrices of an adapter have the base's names.
    """
    chosen = selection or MatrixSelection()
    if is_array(first):
        # The caller has chosen this matrix, however small it is.
        chosen = replace(chosen, smallest_side=1)
    source = first if second is None else second
    adapter, is_from_files = stored_adapter(source), is_path(first) and is_path(source)
    if adapter is not None:
        # A model in memory with an adapter has the base's weights as well.
        has_base = second is not None or has_adapters(first)
        base = open_base(first) if has_base else None
        increments, model = _of_adapter(adapter, base, module)
        is_from_files = is_from_files and not increments.is_converted
        return CheckpointPair(increments, model, None, chosen, is_from_files)
    tuned = open_checkpoint(source)
    if second is None and is_array(first):
        shapes = {name: entry.shape for name, entry in tuned.entries.items()}
        return CheckpointPair(tuned, Model.of_tensors(shapes, "a matrix"), None, chosen)
    if second is None:
        title = f"{os.fspath(first)} is" if is_path(first) else "these weights are"
        raise InvalidArgumentError(
            f"{title} not an adapter; pass the fine-tuned checkpoint as well"
        )
    base = tuned if first is second else open_base(first)
    for side in (tuned, base):
        _check_has_no_adapter(side)
    tuned, base, model = views_of(tuned, base, module)
    return CheckpointPair(tuned, model, base, chosen, is_from_files)


def _check_has_no_adapter(side: Checkpoint) -> None:
    """Refuse the state dict of a model that PEFT has put adapters into."""
    if name := next((name for name in side.names if ".base_layer." in name), None):
        raise InvalidArgumentError(
            f"the state dict is of a model with an adapter in it ({name}); pass the model itself, "
            "or merge the adapter first"
        )


def _of_adapter(
    adapter: StoredAdapter, base: Checkpoint | None, module: torch.nn.Module | None
) -> tuple[AdapterIncrements, Model]:
    """The increments of an adapter, and the model that it adapts."""
    if base is None:
        increments = AdapterIncrements(adapter)
        shapes = {
            increments.own_name(name): entry.shape for name, entry in increments.entries.items()
        }
        return increments, Model.of_tensors(shapes, "an adapter without its base")
    view, _, model = views_of(base, base, module)
    try:
        increments = AdapterIncrements(adapter, view, model)
    except AnotherModelError:
        if not model.is_known:
            raise
        # It has the names of an older version of the model.
        increments = AdapterIncrements(adapter, view, model, is_converted=True)
    if {increments.own_name(name) for name in increments.entries} <= model.shapes.keys():
        return increments, model
    # It was trained in a model whose names have a prefix, or lack one.
    shapes = {increments.matched.first_name(name): shape for name, shape in model.shapes.items()}
    return increments, Model.of_tensors(shapes, model.unknown or "adapted in another model")


def adapter_folder(source: Source) -> Path | None:
    """The folder of the adapter at a path, or of the only one below it; None if there is none.

    A model that an adapter was merged into is none, even if the adapter's configuration is there.
    """
    if not is_path(source):
        return None
    folder = resolve(source)
    is_adapter = any((folder / name).is_file() for name in ADAPTER_FILES)
    if (folder / ADAPTER_CONFIG).is_file() and (is_adapter or not _holds_model(folder)):
        return folder
    inside = sorted(path.parent for path in folder.glob(f"*/{ADAPTER_CONFIG}"))
    if not inside or any(folder.glob("*.safetensors")) or any(folder.glob("*.bin")):
        return None
    if len(inside) > 1:
        names = ", ".join(path.name for path in inside)
        raise InvalidArgumentError(
            f"{folder} holds adapters in folders of their own ({names}); pass one of these folders"
        )
    return inside[0]


def _holds_model(folder: Path) -> bool:
    weights = map(PurePath, (SAFETENSORS, TORCH))
    return any(any(folder.glob(f"{file.stem}*{file.suffix}")) for file in weights)


def stored_adapter(source: Source) -> StoredAdapter | None:
    """The adapter in a folder or in a model in memory; None if there is none."""
    if has_adapters(source):
        return adapter_in_memory(source)
    folder = adapter_folder(source)
    return None if folder is None else adapter_in_folder(folder)


def open_base(source: Source) -> Checkpoint:
    """Open a base, without the adapters that a model in memory has."""
    if is_path(source) and adapter_folder(source) and not _holds_model(resolve(source)):
        msg = f"{os.fspath(source)} is an adapter and cannot be the base; name the base first and "
        raise InvalidArgumentError(msg + "the adapter after it")
    return open_checkpoint(base_weights(source) if has_adapters(source) else source)


def open_fine_tunes(
    base: Source, tuned: Sequence[Source], selection: MatrixSelection
) -> dict[str, CheckpointPair]:
    """Open every fine-tune beside the base."""
    if len(tuned) < 2:
        return {ALONE: open_pair(base, *tuned, selection=selection)}
    opened = (open_pair(base, source, selection) for source in tuned)
    return dict(zip(labels(tuned), opened, strict=True))


def labels(sources: Sequence[Source]) -> list[str]:
    """Short and different labels: the last parts of paths, as many as are needed.

    >>> labels(["runs/a/checkpoint-100", "runs/b/checkpoint-100"])
    ['a/checkpoint-100', 'b/checkpoint-100']
    """
    paths = [
        PurePath(os.path.normpath(source) if is_path(source) else f"fine-tune {number}")
        for number, source in enumerate(sources, 1)
    ]
    parts = [_parts(path) for path in paths]
    if len(set(parts)) < len(parts):  # two files of one folder, perhaps
        parts = [path.parts for path in paths]
    if repeated := [path for path, times in Counter(parts).items() if times > 1]:
        raise InvalidArgumentError(
            f"{PurePath(*repeated[0])} is given twice; give every fine-tune once"
        )
    ends = ([PurePath(*path[-length:]).as_posix() for path in parts] for length in count(1))
    return next(names for names in ends if len(set(names)) == len(names))


def _parts(path: PurePath) -> tuple[str, ...]:
    """The parts of a path that tell a fine-tune from others."""
    path = PurePath(str(path).removeprefix("hub:"))
    if path.suffix not in (".safetensors", ".bin", ".pt", ".pth"):
        return path.parts
    is_generic = path.stem in _GENERIC and len(path.parts) > 1
    return path.parts[:-1] if is_generic else (*path.parts[:-1], path.stem)
