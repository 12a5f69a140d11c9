"""Errors in the limit of large matrices, at the shares that a budget takes of this one."""

from __future__ import annotations

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.curves import Engine, find_curve
from loca_theory.expressivity.exact import exact_error
from loca_theory.expressivity.limits import coefficient_share, location_share, low_rank_share


def asymptotic_error(curve: str, budget: Budget) -> float:
    """Limit of the relative error as p, q → ∞ with the shares r/min(p, q) and N/pq held fixed.

    U and RD depend on those shares alone, so their limits are their exact values.

    Args:
        curve: A name in :data:`~loca_theory.expressivity.curves.CURVES`.
        budget: Shape, rank and accounting.

    Returns:
        The relative error. Its distance from the finite-size value is not estimated.

    Raises:
        InvalidArgumentError: the curve is unknown or its limit is not known.

    Source: :mod:`loca_theory.expressivity.limits`.
    """
    if Engine.ASYMPTOTIC not in find_curve(curve).engines:
        msg = f"{curve} has no known limit; use the monte-carlo engine"
        raise InvalidArgumentError(msg)
    n = budget.p * budget.q
    small, large = sorted((budget.p, budget.q))
    match curve:
        case "R":
            return 1 - low_rank_share(budget.r / small, small / large)
        case "F1":
            return 1 - 2 * budget.random_locations / n
        case "FourierFT":
            share = budget.random_coefficients / n
            return 1 - (1 - (1 - share) ** 2) / 2
        case "M1" | "F2" | "M2":
            return 1 - location_share(2 * budget.chosen_locations / n)
        case "D" | "F3" | "S":
            return 1 - coefficient_share(budget.chosen_coefficients / n)
        case _:  # U, V1 and RD
            return exact_error(curve, budget)
