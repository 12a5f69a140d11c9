"""Bounds: formulas for an error, which do not approximate a given matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np

from loca_theory._types import Array
from loca_theory.expressivity.bits import least_error
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.laws.order_statistics import expected_top_sum
from loca_theory.expressivity.limits import location_fraction
from loca_theory.expressivity.methods.method import NamedMethod


@dataclass(frozen=True)
class Bound(NamedMethod):
    """A formula for the error at a budget, and its limit for large matrices.

    Attributes:
        error: The formula.
        large: The limit; None if the formula depends only on q/p and r/p, and is its own limit.
    """

    _: KW_ONLY
    error: Callable[[Budget], float]
    large: Callable[[Budget], float] | None = None

    def expected_errors(self, budgets: Sequence[Budget]) -> Array:
        """See :class:`~loca_theory.expressivity.Method`."""
        return np.array([self.error(budget) for budget in budgets])

    def limit(self, budget: Budget) -> float:
        """See :class:`~loca_theory.expressivity.Method`."""
        return (self.large or self.error)(budget)

    def check_budget(self, budget: Budget) -> None:
        """See :class:`~loca_theory.expressivity.Method`."""
        self.error(budget)


def printed_line(budget: Budget) -> float:
    """1 − N0/pq, the line that the paper's figures call random selection."""
    return 1 - budget.numbers / (budget.p * budget.q)


def rate_distortion(budget: Budget) -> float:
    """The least error of any code with the bits that LoRA's factors occupy."""
    return least_error(budget.bits / (budget.p * budget.q))


def upper_bound(budget: Budget) -> float:
    """M₁, an upper bound on the error of Fourier pairs: no self-conjugate location is retained."""
    return _of_pairs(budget, budget.half_spectrum.pair_count)


def lower_bound(budget: Budget) -> float:
    """M₂, a lower bound on the error of Fourier pairs: every location counts as a pair."""
    return _of_pairs(budget, budget.half_spectrum.location_count)


def _of_pairs(budget: Budget, locations: int) -> float:
    return 1 - expected_top_sum(locations, budget.chosen_locations, 2) / (budget.p * budget.q)


def limit_of_bounds(budget: Budget) -> float:
    """The limit of the error of Fourier pairs and of both bounds."""
    return 1 - location_fraction(2 * budget.chosen_locations / (budget.p * budget.q))
