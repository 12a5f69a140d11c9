"""Matrices of checkpoints as cells of a sweep, computed on workers or in this process."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, TypeVar

from loca_theory.checkpoints.change.pair import CheckpointPair
from loca_theory.checkpoints.source.checkpoint import DamagedError, LeftOutError, Skipped, reason_of
from loca_theory.sweeps import Runner
from loca_theory.sweeps.store import Cell
from loca_theory.sweeps.workers import has_context

# Total number of entries below which no worker processes start: to import torch would take them
# longer than to compute anything.
_SMALL = 2**23
# Entries of a matrix that takes a second or more.
_LONG = 2**22


@dataclass(frozen=True)
class MatrixCell(Cell):
    """What is computed of one matrix.

    Attributes:
        name: Name of the matrix.
        tuned: Labels of the fine-tunes that it is computed from.
        entries: Digests of what their increments are computed from, if the result is stored.
    """

    packages: ClassVar[tuple[str, ...]] = (
        "loca_theory.adapters",
        "loca_theory.checkpoints",
        "loca_theory.expressivity",
        "loca_theory.increments",
        "loca_theory.locations",
        "loca_theory.rounding",
        "loca_theory.sweeps.random",
        "loca_theory.transforms",
    )

    name: str
    tuned: tuple[str, ...] = field(default=("",), kw_only=True)
    entries: tuple[str, ...] | None = field(default=None, kw_only=True)


_Cell = TypeVar("_Cell", bound=MatrixCell)
Pairs = Mapping[str, CheckpointPair]
"""Pairs of checkpoints by label of the fine-tune."""


@dataclass
class Task:
    """The computation of many matrices.

    Attributes:
        pairs: The pairs of checkpoints.
        device: Where the linear algebra runs.
        runner: Runs the cells.
        skipped: What was left out.
    """

    pairs: Pairs
    device: str
    runner: Runner
    skipped: list[Skipped] = field(default_factory=list)

    def __post_init__(self) -> None:
        pairs = self.pairs.values()
        entries = [math.prod(one.shape) for pair in pairs for one in pair.matrices.values()]
        # A GPU serves one matrix at a time unless the user asks for several processes.
        is_small = sum(entries) < _SMALL or (self.device != "cpu" and self.runner.jobs == -1)
        # Weights in memory are not copied to other processes. A cluster that the user chose is
        # used for any pair of files.
        is_from_files = all(one.is_from_files for one in pairs)
        if not is_from_files or (is_small and not has_context()):
            self.runner = replace(self.runner, jobs=1)
        self.is_long = bool(entries) and sum(entries) / len(entries) >= _LONG

    def run(
        self,
        cells: Sequence[_Cell],
        compute: Callable[[_Cell, Pairs], dict[str, Any]],
        *,
        is_shown: bool = True,
        is_stored: bool = True,
    ) -> list[tuple[_Cell, dict[str, Any]]]:
        """The cells that can be computed, with their results; the others are skipped."""
        runner = self.runner if is_shown else replace(self.runner, progress=None)
        runner = runner if is_stored else replace(runner, store=None)
        if runner.store is not None:
            cells = [self._with_entries(one) for one in cells]
        evaluate = partial(_evaluated, compute=compute, pairs=self.pairs)
        found = []
        results = runner.run(cells, evaluate, is_long=self.is_long)
        for cell, result in zip(cells, results, strict=True):
            if "skipped" not in result:
                found.append((cell, result))
            elif (one := Skipped(**result["skipped"])) not in self.skipped:
                self.skipped.append(one)
        return found

    def _with_entries(self, cell: _Cell) -> _Cell:
        """A cell with the digests that a store needs; none of a matrix that cannot be read."""
        if cell.is_storable:
            # The computation reports what is damaged.
            with suppress(DamagedError):
                digests = [self.pairs[label].fingerprint(cell.name) for label in cell.tuned]
                return replace(cell, entries=tuple(digests))
        return cell


def _evaluated(
    cell: _Cell, compute: Callable[[_Cell, Pairs], dict[str, Any]], pairs: Pairs
) -> dict[str, Any]:
    """The result of a cell, or why there is none."""
    try:
        return compute(cell, pairs)
    except (LeftOutError, DamagedError) as error:
        tuned, reason = cell.tuned[0], reason_of(error)
        row = Skipped.of(cell.name, reason, damaged=error.damaged, tuned=tuned)
        return {"skipped": asdict(row)}
