"""Monte Carlo estimates of errors, which the sweep engine computes and stores in blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np

from loca_theory._arguments import fields_to_int
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Accounting, Budget
from loca_theory.expressivity.methods import METHODS, Engine, Method, definition
from loca_theory.expressivity.methods.method import checked_numbers
from loca_theory.sweeps import DEFAULT_RUNNER, Moments, Point, Runner, code_version, generator

_EXPERIMENT = "expressivity.monte-carlo"
# Draws per point. Fixed, so that a run with more draws reuses the stored blocks of a shorter run.
_BLOCK = 25


class Sampler(StrEnum):
    """How the draws of an error are made.

    - ``reduced``: from the law of the error, by a distributional identity; fast at any size.
    - ``dense``: by applying the method to a dense W. All methods get the same draws of W.
    """

    REDUCED = "reduced"
    DENSE = "dense"


@dataclass(frozen=True)
class Series:
    """One method at one shape, for several ranks that share their draws.

    Attributes:
        method: The method.
        p: Rows.
        q: Columns.
        ranks: The ranks r.
        sampler: How the draws are made.
    """

    method: Method
    p: int
    q: int
    ranks: tuple[int, ...]
    sampler: Sampler


@dataclass(frozen=True)
class Estimate:
    """A Monte Carlo mean.

    Attributes:
        error: Mean relative error.
        standard_error: Standard error of the mean; None if there is a single draw.
        draws: Number of draws.
    """

    error: float
    standard_error: float | None
    draws: int


@dataclass(frozen=True)
class MonteCarlo:
    """Settings of Monte Carlo estimates.

    Attributes:
        draws: Independent draws of W per method, at least 1.
        seed: Root seed, not negative.
        accounting: What is charged to a budget.
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
        fields_to_int(self, "draws", "seed", "value_bits")
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
            series: The series to estimate.
            runner: Runner that computes the blocks; its store must have the version
                :func:`store_version`. On a GPU a single process does all the work, because several
                would compete for the device.

        Returns:
            For each series one :class:`Estimate` per rank.

        Raises:
            InvalidArgumentError: a method does not support the sampler of its series.
        """
        self.check(series)
        starts = range(0, self.draws, _BLOCK)
        if self.device != "cpu":
            runner = replace(runner, jobs=1)
        own = {one.method.name: one.method for one in series if one.method.name not in METHODS}
        definitions = {name: definition(method) for name, method in own.items()}
        points = [
            self._point(one, start, definitions.get(one.method.name))
            for one in series
            for start in starts
        ]
        # Results of a method without a digest are not stored: they could not be distinguished from
        # those of another definition of the same name.
        unknown = {name for name, definition in definitions.items() if definition is None}
        results: dict[int, dict[str, Any]] = {}
        for used, is_known in ((runner, True), (replace(runner, store=None), False)):
            some = [one for one in points if (one.parameters["method"] not in unknown) == is_known]
            # Run even without points, so that a cluster that cannot be reached raises an error.
            if some or is_known:
                found = used.run(some, partial(compute, own=own) if own else compute)
                results |= {id(one): result for one, result in zip(some, found, strict=True)}
        blocks = [Moments.from_json(results[id(one)]) for one in points]
        count = len(starts)
        merged = [Moments.merge(blocks[i : i + count]) for i in range(0, len(blocks), count)]
        return [_estimates(moments) for moments in merged]

    def check(self, series: Sequence[Series]) -> None:
        """Check that every method supports the sampler of its series.

        Raises:
            InvalidArgumentError: a method does not.
        """
        for one in series:
            name = one.method.name
            first = Budget(one.p, one.q, one.ranks[0], self.accounting, self.value_bits)
            if Engine.MONTE_CARLO not in one.method.engines(first):
                msg = f"{name} is a formula and cannot be simulated; use the exact engine"
                raise InvalidArgumentError(msg)
            if one.sampler is Sampler.REDUCED and not one.method.defines("sample"):
                msg = f'{name} has no reduced sampler; use sampler="dense"'
                raise InvalidArgumentError(msg)
            if one.sampler is Sampler.DENSE and not one.method.can_approximate:
                msg = f'{name} does not approximate matrices; use sampler="reduced"'
                raise InvalidArgumentError(msg)

    def _point(self, one: Series, start: int, definition: str | None) -> Point:
        parameters: dict[str, Any] = {
            "method": one.method.name,
            "p": one.p,
            "q": one.q,
            "ranks": list(one.ranks),
            "sampler": one.sampler.value,
            "accounting": self.accounting.value,
            "value_bits": self.value_bits,
            "seed": self.seed,
            "draws": [start, min(start + _BLOCK, self.draws)],
        }
        if definition is not None:
            parameters["definition"] = definition
        if one.sampler is Sampler.DENSE:
            parameters["device"] = self.device
        return Point(_EXPERIMENT, parameters)


_NO_OWN_METHODS: Mapping[str, Method] = {}


def compute(point: Point, own: Mapping[str, Method] = _NO_OWN_METHODS) -> dict[str, Any]:
    """Moments of the errors in one block of draws: the work that a sweep distributes.

    Args:
        point: The block.
        own: The user's own methods, by name.
    """
    given = point.parameters
    p, q, name, seed = given["p"], given["q"], given["method"], given["seed"]
    method = own[name] if name in own else METHODS[name]
    budgets = [
        Budget(p, q, r, Accounting(given["accounting"]), given["value_bits"])
        for r in given["ranks"]
    ]

    def one_draw(draw: int) -> np.ndarray:
        rng = generator(seed, _EXPERIMENT, p, q, given["sampler"], name, draw)
        if given["sampler"] == Sampler.REDUCED:
            return checked_numbers(method, "sample", budgets, rng)
        from loca_theory.expressivity.matrices import dense_errors  # imports torch

        # All methods get the same matrices, so that the differences between methods are precise.
        matrix_rng = generator(seed, _EXPERIMENT, p, q, given["sampler"], draw)
        return dense_errors(method, budgets, matrix_rng, rng, given["device"])

    return Moments.of([one_draw(draw) for draw in range(*given["draws"])]).to_json()


def store_version() -> str:
    """Version of the code and libraries that simulated results depend on."""
    return code_version(compute)


def _estimates(moments: Moments) -> list[Estimate]:
    errors = moments.standard_error
    return [
        Estimate(float(mean), None if errors is None else float(errors[i]), moments.count)
        for i, mean in enumerate(moments.mean)
    ]
