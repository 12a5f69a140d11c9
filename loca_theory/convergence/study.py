"""Recovery rates of every search under every interpretation, over many random problems."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from loca_theory._arguments import as_tuple, fields_to_int, integers
from loca_theory.convergence import simulation
from loca_theory.convergence.interpretations import DEFAULT_INTERPRETATION, find_interpretation
from loca_theory.convergence.problems import ProblemFamily
from loca_theory.convergence.results import RecoveryRow, ToyResult, TraceRow
from loca_theory.convergence.searches import SEARCHES, find_search
from loca_theory.convergence.state import Rates
from loca_theory.convergence.traces import trace_rows, traced_problems, traced_searches
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps import Runner
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.random import draw_blocks
from loca_theory.sweeps.runner import DEFAULT_RUNNER, chosen_runner
from loca_theory.sweeps.store import described

DEFAULT_STEPS = 4000
_DEFAULT_RATES = Rates()
# The condition of Gaussian weights, whose condition number is random.
GAUSSIAN = "gaussian"
# A family of problems, and the names of an interpretation and a search.
_Kind: TypeAlias = tuple[ProblemFamily, str, str]
# Default numbers of problems: (largest size, number).
_PROBLEMS = ((8, 2000), (16, 1000), (32, 400), (64, 200))
_PROBLEMS_BEYOND = 100


def toy(
    searches: str | Iterable[str] = tuple(SEARCHES),
    *,
    interpretations: str | Iterable[str] = DEFAULT_INTERPRETATION,
    sizes: int | Iterable[int] = 6,
    components: int | Iterable[int] = 3,
    conditions: float | str | Iterable[float | str] = GAUSSIAN,
    problems: int | None = None,
    steps: int = DEFAULT_STEPS,
    lr: float = 0.02,
    location_lr: float = 0.05,
    seed: int = 0,
    runner: Runner | None = None,
) -> ToyResult:
    """Measure how often training finds the locations that generated the toy problem's data.

    Args:
        searches: Algorithms that move components, by their names in
            ``loca_theory.convergence.searches``.
        interpretations: Interpretations of what the paper's description leaves open: default (none
            of the following); standard-deviation (20 and 0.2 are standard deviations, not
            variances); mean-of-samples (squared errors are averaged over samples only); sum
            (squared errors are summed); indices (locations are not scaled to [0, 1]); zero-border
            (Z is 0 beyond the spectrum); one-sided-border (differences are one-sided at the
            border); overwrite (of components at one location, only the last counts); half-period
            (phases of 5 steps, not 10); never-frozen (locations move in all steps, not half).
            ``A+B`` combines two.
        sizes: Sizes K of the weights.
        components: Numbers of components of the spectrum.
        conditions: Condition numbers of the fixed weight matrices; 1: orthogonal matrices;
            ``gaussian``: Gaussian matrices, as in the paper.
        problems: Number of random problems of each kind; None for 2000 up to size 8 and fewer
            above.
        steps: Gradient evaluations per problem.
        lr: Learning rate of the coefficients.
        location_lr: Learning rate of the locations, in the unit of the interpretation.
        seed: Root seed.
        runner: Runner that solves the problems.

    Raises:
        InvalidArgumentError: a name is unknown or repeated, or a number is out of range.
        ResourceError: workers or the store fail; finished blocks are in the store.

    >>> import loca_theory.convergence as convergence
    >>> result = convergence.toy(["coefficients-only", "swap"], problems=100, steps=400)
    >>> [(row.search, row.recovered > 0.5) for row in result.rows]
    [('coefficients-only', False), ('swap', True)]
    """
    study = ConvergenceStudy(
        searches=as_tuple(searches),
        interpretations=as_tuple(interpretations),
        sizes=integers("sizes", sizes),
        components=integers("components", components),
        conditions=tuple(map(_condition, as_tuple(conditions))),
        problems=problems,
        steps=steps,
        rates=Rates(lr, location_lr),
        seed=seed,
    )
    return study.run(chosen_runner(runner))


def _condition(value: Any) -> float | None:
    try:
        return None if value == GAUSSIAN else float(value)
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"conditions must be numbers of at least 1, or {GAUSSIAN}, not {value!r}"
        ) from None


@dataclass(frozen=True)
class ConvergenceStudy:
    """Specification of a run of the toy experiment; the fields are arguments of :func:`toy`."""

    searches: tuple[str, ...] = tuple(SEARCHES)
    interpretations: tuple[str, ...] = (DEFAULT_INTERPRETATION,)
    sizes: tuple[int, ...] = (6,)
    components: tuple[int, ...] = (3,)
    conditions: tuple[float | None, ...] = (None,)
    problems: int | None = None
    steps: int = DEFAULT_STEPS
    rates: Rates = _DEFAULT_RATES
    seed: int = 0

    def __post_init__(self) -> None:
        fields_to_int(self, "steps", "seed", *(["problems"] if self.problems is not None else []))
        for name in ("problems", "steps"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise InvalidArgumentError(f"the number of {name} must be at least 1, not {number}")
        for search in self.searches:
            find_search(search)
        interpretations = [find_interpretation(name) for name in self.interpretations]
        for name in ("searches", "interpretations", "sizes", "components", "conditions"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                listed = ", ".join(map(str, values)) or "none"
                raise InvalidArgumentError(
                    f"{name} must have at least one value and no duplicates, not {listed}"
                )
        moving = min(interpretation.moving_steps(self.steps) for interpretation in interpretations)
        if "pursuit" in self.searches and moving < max(self.components):
            raise InvalidArgumentError(
                f"pursuit needs a step for each of {max(self.components)} components, but "
                f"locations move in only {moving} of {self.steps} steps; increase steps"
            )
        self.families()

    def families(self) -> list[ProblemFamily]:
        """Every combination of size, components and condition."""
        grid = product(self.sizes, self.components, self.conditions)
        return [ProblemFamily(size, components, condition) for size, components, condition in grid]

    def describe(self) -> dict[str, Any]:
        """The expanded grid and options as plain data, for a manifest."""
        interpretations = {
            name: described(find_interpretation(name)) for name in self.interpretations
        }
        problems = {str(size): self._problems(size) for size in self.sizes}
        return {
            **described(self, "seed"),
            "interpretations": interpretations,
            "problems": problems,
        }

    def _problems(self, size: int) -> int:
        default = next((count for limit, count in _PROBLEMS if size <= limit), _PROBLEMS_BEYOND)
        return self.problems or default

    def run(self, runner: Runner = DEFAULT_RUNNER) -> ToyResult:
        """Solve all problems."""
        # The innermost loop is over searches, so that the problems of a block are drawn only once.
        order = [
            (family, interpretation, search, numbers)
            for family, interpretation in product(self.families(), self.interpretations)
            for numbers in draw_blocks(
                0, self._problems(family.size), simulation.block(family.size)
            )
            for search in self.searches
        ]
        results = runner.run(
            [self._cell(*combination) for combination in order], simulation.evaluate
        )
        outcomes: dict[_Kind, dict[str, list[Any]]] = {}
        for (family, interpretation, search, _), result in zip(order, results, strict=True):
            kind = family, interpretation, search
            saved = outcomes.setdefault(kind, {name: [] for name in result})
            for name, values in result.items():
                saved[name].extend(values)
        return ToyResult(
            manifest(grid=self.describe(), seed=self.seed),
            rows=tuple(self._row(*kind, outcome) for kind, outcome in outcomes.items()),
            traces=tuple(self._traces(outcomes, runner)),
        )

    def _cell(
        self, family: ProblemFamily, interpretation: str, search: str, numbers: tuple[int, int]
    ) -> simulation.ToyCell:
        return simulation.ToyCell(
            family,
            find_interpretation(interpretation),
            find_search(search),
            self.rates,
            self.steps,
            self.seed,
            numbers,
        )

    def _row(
        self,
        family: ProblemFamily,
        interpretation: str,
        search: str,
        outcomes: dict[str, list[Any]],
    ) -> RecoveryRow:
        from scipy.stats import binomtest  # here, because it is slow to import

        exact, loss = outcomes["exact"], outcomes["loss"]
        ends = binomtest(sum(exact), len(exact)).proportion_ci(0.95, method="exact")
        median = float(np.median([np.inf if value is None else value for value in loss]))
        return RecoveryRow(
            search=search,
            interpretation=interpretation,
            size=family.size,
            components=family.components,
            condition=family.condition,
            problems=len(exact),
            recovered=sum(exact) / len(exact),
            low=float(ends.low),
            high=float(ends.high),
            mean_found=sum(outcomes["found"]) / len(exact),
            median_final_loss=median if median < np.inf else None,
            diverged=sum(value is None for value in loss),
            steps=self.steps,
            seed=self.seed,
        )

    def _traces(
        self, outcomes: dict[_Kind, dict[str, list[Any]]], runner: Runner
    ) -> Iterator[TraceRow]:
        family, interpretation = self.families()[0], self.interpretations[0]
        chosen = "central" if "central" in self.searches else self.searches[0]
        cases = traced_problems(outcomes[family, interpretation, chosen])
        traced = list(product(cases.items(), traced_searches(self.searches, chosen)))
        cells = [
            replace(self._cell(family, interpretation, search, (n, n + 1)), is_traced=True)
            for (_, n), search in traced
        ]
        traces = replace(runner, progress=None).run(cells, simulation.evaluate_trace)
        for ((case, number), search), trace in zip(traced, traces, strict=True):
            yield from trace_rows(case, chosen, search, number, family, trace)
