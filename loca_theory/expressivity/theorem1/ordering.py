"""The ordering of errors that Theorem 1 states, decided by exact expectations."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from loca_theory.expressivity.budgets import Accounting, Budget
from loca_theory.expressivity.laws.low_rank_exact import expected_leading_energy
from loca_theory.expressivity.methods.registry import METHODS
from loca_theory.expressivity.monte_carlo import ERROR_PACKAGES
from loca_theory.sweeps import Cell, Result, Runner
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.results import rows
from loca_theory.sweeps.runner import DEFAULT_RUNNER
from loca_theory.sweeps.store import described

THEOREM_1_ORDER = ("random Fourier", "LoRA", "Fourier pairs", "LoCA")
"""Worst first: random Fourier locations, low rank, best locations, best coefficients."""

ORDERING_ACCOUNTINGS = (Accounting.PAPER, Accounting.TRAINABLE, Accounting.DOF, Accounting.BITS)
"""The accountings under which the ordering is compared."""

# The error of LoRA is off by at most ten times the difference of two grids. Other errors have
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
            grids for LoRA, plus rounding.
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

    Sizes below 4 admit no rank.

    Source: Theorem 1 of the paper, whose only condition on K is r < K/3.
    """

    sizes: tuple[int, ...]
    accountings: tuple[Accounting, ...] = ORDERING_ACCOUNTINGS

    def describe(self) -> dict[str, Any]:
        """The specification as plain data, for a manifest."""
        return {**described(self), "order": list(THEOREM_1_ORDER)}

    def run(self, runner: Runner = DEFAULT_RUNNER) -> OrderingResult:
        """Compute the table; each size is one cell of the sweep."""
        # The largest sizes take longest, so they come first.
        sizes = sorted(set(self.sizes), reverse=True)
        cells = [OrderingCell(size, self.accountings) for size in sizes]
        results = zip(sizes, runner.run(cells, evaluate), strict=True)
        table = [
            OrderingRow(**{**row, "accounting": Accounting(row["accounting"])})
            for _, result in sorted(results, key=lambda pair: pair[0])
            for row in result["rows"]
        ]
        return OrderingResult(manifest(grid=self.describe(), seed=None), tuple(table))


@dataclass(frozen=True)
class OrderingCell(Cell):
    """The ordering at every rank of one size."""

    experiment = "expressivity.theorem1.ordering"
    packages = ERROR_PACKAGES

    K: int
    accountings: tuple[Accounting, ...]


def evaluate(cell: OrderingCell) -> dict[str, Any]:
    """The fields of the rows of one size: the work that a sweep distributes."""
    size = cell.K
    largest = (size - 1) // 3
    if not largest:
        return {"rows": []}
    low_rank = 1 - expected_leading_energy(size, size, largest) / size**2
    other = 1 - expected_leading_energy(size, size, largest, refinement=_FINER) / size**2
    bound = _ROUNDING + _FACTOR * float(np.abs(low_rank - other).max())
    table = []
    for accounting in cell.accountings:
        budgets = [Budget(size, size, r, accounting) for r in range(1, largest + 1)]
        errors = {
            name: low_rank[1:] if name == "LoRA" else METHODS[name].expected_errors(budgets)
            for name in THEOREM_1_ORDER
        }
        for index, budget in enumerate(budgets):
            # The neighbours in the ordering that differ least, or are most out of order.
            pairs = pairwise((name, float(values[index])) for name, values in errors.items())
            (worse, high), (better, low) = min(pairs, key=lambda pair: pair[0][1] - pair[1][1])
            row = OrderingRow(size, budget.r, accounting, worse, better, high, low, bound)
            table.append(asdict(row))
    return {"rows": table}
