"""Exact expected error of one method at one budget."""

from __future__ import annotations

from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.methods import Method
from loca_theory.expressivity.methods.method import checked_numbers
from loca_theory.expressivity.methods.registry import find_method


def exact_error(method: str | Method, budget: Budget) -> float:
    r"""Expected relative error :math:`E\|W-\hat W\|^2 / E\|W\|^2` for i.i.d. N(0, 1) entries.

    Args:
        method: A method or its name.
        budget: Shape, rank and accounting.

    Returns:
        The relative error, in [0, 1]; the bound M2 can fall below 0 (by s/pq at most).

    Raises:
        InvalidArgumentError: the method is unknown or has no exact value at this shape, or it
            retains more than the matrix holds.

    Source: the displayed expectations of the paper's proof of Theorem 1.

    >>> from loca_theory.expressivity import Budget, exact_error
    >>> round(exact_error("V1", Budget(16, 16, 2)), 6)
    0.75
    """
    return float(checked_numbers(find_method(method), "expected_errors", [budget])[0])
