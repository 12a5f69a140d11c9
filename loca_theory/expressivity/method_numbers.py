"""Call a method's functions of budgets, and check the numbers that they return: errors, mostly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from loca_theory._types import Array
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.methods.method import Method, called
from loca_theory.expressivity.methods.registry import find_method


def exact_error(method: str | Method, budget: Budget) -> float:
    r"""Expected relative error :math:`E\|W-\hat W\|^2 / E\|W\|^2` for i.i.d. N(0, 1) entries.

    Args:
        method: A method or its name.
        budget: Shape, rank and accounting.

    Returns:
        The relative error, in [0, 1]; the lower bound can fall below 0 (by s/pq at most).

    Raises:
        InvalidArgumentError: the method is unknown or has no exact value at this shape, or it
            retains more than the matrix holds.

    Source: the displayed expectations of the paper's proof of Theorem 1.

    >>> from loca_theory.expressivity import Budget, exact_error
    >>> round(exact_error("random DCT", Budget(16, 16, 2)), 6)
    0.75
    """
    return float(checked_numbers(find_method(method), "expected_errors", [budget])[0])


def checked_numbers(method: Method, function: str, *arguments: Any) -> Array:
    """Call a function of a method; it must return finite numbers.

    There is one number per budget if an argument is a sequence of budgets, and otherwise a scalar.
    """
    shape = next(((len(argument),) for argument in arguments if isinstance(argument, Sequence)), ())
    answer = called(method, function, *arguments)
    requirement = f"one number per budget, {shape[0]} in all" if shape else "a number"
    try:
        values = np.asarray(answer)
    except (TypeError, ValueError, RuntimeError):
        values = np.array(None)
    if values.dtype.kind not in "iuf" or values.shape != shape:
        description = f"an array of shape {values.shape}" if values.shape else repr(answer)
        raise InvalidArgumentError(
            f"{method.name}.{function} must return {requirement}, not {description}"
        )
    if not np.isfinite(values).all():
        raise InvalidArgumentError(
            f"{method.name}.{function} must return finite numbers, not {answer}"
        )
    return values.astype(np.float64)
