"""The experiment as a rate: every search under every reading, over many random problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from loca_theory.convergence import simulation as one
from loca_theory.convergence.problems import Family
from loca_theory.convergence.readings import DEFAULT_READING, find_reading
from loca_theory.convergence.searches import SEARCHES, find_search
from loca_theory.convergence.state import Rates
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps import DEFAULT_RUNNER, Point, Runner

Row = dict[str, Any]

ROW_COLUMNS = (
    "search",
    "reading",
    "size",
    "components",
    "condition",
    "problems",
    "recovered",
    "low",
    "high",
    "mean_found",
    "median_final_loss",
    "diverged",
    "steps",
    "seed",
)
# Problems by default at sizes up to these.
_PROBLEMS = ((8, 2000), (16, 1000), (32, 400), (64, 200))
_PROBLEMS_BEYOND = 100
# What the traces show beside the search whose success they are chosen by.
_TRACED = ("central", "reselect")
_BASELINE, _MOST_TRACED = "coefficients-only", 5


def default_problems(size: int) -> int:
    """How many problems of a size are solved unless told otherwise."""
    return next((count for limit, count in _PROBLEMS if size <= limit), _PROBLEMS_BEYOND)


@dataclass(frozen=True)
class ConvergenceStudy:
    """What to run.

    Attributes:
        searches: Names of searches.
        readings: Names of readings.
        sizes: K.
        components: Numbers of components.
        conditions: Condition numbers of the fixed weights; None for Gaussian ones, as printed.
        problems: Problems of each combination; None for fewer at larger sizes.
        steps: Evaluations of the gradient in each.
        rates: Learning rates.
        seed: Root seed.

    Raises:
        InvalidArgumentError: a name is unknown or repeated, or a number out of range.
    """

    searches: tuple[str, ...] = tuple(SEARCHES)
    readings: tuple[str, ...] = (DEFAULT_READING,)
    sizes: tuple[int, ...] = (6,)
    components: tuple[int, ...] = (3,)
    conditions: tuple[float | None, ...] = (None,)
    problems: int | None = None
    steps: int = 4000
    rates: Rates = field(default_factory=Rates)
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("problems", "steps"):
            number = getattr(self, name)
            if number is not None and number < 1:
                msg = f"the number of {name} must be at least 1, not {number}"
                raise InvalidArgumentError(msg)
        for name in ("searches", "readings", "sizes", "components", "conditions"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                msg = f"{name} are named once each, at least one: {', '.join(map(str, values))}"
                raise InvalidArgumentError(msg)
        for search in self.searches:
            find_search(search)
        for reading in self.readings:
            find_reading(reading)
        moving = min(find_reading(reading).moving_steps(self.steps) for reading in self.readings)
        if "pursuit" in self.searches and moving < max(self.components):
            msg = f"pursuit takes a step for each of {max(self.components)} components, while "
            msg += f"places move for {moving} of {self.steps} steps only; give it more steps"
            raise InvalidArgumentError(msg)
        self.families()

    @property
    def version(self) -> str:
        """Version of the code and libraries that its stored blocks depend on."""
        return one.version()

    def families(self) -> list[Family]:
        """Every combination of size, components and condition."""
        return [Family(*each) for each in product(self.sizes, self.components, self.conditions)]

    def describe(self) -> dict[str, Any]:
        """The expanded grid and options as plain data, for a manifest."""
        return {
            "searches": list(self.searches),
            "readings": {name: find_reading(name).describe() for name in self.readings},
            "sizes": list(self.sizes),
            "components": list(self.components),
            "conditions": list(self.conditions),
            "problems": {str(size): self._problems(size) for size in self.sizes},
            "steps": self.steps,
            "rates": vars(self.rates).copy(),
        }

    def _problems(self, size: int) -> int:
        return self.problems or default_problems(size)

    def run(self, runner: Runner = DEFAULT_RUNNER) -> dict[str, list[Row]]:
        """Solve all problems.

        Args:
            runner: How; traces, a few problems at the end, report no progress.

        Returns:
            ``rows``, a row a combination; ``traces``, the ways of the first problem that the
            search to be looked at recovers and of the first that it does not, under the first
            reading and family (see :func:`trace_rows`).

        Raises:
            ResourceError: workers or the store fail; what is finished is in the store.
        """
        # Searches innermost: the problems of a block are drawn once for all of them.
        cells = list(product(self.families(), self.readings, self.searches))
        points = [
            ((family, reading, search), self._point(family, reading, search, numbers))
            for family, reading in product(self.families(), self.readings)
            for numbers in self._blocks(family)
            for search in self.searches
        ]
        with runner.connected():
            results = runner.run([point for _, point in points], one.compute)
            outcomes: dict[Any, dict[str, list[Any]]] = {}
            for (cell, _), result in zip(points, results, strict=True):
                kept = outcomes.setdefault(cell, {"found": [], "exact": [], "loss": []})
                for name, values in kept.items():
                    values.extend(result[name])
            rows = [self._row(*cell, outcomes[cell]) for cell in cells]
            return {"rows": rows, "traces": self._traces(outcomes, runner)}

    def _blocks(self, family: Family) -> list[tuple[int, int]]:
        size, total = one.block(family.size), self._problems(family.size)
        return [(start, min(start + size, total)) for start in range(0, total, size)]

    def _point(self, family: Family, reading: str, search: str, numbers: tuple[int, int]) -> Point:
        return one.point(family, reading, search, self.rates, self.steps, self.seed, numbers)

    def _row(
        self, family: Family, reading: str, search: str, outcomes: dict[str, list[Any]]
    ) -> Row:
        exact, loss = outcomes["exact"], outcomes["loss"]
        # Takes a while to import.
        from scipy.stats import binomtest

        ends = binomtest(sum(exact), len(exact)).proportion_ci(0.95, method="exact")
        median = float(np.median([np.inf if value is None else value for value in loss]))
        return {
            "search": search,
            "reading": reading,
            "size": family.size,
            "components": family.components,
            "condition": family.condition,
            "problems": len(exact),
            "recovered": sum(exact) / len(exact),
            "low": float(ends.low),
            "high": float(ends.high),
            "mean_found": sum(outcomes["found"]) / len(exact),
            "median_final_loss": median if median < np.inf else None,
            "diverged": sum(value is None for value in loss),
            "steps": self.steps,
            "seed": self.seed,
        }

    def _traces(self, outcomes: dict[Any, dict[str, list[Any]]], runner: Runner) -> list[Row]:
        family, reading = self.families()[0], self.readings[0]
        chosen = "central" if "central" in self.searches else self.searches[0]
        found = outcomes[family, reading, chosen]
        finite = [value is not None for value in found["loss"]]
        cases = {
            "recovered": _first(found["exact"]),
            "not recovered": _first(
                [fine and not exact for fine, exact in zip(finite, found["exact"], strict=True)]
            ),
        }
        if set(cases.values()) == {None}:
            cases["not recovered"] = 0  # all diverged, which is to be seen
        asked = self.searches if len(self.searches) <= _MOST_TRACED else _TRACED
        shown = tuple(dict.fromkeys((_BASELINE, *asked, chosen)))
        wanted = [
            (case, search, number)
            for case, number in cases.items()
            if number is not None
            for search in shown
        ]
        points = [
            self._point(family, reading, search, (number, number + 1))
            for _, search, number in wanted
        ]
        points = [Point(one.TRACE, point.parameters) for point in points]
        traces = replace(runner, progress=None).run(points, one.compute_trace)
        return [
            row
            for (case, search, number), trace in zip(wanted, traces, strict=True)
            for row in trace_rows(case, chosen, search, number, family, trace)
        ]


def trace_rows(
    case: str, chosen: str, search: str, number: int, family: Family, trace: dict[str, list[Any]]
) -> list[Row]:
    """One problem's way as a table: a row a component and kept step.

    Rows of the true components have kind ``truth`` and step 0, those of the learned ones kind
    ``learned``. ``loss`` is in units of that at ΔW = 0, null where it diverged.
    """
    common = {"case": case, "chosen_by": chosen, "search": search, "problem": number}
    common["size"] = family.size

    def row(kind: str, step: int, n: int, entry: Sequence[Any], loss: float | None) -> Row:
        place = {"row": entry[0], "column": entry[1], "coefficient": entry[2]}
        return {**common, "kind": kind, "step": step, "component": n, **place, "loss": loss}

    rows = [row("truth", 0, n, entry, 0.0) for n, entry in enumerate(trace["truth"])]
    for step, loss, entries in zip(
        trace["steps"], trace["losses"], trace["components"], strict=True
    ):
        rows += [row("learned", step, n, entry, loss) for n, entry in enumerate(entries)]
    return rows


def _first(flags: Sequence[bool]) -> int | None:
    return next((number for number, flag in enumerate(flags) if flag), None)
