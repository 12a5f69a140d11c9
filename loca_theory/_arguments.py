"""Arguments that take one value or several, as tuples of plain ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import index
from typing import Any, TypeVar, cast

from loca_theory.errors import InvalidArgumentError

_T = TypeVar("_T")


def several(values: _T | Iterable[_T]) -> tuple[_T, ...]:
    """One value or several as a tuple; a text is one value."""
    if isinstance(values, Iterable) and not isinstance(values, str):
        return tuple(values)
    return (cast("_T", values),)


def integers(argument: str, values: Any) -> tuple[int, ...]:
    """One whole number or several, NumPy's as well, as a tuple.

    Args:
        argument: What they are given as, for the message.
        values: The numbers.

    Raises:
        InvalidArgumentError: one is not a whole number.
    """
    return _converted(argument, values, index, "whole numbers")


def numbers(argument: str, values: Any) -> tuple[float, ...]:
    """One number or several, NumPy's as well, as a tuple.

    Args:
        argument: What they are given as, for the message.
        values: The numbers.

    Raises:
        InvalidArgumentError: one is not a number.
    """
    return _converted(argument, values, float, "numbers")


def _converted(
    argument: str, values: Any, convert: Callable[[Any], _T], wanted: str
) -> tuple[_T, ...]:
    try:
        return tuple(convert(value) for value in several(values))
    except (TypeError, ValueError):
        msg = f"{argument} must be {wanted}, not {values!r}"
        raise InvalidArgumentError(msg) from None
