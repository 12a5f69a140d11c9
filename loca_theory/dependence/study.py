"""The sweep over structures and values: losses, crossings and detection as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from loca_theory.dependence import draws as one
from loca_theory.dependence.crossings import Crossing, Gap, find_crossings
from loca_theory.dependence.detection import STATISTICS, upper_critical_value
from loca_theory.dependence.null_law import (
    compute_null,
    low_frequency_critical_value,
    null_points,
)
from loca_theory.dependence.predictions import Prediction
from loca_theory.dependence.protocols import Protocol
from loca_theory.dependence.structures import STRUCTURES
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import Budget, MonteCarlo, Sampler, Series, exact_error
from loca_theory.sweeps import Cluster, Point, ResultStore, run

Row = dict[str, Any]
Progress = Callable[[int, int], None]
Cell = tuple[str, float]

ROW_COLUMNS = (
    "structure", "parameter", "value", "protocol", "K", "p", "q", "r", "curve", "error",
    "standard_error", "draws", "closed_form",
)  # fmt: skip
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
        jobs: Worker processes; −1 for one a core.
        cluster: Where workers are.

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
    jobs: int = -1
    cluster: Cluster = field(default_factory=Cluster)

    def __post_init__(self) -> None:
        if self.draws < 2:
            msg = f"a study needs at least 2 draws for its standard errors, not {self.draws}"
            raise InvalidArgumentError(msg)
        if not 0 < self.level < 1:
            msg = f"the level must lie between 0 and 1, and is {self.level}"
            raise InvalidArgumentError(msg)
        for name in self.structures:
            if name not in STRUCTURES:
                msg = f"unknown structure {name!r}; choose from {', '.join(STRUCTURES)}"
                raise InvalidArgumentError(msg)
            for value in self.grid(name):
                STRUCTURES[name].check(self.p, self.q, value)
        for r in self.ranks:
            Budget(self.p, self.q, r)

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
        }

    def run(
        self, *, store: ResultStore | None = None, progress: Progress | None = None
    ) -> dict[str, list[Row]]:
        """Compute everything.

        Args:
            store: Where finished blocks are kept.
            progress: Called with (finished, total) blocks of the sweep.

        Returns:
            ``rows``, ``crossings`` and ``detection``.
        """
        cells = [(name, value) for name in self.structures for value in self._all_values(name)]
        blocks = self._blocks(cells, store, progress)
        predictions = self._predictions(store)
        return {
            "rows": [
                row for name in self.structures for row in self._rows(name, blocks, predictions)
            ],
            "crossings": self._crossings(blocks, predictions, store),
            "detection": self._detection(blocks, store),
        }

    def _all_values(self, name: str) -> list[float]:
        return sorted({*self.grid(name), *self._detection_values(name)})

    def _detection_values(self, name: str) -> list[float]:
        grid = self.grid(name)
        wanted = _DETECTION_VALUES[STRUCTURES[name].parameter]
        return [v for v in wanted if grid[0] <= v <= grid[-1]] or [grid[-1]]

    def _points(self, name: str, value: float) -> list[Point]:
        with_centred = value in self._detection_values(name)
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
            )
            for start in range(0, self.draws, one.BLOCK)
        ]

    def _blocks(
        self,
        cells: Sequence[Cell],
        store: ResultStore | None,
        progress: Progress | None = None,
    ) -> dict[Cell, one.Blocks]:
        points = [self._points(*cell) for cell in cells]
        # The same draws at all values one after the other, as the draws are made once a block.
        order = sorted(
            ((i, j) for i, block in enumerate(points) for j in range(len(block))),
            key=lambda place: (cells[place[0]][0], place[1], place[0]),
        )
        results = run(
            [points[i][j] for i, j in order],
            one.compute,
            store=store,
            jobs=self.jobs,
            cluster=self.cluster,
            progress=progress,
        )
        placed = dict(zip(order, results, strict=True))
        return {
            cell: one.Blocks([placed[i, j] for j in range(len(points[i]))])
            for i, cell in enumerate(cells)
        }

    @cached_property
    def _budgets(self) -> list[Budget]:
        return [Budget(self.p, self.q, r) for r in self.ranks]

    def _predictions(self, store: ResultStore | None) -> list[Prediction]:
        p, q = self.p, self.q
        fewer = tuple(r - 1 for r in self.ranks if r > 1)
        series = [Series("R", p, q, self.ranks, Sampler.REDUCED)]
        if fewer:
            series.append(Series("R", p - 1, q - 1, fewer, Sampler.REDUCED))
        settings = MonteCarlo(_LOSS_DRAWS, self.seed, jobs=self.jobs, cluster=self.cluster)
        losses, *rest = settings.run(series, store=store)
        without = dict(zip(fewer, rest[0], strict=True)) if fewer else {}
        return [
            Prediction(budget, loss.error, without[budget.r - 1].error if budget.r > 1 else 1.0)
            for budget, loss in zip(self._budgets, losses, strict=True)
        ]

    def _rows(
        self, name: str, blocks: dict[Cell, one.Blocks], predictions: Sequence[Prediction]
    ) -> list[Row]:
        rows = []
        for value in self.grid(name):
            found = {curve: blocks[name, value].losses(curve) for curve in one.SIMULATED}
            for protocol in self.protocols:
                same = protocol is Protocol.SAME_DRAW
                simulated = one.SIMULATED if same else ("R",)
                # Random places keep their share of whatever energy there is.
                fixed = ("U",) if same else ("D", "M1", "M2", "U")
                for i, budget in enumerate(self._budgets):
                    cells: list[tuple[str, float, float, int | None, float | None]] = [
                        (
                            curve,
                            float(found[curve][0][i]),
                            float(found[curve][1][i]),
                            self.draws,
                            predictions[i].error(name, curve, value),
                        )
                        for curve in simulated
                    ]
                    for curve in fixed:
                        error = exact_error(curve, budget)
                        cells.append((curve, error, 0.0, None, error))
                    rows += [
                        {
                            **self._labels(name, protocol),
                            "value": value,
                            "K": self.p if self.p == self.q else None,
                            "p": self.p,
                            "q": self.q,
                            "r": budget.r,
                            "curve": curve,
                            "error": error,
                            "standard_error": standard_error,
                            "draws": draws,
                            "closed_form": closed_form,
                        }
                        for curve, error, standard_error, draws, closed_form in cells
                    ]
        return rows

    def _labels(self, name: str, protocol: Protocol) -> Row:
        return {
            "structure": name,
            "protocol": protocol.value,
            "parameter": STRUCTURES[name].parameter,
        }

    def _crossings(
        self,
        blocks: dict[Cell, one.Blocks],
        predictions: Sequence[Prediction],
        store: ResultStore | None,
    ) -> list[Row]:
        known = dict(blocks)
        searches = [
            (name, protocol, i)
            for name in self.structures
            for protocol in self.protocols
            for i in range(len(self.ranks))
        ]

        def gap(search: int, value: float) -> Gap:
            name, protocol, i = searches[search]
            block = known[name, value]
            if protocol is Protocol.SAME_DRAW:
                mean, error = block.gap()
                return float(mean[i]), float(error[i])
            mean, error = block.losses("R")
            return float(mean[i]) - exact_error("D", self._budgets[i]), float(error[i])

        def gaps(wanted: Sequence[tuple[int, float]]) -> list[Gap]:
            cells = dict.fromkeys((searches[search][0], value) for search, value in wanted)
            known.update(self._blocks([cell for cell in cells if cell not in known], store))
            return [gap(search, value) for search, value in wanted]

        grids = [
            (grid := self.grid(name), [gap(search, value) for value in grid])
            for search, (name, _, _) in enumerate(searches)
        ]
        return [
            self._crossing_row(name, protocol, predictions[i], crossing)
            for (name, protocol, i), crossing in zip(
                searches, find_crossings(grids, gaps), strict=True
            )
        ]

    def _crossing_row(
        self, name: str, protocol: Protocol, prediction: Prediction, crossing: Crossing
    ) -> Row:
        low, high = self.grid(name)[0], self.grid(name)[-1]
        return {
            **self._labels(name, protocol),
            "r": prediction.budget.r,
            "crossing": crossing.crossing,
            "low": crossing.low,
            "high": crossing.high,
            "closed_form": prediction.crossing(name, protocol, low, high),
            "searched_from": low,
            "searched_to": high,
        }

    def _detection(self, blocks: dict[Cell, one.Blocks], store: ResultStore | None) -> list[Row]:
        critical = {
            is_centred: self._critical_values(store, is_centred=is_centred)
            for is_centred in (False, True)
        }
        rows = []
        for name in self.structures:
            for value in self._detection_values(name):
                for is_centred in (False, True):
                    for statistic in STATISTICS:
                        observed = blocks[name, value].statistic(statistic, is_centred=is_centred)
                        bound = critical[is_centred][statistic]
                        rows.append(
                            {
                                "structure": name,
                                "parameter": STRUCTURES[name].parameter,
                                "value": value,
                                "statistic": statistic,
                                "centred": is_centred,
                                "mean": float(observed.mean()),
                                "sd": float(observed.std(ddof=1)),
                                "critical_value": bound,
                                "level": self.level,
                                "power": float((observed > bound).mean()),
                                "draws": len(observed),
                            }
                        )
        return rows

    def _critical_values(self, store: ResultStore | None, *, is_centred: bool) -> dict[str, float]:
        points = null_points(self.p - is_centred, self.q, self.null_draws, self.seed)
        blocks = run(points, compute_null, store=store, jobs=self.jobs, cluster=self.cluster)
        bounds = {
            name: upper_critical_value(
                np.concatenate([block[name] for block in blocks]), self.level
            )
            for name in blocks[0]
        }
        bounds["low-frequency"] = low_frequency_critical_value(
            self.p, self.q, self.level, is_centred=is_centred
        )
        return bounds
