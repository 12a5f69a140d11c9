"""The sweep over structures and values: losses, crossings and detection as tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loca_theory.dependence import draws as one
from loca_theory.dependence.null_law import compute_null, null_points
from loca_theory.dependence.predictions import Prediction
from loca_theory.dependence.protocols import Protocol
from loca_theory.dependence.structures import STRUCTURES, find_structure
from loca_theory.dependence.tables import Cell, Row, crossing_rows, detection_rows, loss_rows
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import Budget, MonteCarlo, Sampler, Series
from loca_theory.sweeps import DEFAULT_RUNNER, Point, Runner

DEFAULT_GRIDS = {
    "rho": tuple(round(0.01 * i, 10) for i in range(41)),
    "share": tuple(round(0.02 * i, 10) for i in range(21)),
    "exponent": tuple(round(0.1 * i, 10) for i in range(16)),
}
# The values at which the paper reports its statistic; for other parameters, a spread.
_DETECTION_VALUES = {
    "rho": (0.09, 0.14, 0.17, 0.19),
    "share": (0.01, 0.02, 0.05, 0.1),
    "exponent": (0.1, 0.2, 0.5, 1.0),
}
# A critical value rests on at least so many null draws beyond it.
_FEWEST_BEYOND = 20
# Draws of the low-rank loss of independent entries that the closed forms start from.
_LOSS_DRAWS = 400


@dataclass(frozen=True)
class Study:
    """What to sweep.

    Attributes:
        p: Rows.
        q: Columns.
        ranks: LoRA ranks.
        structures: Names of structures.
        protocols: Protocols.
        grids: Values of each parameter (``rho``, ``share``, ``exponent``), increasing.
        draws: Draws of each structure, the same ones at every value; at least 2.
        seed: Root seed.
        level: Size of the tests.
        null_draws: Draws of the statistics' law under independence.
        spikes: Number of equally strong directions of ``spiked``.

    Raises:
        InvalidArgumentError: a name is unknown, a rank does not fit, or a value has no law.
    """

    p: int
    q: int
    ranks: tuple[int, ...]
    structures: tuple[str, ...] = tuple(STRUCTURES)
    protocols: tuple[Protocol, ...] = tuple(Protocol)
    grids: dict[str, tuple[float, ...]] | None = None
    draws: int = 100
    seed: int = 0
    level: float = 0.05
    null_draws: int = 4000
    spikes: int = 1

    def __post_init__(self) -> None:
        if self.draws < 2:
            msg = f"a study needs at least 2 draws for its standard errors, not {self.draws}"
            raise InvalidArgumentError(msg)
        if not 0 < self.level < 1:
            msg = f"the level must lie between 0 and 1, and is {self.level}"
            raise InvalidArgumentError(msg)
        for name in self.structures:
            find_structure(name, self.spikes)
            for value in self._checked_grid(name):
                find_structure(name, self.spikes).check(self.p, self.q, value)
        for r in self.ranks:
            Budget(self.p, self.q, r)
        for repeated in (self.structures, self.protocols, self.ranks):
            if not repeated or len(set(repeated)) < len(repeated):
                msg = (
                    f"structures, protocols and ranks are named once each, at least one: {repeated}"
                )
                raise InvalidArgumentError(msg)
        if self.level * self.null_draws < _FEWEST_BEYOND:
            msg = f"a critical value at level {self.level:g} needs at least "
            msg += f"{math.ceil(_FEWEST_BEYOND / self.level)} null draws, not {self.null_draws}"
            raise InvalidArgumentError(msg)

    def _checked_grid(self, structure: str) -> tuple[float, ...]:
        grid = self.grid(structure)
        if not grid or any(a >= b for a, b in pairwise(grid)):
            msg = f"the values of {STRUCTURES[structure].parameter} must increase, "
            msg += f"and are {', '.join(f'{value:g}' for value in grid) or 'none'}"
            raise InvalidArgumentError(msg)
        return grid

    def grid(self, structure: str) -> tuple[float, ...]:
        """The values of a structure's parameter."""
        parameter = STRUCTURES[structure].parameter
        return (self.grids or {}).get(parameter, DEFAULT_GRIDS[parameter])

    @property
    def version(self) -> str:
        """Version of the code and libraries that its stored blocks depend on."""
        return one.version()

    def describe(self) -> dict[str, Any]:
        """The expanded grid and options as plain data, for a manifest."""
        return {
            "shape": [self.p, self.q],
            "ranks": list(self.ranks),
            "structures": {name: list(self.grid(name)) for name in self.structures},
            "protocols": [protocol.value for protocol in self.protocols],
            "draws": self.draws,
            "level": self.level,
            "null_draws": self.null_draws,
            "spikes": self.spikes,
        }

    def run(self, runner: Runner = DEFAULT_RUNNER) -> dict[str, list[Row]]:
        """Compute everything.

        Args:
            runner: How.

        Returns:
            ``rows``, ``crossings`` and ``detection``.

        Raises:
            ResourceError: workers or the store fail; what is finished is in the store.
        """
        with runner.connected():
            return self._run(runner)

    def _run(self, runner: Runner) -> dict[str, list[Row]]:
        cells = [(name, value) for name in self.structures for value in self._all_values(name)]
        blocks = self._blocks(cells, runner)
        predictions = self._predictions(runner)
        nulls = {centred: self._null(runner, centred) for centred in (False, True)}
        return {
            "rows": [
                row
                for name in self.structures
                for row in loss_rows(self, name, blocks, predictions)
            ],
            "crossings": crossing_rows(
                self, blocks, predictions, lambda cells: self._blocks(cells, runner)
            ),
            "detection": detection_rows(self, blocks, nulls),
        }

    def _all_values(self, name: str) -> list[float]:
        return sorted({*self.grid(name), *self.detection_values(name)})

    def detection_values(self, name: str) -> list[float]:
        """The values of a structure's parameter at which the statistics are compared."""
        grid = self.grid(name)
        wanted = _DETECTION_VALUES[STRUCTURES[name].parameter]
        return [v for v in wanted if grid[0] <= v <= grid[-1]] or [grid[-1]]

    def _points(self, name: str, value: float) -> list[Point]:
        with_centred = value in self.detection_values(name)
        return [
            one.point(
                name,
                value,
                self.p,
                self.q,
                self.ranks,
                self.seed,
                (start, min(start + one.BLOCK, self.draws)),
                with_centred=with_centred,
                spikes=self.spikes,
            )
            for start in range(0, self.draws, one.BLOCK)
        ]

    def _blocks(self, cells: Sequence[Cell], runner: Runner) -> dict[Cell, one.Blocks]:
        points = [self._points(*cell) for cell in cells]
        # The same draws at all values one after the other, as the draws are made once a block.
        order = sorted(
            ((i, j) for i, block in enumerate(points) for j in range(len(block))),
            key=lambda place: (cells[place[0]][0], place[1], place[0]),
        )
        results = runner.run([points[i][j] for i, j in order], one.compute)
        placed = dict(zip(order, results, strict=True))
        return {
            cell: one.Blocks([placed[i, j] for j in range(len(points[i]))])
            for i, cell in enumerate(cells)
        }

    @cached_property
    def budgets(self) -> list[Budget]:
        """The budget of each rank."""
        return [Budget(self.p, self.q, r) for r in self.ranks]

    def _predictions(self, runner: Runner) -> list[Prediction]:
        p, q = self.p, self.q
        fewer = tuple(r - 1 for r in self.ranks if r > 1)
        series = [Series("R", p, q, self.ranks, Sampler.REDUCED)]
        if fewer:
            series.append(Series("R", p - 1, q - 1, fewer, Sampler.REDUCED))
        settings = MonteCarlo(_LOSS_DRAWS, self.seed)
        losses, *rest = settings.run(series, replace(runner, progress=None))
        without = dict(zip(fewer, rest[0], strict=True)) if fewer else {}
        return [
            Prediction(
                budget,
                loss.error,
                without[budget.r - 1].error if budget.r > 1 else 1.0,
                self.spikes,
            )
            for budget, loss in zip(self.budgets, losses, strict=True)
        ]

    def _null(self, runner: Runner, is_centred: bool) -> dict[str, NDArray[np.float64]]:
        points = null_points(self.p - is_centred, self.q, self.null_draws, self.seed)
        blocks = runner.run(points, compute_null)
        return {name: np.concatenate([one[name] for one in blocks]) for name in blocks[0]}
