"""Several fine-tunes of one base: labels, and one pair of checkpoints each."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath

from loca_theory.checkpoints.pairs.opening import open_pair
from loca_theory.checkpoints.pairs.pair import CheckpointPair
from loca_theory.checkpoints.pairs.selection import Selection
from loca_theory.checkpoints.weights.sources import Source, is_path
from loca_theory.errors import InvalidArgumentError

ALONE = "tuned"
"""Label of the fine-tune if there is only one."""

# Names of files that say nothing about the fine-tune: the folder's name is used.
_GENERIC = {"model", "pytorch_model", "adapter_model"}


def open_fine_tunes(
    base: Source, tuned: Sequence[Source], selection: Selection
) -> dict[str, CheckpointPair]:
    """Open every fine-tune beside the base."""
    if len(tuned) < 2:
        return {ALONE: open_pair(base, *tuned, selection=selection)}
    return {
        label: open_pair(base, one, selection)
        for label, one in zip(labels(tuned), tuned, strict=True)
    }


def labels(sources: Sequence[Source]) -> list[str]:
    """Short and different labels: the last parts of paths, as many as are needed.

    >>> labels(["runs/a/checkpoint-100", "runs/b/checkpoint-100"])
    ['a/checkpoint-100', 'b/checkpoint-100']
    """
    parts = [_parts(one, number) for number, one in enumerate(sources, 1)]
    if len(set(parts)) < len(parts):  # two files of one folder, perhaps
        parts = [
            PurePath(os.path.normpath(os.fspath(one))).parts if is_path(one) else own
            for one, own in zip(sources, parts, strict=True)
        ]
    if repeated := [one for one, count in Counter(parts).items() if count > 1]:
        msg = f"{'/'.join(repeated[0])} is given twice; give every fine-tune once"
        raise InvalidArgumentError(msg)
    for length in range(1, max(map(len, parts)) + 1):
        found = ["/".join(one[-length:]) for one in parts]
        if len(set(found)) == len(found):
            return found
    return ["/".join(one) for one in parts]


def _parts(source: Source, number: int) -> tuple[str, ...]:
    if not is_path(source):
        return (f"fine-tune {number}",)
    path = PurePath(os.path.normpath(os.fspath(source).removeprefix("hub:")))
    if path.suffix not in (".safetensors", ".bin", ".pt", ".pth"):
        return path.parts
    is_generic = path.stem in _GENERIC and len(path.parts) > 1
    return path.parts[:-1] if is_generic else (*path.parts[:-1], path.stem)
