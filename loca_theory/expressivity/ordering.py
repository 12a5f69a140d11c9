"""The ordering of errors that Theorem 1 states, decided by exact expectations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from loca_theory import _arguments
from loca_theory._lookup import member
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Accounting, Budget
from loca_theory.expressivity.low_rank_exact import expected_leading_energy
from loca_theory.expressivity.methods import find_methods
from loca_theory.sweeps import (
    DEFAULT_RUNNER,
    Point,
    Result,
    Runner,
    code_version,
    manifest,
    rows,
)

THEOREM_1_ORDER = ("F1", "R", "F2", "D")
"""Worst first: random Fourier locations, low rank, best locations, best coefficients."""

ORDERING_ACCOUNTINGS = (
    Accounting.PAPER,
    Accounting.TRAINABLE,
    Accounting.DOF,
    Accounting.BITS,
)
"""The accountings under which the ordering is compared."""

_EXPERIMENT = "expressivity.ordering"
# The error of R is taken to be at most ten times the difference of two grids. The other errors have
# rounding errors only, of at most this size.
_FACTOR, _ROUNDING = 10.0, 1e-12
_FINER = 1.25


@dataclass(frozen=True)
class OrderingRow:
    """The tightest inequality of the ordering at one size, rank and accounting.

    Attributes:
        K: Matrix size.
        r: Rank, r < K/3.
        accounting: What is charged to a budget.
        worse: Method to which the theorem assigns the larger error.
        better: Method to which it assigns the smaller error.
        worse_error: Exact relative error of ``worse``.
        better_error: Exact relative error of ``better``.
        bound: Estimated bound on the numerical error of the margin: ten times the difference of two
            grids for R, plus rounding.
    """

    K: int
    r: int
    accounting: Accounting
    worse: str
    better: str
    worse_error: float
    better_error: float
    bound: float

    @property
    def margin(self) -> float:
        """``worse_error`` − ``better_error``: positive if the ordering holds."""
        return self.worse_error - self.better_error

    @property
    def holds(self) -> bool | None:
        """Whether the whole ordering holds here; None if the margin is within its bound."""
        return None if abs(self.margin) <= self.bound else self.margin > 0


@dataclass(frozen=True, repr=False)
class OrderingResult(Result):
    """Where the ordering of Theorem 1 holds.

    Attributes:
        rows: One row per size, rank and accounting.
    """

    rows: tuple[OrderingRow, ...] = rows(OrderingRow)
    command = "theorem1"


@dataclass(frozen=True)
class Ordering:
    """Specification: check the ordering at every r < K/3, without simulation.

    Attributes:
        sizes: Matrix sizes K. Sizes below 4 admit no rank.
        accountings: What is charged to a budget.
        order: Methods with exact errors, from the largest error to the smallest.

    Raises:
        InvalidArgumentError: a size or an accounting is not valid, or a method is unknown.

    Source: Theorem 1 of the paper, whose only condition on K is r < K/3.
    """

    sizes: tuple[int, ...]
    accountings: tuple[Accounting, ...] = ORDERING_ACCOUNTINGS
    order: tuple[str, ...] = THEOREM_1_ORDER

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", _arguments.integers("sizes", self.sizes))
        if not self.sizes or min(self.sizes) < 1:
            msg = f"sizes must be positive whole numbers, at least one, not {self.sizes}"
            raise InvalidArgumentError(msg)
        found = tuple(member(Accounting, "accountings", one) for one in self.accountings)
        object.__setattr__(self, "accountings", found)
        find_methods(self.order)

    def describe(self) -> dict[str, Any]:
        """The specification as plain data, for a manifest."""
        return {
            "sizes": list(self.sizes),
            "accountings": [one.value for one in self.accountings],
            "order": list(self.order),
        }

    @property
    def version(self) -> str:
        """Version of the code and libraries that the errors depend on."""
        return code_version(compute)

    def run(self, runner: Runner = DEFAULT_RUNNER) -> OrderingResult:
        """Compute the table; each size is one point of the sweep.

        Raises:
            ResourceError: a result cannot be stored.
            SweepInterruptedError: the user pressed Ctrl-C.
        """
        given = {key: value for key, value in self.describe().items() if key != "sizes"}
        # The largest sizes take longest, so they come first.
        sizes = sorted(set(self.sizes), reverse=True)
        points = [Point(_EXPERIMENT, {"K": size, **given}) for size in sizes]
        found = zip(sizes, runner.run(points, compute), strict=True)
        table = [
            OrderingRow(size, **{**row, "accounting": Accounting(row["accounting"])})
            for size, result in sorted(found, key=lambda one: one[0])
            for row in result["rows"]
        ]
        return OrderingResult(manifest(grid=self.describe(), seed=None), tuple(table))


def compute(point: Point) -> dict[str, Any]:
    """The rows of one size: the work that a sweep distributes."""
    size, order = point.parameters["K"], point.parameters["order"]
    largest = (size - 1) // 3
    if not largest:
        return {"rows": []}
    low_rank = 1 - expected_leading_energy(size, size, largest) / size**2
    other = 1 - expected_leading_energy(size, size, largest, refinement=_FINER) / size**2
    bound = _ROUNDING + _FACTOR * float(np.abs(low_rank - other).max())
    found = []
    for accounting in point.parameters["accountings"]:
        budgets = [Budget(size, size, r, Accounting(accounting)) for r in range(1, largest + 1)]
        errors = {
            method.name: low_rank[1:] if method.name == "R" else method.expected_errors(budgets)
            for method in find_methods(order)
        }
        found += [
            {"r": budget.r, "accounting": accounting, "bound": bound, **_tightest(errors, index)}
            for index, budget in enumerate(budgets)
        ]
    return {"rows": found}


def _tightest(errors: Mapping[str, np.ndarray], index: int) -> dict[str, Any]:
    """The neighbours in the ordering whose errors differ least, or are most out of order."""
    pairs = pairwise((name, float(values[index])) for name, values in errors.items())
    worse, better = min(pairs, key=lambda pair: pair[0][1] - pair[1][1])
    return {
        "worse": worse[0],
        "better": better[0],
        "worse_error": worse[1],
        "better_error": better[1],
    }
