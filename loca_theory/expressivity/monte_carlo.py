"""Monte Carlo errors through the sweep engine: blocks of draws, stored, merged, with errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Accounting, Budget
from loca_theory.expressivity.curves import Engine, find_curve
from loca_theory.expressivity.reduced import reduced_errors
from loca_theory.sweeps import DEFAULT_RUNNER, Moments, Point, Runner, code_version, generator

_EXPERIMENT = "expressivity.monte-carlo"
# Draws of one point. Fixed, so that asking for more draws extends a run instead of restarting it.
_BLOCK = 25


class Sampler(StrEnum):
    """Where the draws of an error come from.

    - ``reduced``: its law, by distributional identity; fast at any size.
    - ``dense``: its definition, from a dense W. Every dense curve sees the same draws of W.
    """

    REDUCED = "reduced"
    DENSE = "dense"


@dataclass(frozen=True)
class Series:
    """One curve at one shape, for several ranks that share their draws.

    Attributes:
        curve: Name of the curve.
        p: Rows.
        q: Columns.
        ranks: The ranks r.
        sampler: Where draws come from.
    """

    curve: str
    p: int
    q: int
    ranks: tuple[int, ...]
    sampler: Sampler


@dataclass(frozen=True)
class Estimate:
    """A Monte Carlo mean.

    Attributes:
        error: Mean relative error.
        standard_error: Its standard error; None from a single draw.
        draws: Number of draws.
    """

    error: float
    standard_error: float | None
    draws: int


@dataclass(frozen=True)
class MonteCarlo:
    """What is drawn.

    Attributes:
        draws: Independent draws of W a curve, at least 1.
        seed: Root seed, not negative.
        accounting: How budgets count.
        value_bits: Bits of a stored number.
        device: ``cpu`` or a CUDA device, for the dense sampler.

    Raises:
        InvalidArgumentError: draws or seed is out of range.
    """

    draws: int
    seed: int = 0
    accounting: Accounting = Accounting.PAPER
    value_bits: int = 16
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.draws < 1:
            msg = f"a simulation needs at least 1 draw (2 for a standard error), not {self.draws}"
            raise InvalidArgumentError(msg)
        if self.seed < 0:
            msg = f"the seed must not be negative, and is {self.seed}"
            raise InvalidArgumentError(msg)

    def run(
        self, series: Sequence[Series], runner: Runner = DEFAULT_RUNNER
    ) -> list[list[Estimate]]:
        """Estimate every series.

        Args:
            series: What to estimate.
            runner: How; its store is one of :func:`store_version`. On a GPU one process does all
                the work: several would compete for it.

        Returns:
            For each series one :class:`Estimate` a rank.
        """
        for one in series:
            _check_series(one)
        starts = range(0, self.draws, _BLOCK)
        points = [self._point(one, start) for one in series for start in starts]
        if self.device != "cpu":
            runner = replace(runner, jobs=1)
        results = runner.run(points, compute)
        blocks = [Moments.from_json(result) for result in results]
        count = len(starts)
        merged = [Moments.merge(blocks[i : i + count]) for i in range(0, len(blocks), count)]
        return [_estimates(moments) for moments in merged]

    def _point(self, one: Series, start: int) -> Point:
        parameters: dict[str, Any] = {
            "curve": one.curve,
            "p": one.p,
            "q": one.q,
            "ranks": list(one.ranks),
            "sampler": one.sampler.value,
            "accounting": self.accounting.value,
            "value_bits": self.value_bits,
            "seed": self.seed,
            "draws": [start, min(start + _BLOCK, self.draws)],
        }
        if one.sampler is Sampler.DENSE:
            parameters["device"] = self.device
        return Point(_EXPERIMENT, parameters)


def compute(point: Point) -> dict[str, Any]:
    """The moments of one block of draws: the work that a sweep distributes."""
    given = point.parameters
    p, q, curve, seed = given["p"], given["q"], given["curve"], given["seed"]
    budgets = [
        Budget(p, q, r, Accounting(given["accounting"]), given["value_bits"])
        for r in given["ranks"]
    ]

    def one_draw(draw: int) -> np.ndarray:
        rng = generator(seed, _EXPERIMENT, p, q, given["sampler"], curve, draw)
        if given["sampler"] == Sampler.REDUCED:
            return reduced_errors(curve, budgets, rng)
        from loca_theory.expressivity.dense import dense_errors  # imports torch

        # Not a function of the curve: paired draws make differences between curves precise.
        matrix_rng = generator(seed, _EXPERIMENT, p, q, given["sampler"], draw)
        return dense_errors(curve, budgets, matrix_rng, rng, given["device"])

    return Moments.of([one_draw(draw) for draw in range(*given["draws"])]).to_json()


def store_version() -> str:
    """Version of the code and libraries that simulated results depend on."""
    return code_version(compute)


def _check_series(one: Series) -> None:
    curve = find_curve(one.curve)
    if Engine.MONTE_CARLO not in curve.engines:
        msg = f"{curve.name} is a formula and cannot be simulated; use the exact engine"
        raise InvalidArgumentError(msg)
    if one.sampler is Sampler.REDUCED and not curve.reduced:
        msg = f'{curve.name} has no reduced form; use sampler="dense"'
        raise InvalidArgumentError(msg)


def _estimates(moments: Moments) -> list[Estimate]:
    errors = moments.standard_error
    return [
        Estimate(float(mean), None if errors is None else float(errors[i]), moments.count)
        for i, mean in enumerate(moments.mean)
    ]
