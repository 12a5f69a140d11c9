"""Where the matrices of checkpoints are computed: on workers, or in this process."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from loca_theory.checkpoints.pairs.pair import CheckpointPair
from loca_theory.sweeps import Runner
from loca_theory.sweeps.runner import has_context

# Total number of entries below which no worker processes start: to import torch would take them
# longer than to compute anything.
_SMALL = 2**23
# Entries of a matrix that takes a second or more.
_LONG = 2**22


def placed(runner: Runner, pairs: Iterable[CheckpointPair], device: str) -> Runner:
    """The runner for the matrices of some pairs.

    Weights in memory are not copied to other processes. A GPU serves one matrix at a time unless
    the user asks for several processes. A small pair of files starts no processes on this machine;
    a cluster that the user chose is used for any pair of files.
    """
    pairs = list(pairs)
    if not all(one.is_from_files for one in pairs):
        return replace(runner, jobs=1)
    if has_context():
        return runner
    entries = sum(_sizes(pairs))
    is_here = entries < _SMALL or (device != "cpu" and runner.jobs == -1)
    return replace(runner, jobs=1) if is_here else runner


def takes_seconds(pairs: Iterable[CheckpointPair]) -> bool:
    """Whether a matrix of the pairs takes seconds in the mean."""
    sizes = _sizes(pairs)
    return bool(sizes) and sum(sizes) / len(sizes) >= _LONG


def _sizes(pairs: Iterable[CheckpointPair]) -> list[int]:
    return [math.prod(one.shape) for pair in pairs for one in pair.matrices.values()]
