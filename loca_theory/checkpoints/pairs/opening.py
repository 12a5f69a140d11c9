"""Open a base and a fine-tune of any kind as a pair."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from loca_theory.checkpoints.adapters.increments import AdapterIncrements, is_adapter
from loca_theory.checkpoints.pairs.pair import CheckpointPair
from loca_theory.checkpoints.pairs.selection import Selection
from loca_theory.checkpoints.weights.memory import is_array
from loca_theory.checkpoints.weights.sources import Source, is_path, open_checkpoint, resolve
from loca_theory.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pathlib import Path


def open_pair(
    first: Source, second: Source | None = None, selection: Selection | None = None
) -> CheckpointPair:
    """Open a base and a fine-tune or an adapter side by side; or an adapter, or ΔW, alone."""
    chosen = selection or Selection()
    if is_array(first):
        # The caller has chosen this matrix, however small it is.
        chosen = replace(chosen, smallest_side=1)
    source = first if second is None else second
    folder, is_from_files = adapter_folder(source), is_path(first) and is_path(source)
    base = None if second is None else open_checkpoint(first)
    if folder is not None:
        # The adapter holds the whole increment, or computes it from the base.
        increments = AdapterIncrements(folder, base)
        return check_any(CheckpointPair(increments, None, chosen, is_from_files, adapted=base))
    tuned = open_checkpoint(source)
    if second is None and not is_array(first):
        what = f"{os.fspath(first)} is" if is_path(first) else "these weights are"
        msg = f"{what} not an adapter; pass the fine-tuned checkpoint as well"
        raise InvalidArgumentError(msg)
    return check_any(CheckpointPair(tuned, base, chosen, is_from_files))


def check_any(pair: CheckpointPair) -> CheckpointPair:
    """The pair, if it has a matrix, or one that is damaged."""
    if not pair.matrices and not any(one.damaged for one in pair.skipped):
        reasons = Counter(one.reason.partition(":")[0] for one in pair.skipped)
        why = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common(3))
        msg = f"no matrix is left to compare (left out: {why or 'all, by their names'}); "
        msg += 'change include="...", exclude="..." or max_size="..."'
        raise InvalidArgumentError(msg)
    return pair


def adapter_folder(source: Source) -> Path | None:
    """The folder of the adapter at a path, or of the only one below it; None if there is none."""
    if not is_path(source):
        return None
    folder = resolve(source)
    if is_adapter(folder) or not folder.is_dir():
        return folder if folder.is_dir() else None
    inside = sorted(one.name for one in folder.iterdir() if is_adapter(one))
    if inside and not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        if len(inside) == 1:
            return folder / inside[0]
        msg = f"{folder} holds adapters in folders of their own ({', '.join(inside)}); pass one of "
        msg += "these folders"
        raise InvalidArgumentError(msg)
    return None
