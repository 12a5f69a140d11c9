"""The sweep over structures and values: losses, crossings and detection as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from loca_theory.dependence import draws as one
from loca_theory.dependence.crossings import Crossing, find_crossing
from loca_theory.dependence.detection import STATISTICS, upper_critical_value
from loca_theory.dependence.null_law import low_frequency_critical_value, null_spectral_statistics
from loca_theory.dependence.protocols import Protocol
from loca_theory.dependence.structures import STRUCTURES
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import Budget, exact_error
from loca_theory.sweeps import Cluster, Moments, Point, ResultStore, run

Row = dict[str, Any]
Progress = Callable[[int, int], None]

ROW_COLUMNS = (
    "structure", "parameter", "value", "protocol", "K", "p", "q", "r", "curve", "error",
    "standard_error", "draws",
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
        plan = [(name, value) for name in self.structures for value in self._all_values(name)]
        blocks = self._blocks(plan, store, progress)
        rows = [row for name in self.structures for row in self._rows(name, blocks)]
        crossings = [
            row for name in self.structures for row in self._crossings(name, blocks, store)
        ]
        return {"rows": rows, "crossings": crossings, "detection": self._detection(blocks)}

    def _all_values(self, name: str) -> list[float]:
        return sorted({*self.grid(name), *self._detection_values(name)})

    def _detection_values(self, name: str) -> list[float]:
        structure, grid = STRUCTURES[name], self.grid(name)
        low, high = structure.bounds(self.p, self.q)
        wanted = _DETECTION_VALUES[structure.parameter]
        return [v for v in wanted if low <= v <= high and grid[0] <= v <= grid[-1]]

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
        plan: Sequence[tuple[str, float]],
        store: ResultStore | None,
        progress: Progress | None = None,
    ) -> dict[tuple[str, float], list[dict[str, Any]]]:
        points = {cell: self._points(*cell) for cell in plan}
        flat = [point for block in points.values() for point in block]
        results = iter(
            run(
                flat,
                one.compute,
                store=store,
                jobs=self.jobs,
                cluster=self.cluster,
                progress=progress,
            )
        )
        return {cell: [next(results) for _ in block] for cell, block in points.items()}

    def _iid_error(self, curve: str, r: int) -> float:
        return exact_error(curve, Budget(self.p, self.q, r))

    def _rows(self, name: str, blocks: dict[tuple[str, float], list[dict[str, Any]]]) -> list[Row]:
        rows = []
        for value in self.grid(name):
            found = {
                curve: _merged(blocks[name, value], "losses", curve) for curve in one.SIMULATED
            }
            for protocol in self.protocols:
                same = protocol is Protocol.SAME_DRAW
                simulated = one.SIMULATED if same else ("R",)
                fixed = ("U",) if same else ("D", "M1", "M2", "U")
                for i, r in enumerate(self.ranks):
                    cells = [
                        (curve, found[curve].mean[i], _error(found[curve])[i], self.draws)
                        for curve in simulated
                    ]
                    # Random places keep their share of whatever energy there is.
                    cells += [(curve, self._iid_error(curve, r), 0.0, None) for curve in fixed]
                    rows += [
                        {
                            **self._labels(name, protocol),
                            "value": value,
                            "K": self.p if self.p == self.q else None,
                            "p": self.p,
                            "q": self.q,
                            "r": r,
                            "curve": curve,
                            "error": float(error),
                            "standard_error": float(standard_error),
                            "draws": draws,
                        }
                        for curve, error, standard_error, draws in cells
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
        name: str,
        blocks: dict[tuple[str, float], list[dict[str, Any]]],
        store: ResultStore | None,
    ) -> list[Row]:
        grid = self.grid(name)
        known = {value: blocks[name, value] for value in grid}

        def gaps(value: float, protocol: Protocol) -> tuple[NDArray, NDArray]:
            if value not in known:
                known[value] = self._blocks([(name, value)], store)[name, value]
            if protocol is Protocol.SAME_DRAW:
                moments = _merged(known[value], "gap")
                return moments.mean, _error(moments)
            moments = _merged(known[value], "losses", "R")
            reference = np.array([self._iid_error("D", r) for r in self.ranks])
            return moments.mean - reference, _error(moments)

        rows = []
        for protocol in self.protocols:
            for i, r in enumerate(self.ranks):

                def gap(
                    value: float, i: int = i, protocol: Protocol = protocol
                ) -> tuple[float, float]:
                    mean, error = gaps(value, protocol)
                    return float(mean[i]), float(error[i])

                crossing = find_crossing(grid, [gap(value) for value in grid], gap)
                rows.append(self._crossing_row(name, protocol, r, crossing))
        return rows

    def _crossing_row(self, name: str, protocol: Protocol, r: int, crossing: Crossing) -> Row:
        grid = self.grid(name)
        return {
            **self._labels(name, protocol),
            "r": r,
            "crossing": crossing.crossing,
            "low": crossing.low,
            "high": crossing.high,
            "searched_from": grid[0],
            "searched_to": grid[-1],
        }

    def _detection(self, blocks: dict[tuple[str, float], list[dict[str, Any]]]) -> list[Row]:
        critical = {
            is_centred: self._critical_values(is_centred=is_centred) for is_centred in (False, True)
        }
        rows = []
        for name in self.structures:
            for value in self._detection_values(name):
                for is_centred in (False, True):
                    key = "centred_statistics" if is_centred else "statistics"
                    for statistic in STATISTICS:
                        observed = np.array(
                            [x for block in blocks[name, value] for x in block[key][statistic]]
                        )
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

    def _critical_values(self, *, is_centred: bool) -> dict[str, float]:
        null = null_spectral_statistics(self.p - is_centred, self.q, self.null_draws, self.seed)
        bounds = {name: upper_critical_value(null[name], self.level) for name in null}
        bounds["low-frequency"] = low_frequency_critical_value(
            self.p, self.q, self.level, is_centred=is_centred
        )
        return bounds


def _merged(blocks: Sequence[dict[str, Any]], *path: str) -> Moments:
    parts = []
    for block in blocks:
        found: Any = block
        for key in path:
            found = found[key]
        parts.append(Moments.from_json(found))
    return Moments.merge(parts)


def _error(moments: Moments) -> NDArray[np.float64]:
    error = moments.standard_error
    return np.full_like(moments.mean, np.nan) if error is None else error


def proportion_interval(
    successes: int, trials: int, confidence: float = 0.95
) -> tuple[float, float]:
    """Clopper–Pearson interval of a probability from a count."""
    interval = stats.binomtest(successes, trials).proportion_ci(confidence, method="exact")
    return float(interval.low), float(interval.high)
