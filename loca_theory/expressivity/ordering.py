"""The ordering of errors that Theorem 1 states, checked with exact values on small matrices."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from loca_theory.expressivity.budgets import Accounting, Budget
from loca_theory.expressivity.formulas import exact_error

# Worst first: random Fourier locations, low rank, best locations, best coefficients.
THEOREM_1_ORDER = ("F1", "R", "F2", "D")


@dataclass(frozen=True)
class Violation:
    """An inequality of Theorem 1 that fails.

    Attributes:
        K: Matrix size.
        r: Rank, r < K/3.
        worse: Method to which the theorem assigns the larger error.
        better: Method to which it assigns the smaller error.
        worse_error: Exact relative error of ``worse``.
        better_error: Exact relative error of ``better``; not below ``worse_error``.
    """

    K: int
    r: int
    worse: str
    better: str
    worse_error: float
    better_error: float


def theorem_1_violations(
    largest: int,
    order: tuple[str, ...] = THEOREM_1_ORDER,
    accounting: Accounting = Accounting.PAPER,
) -> list[Violation]:
    """Find every K ≤ ``largest`` and r < K/3 at which the strict ordering fails.

    The errors are exact expectations.

    Args:
        largest: Largest matrix size, at most
            :data:`~loca_theory.expressivity.low_rank_exact.LARGEST_EXACT`.
        order: Methods from the largest error to the smallest.
        accounting: What is charged to a budget.

    Returns:
        Violations in order of K and r.

    Raises:
        InvalidArgumentError: R has no exact value at that size.

    Source: Theorem 1 of the paper, whose only condition on K is r < K/3.
    """
    found = []
    for size in range(2, largest + 1):
        for r in range(1, (size - 1) // 3 + 1):
            budget = Budget(size, size, r, accounting)
            errors = [(method, exact_error(method, budget)) for method in order]
            found += [
                Violation(size, r, worse, better, worse_error, better_error)
                for (worse, worse_error), (better, better_error) in pairwise(errors)
                if worse_error <= better_error
            ]
    return found
