"""The sweep over structures and values: losses, crossings and detection as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from loca_theory.dependence import draws as one
from loca_theory.dependence.design import Design
from loca_theory.dependence.null_law import compute_null, null_points
from loca_theory.dependence.predictions import Prediction
from loca_theory.dependence.tables import Cell, Row, crossing_rows, detection_rows, loss_rows
from loca_theory.expressivity import METHODS, MonteCarlo, Sampler, Series
from loca_theory.sweeps import DEFAULT_RUNNER, Point, Runner

# Draws of the low-rank loss of independent entries that the closed forms start from.
_LOSS_DRAWS = 400


class Study(Design):
    """A :class:`Design` that can be run; it takes the same arguments."""

    @property
    def version(self) -> str:
        """Version of the code and libraries that its stored blocks depend on."""
        return one.version()

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

    def _predictions(self, runner: Runner) -> list[Prediction]:
        p, q = self.p, self.q
        fewer = tuple(r - 1 for r in self.ranks if r > 1)
        series = [Series(METHODS["R"], p, q, self.ranks, Sampler.REDUCED)]
        if fewer:
            series.append(Series(METHODS["R"], p - 1, q - 1, fewer, Sampler.REDUCED))
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
