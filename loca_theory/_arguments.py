"""Check arguments of public functions, and convert them to plain Python values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from operator import index
from pathlib import Path
from typing import Any, TypeVar, cast

from loca_theory.errors import InvalidArgumentError

_T = TypeVar("_T")


def as_tuple(values: _T | Iterable[_T]) -> tuple[_T, ...]:
    """Return the values of an iterable as a tuple; any other value, or a string, as a 1-tuple."""
    if isinstance(values, Iterable) and not isinstance(values, str):
        return tuple(values)
    return (cast("_T", values),)


def integers(argument: str, values: Any) -> tuple[int, ...]:
    """Convert a whole number, or an iterable of them, to a tuple of ``int``.

    Args:
        argument: Name of the argument, for the message.
        values: The numbers.

    Raises:
        InvalidArgumentError: a value is not a whole number.
    """
    return _converted(argument, values, _index, "whole numbers")


def numbers(argument: str, values: Any) -> tuple[float, ...]:
    """Convert a number, or an iterable of numbers, to a tuple of ``float``.

    Args:
        argument: Name of the argument, for the message.
        values: The numbers.

    Raises:
        InvalidArgumentError: a value is not a number.
    """
    return _converted(argument, values, _float, "numbers")


def ranks(values: Any) -> tuple[int, ...]:
    """Return LoRA ranks without duplicates.

    Raises:
        InvalidArgumentError: no rank is given, or a rank is not a positive whole number.
    """
    try:
        found = integers("ranks", values)
    except InvalidArgumentError:
        found = ()
    if not found or min(found) < 1:
        msg = f"ranks must be positive whole numbers, not {values!r}; "
        msg += "write for example ranks=8 or ranks=[8, 16]"
        raise InvalidArgumentError(msg)
    return tuple(dict.fromkeys(found))


def shape(values: Any) -> tuple[int, int]:
    """Return the shape (p, q) of a matrix.

    Raises:
        InvalidArgumentError: the value is not two whole numbers.
    """
    try:
        p, q = integers("shape", values)
    except ValueError:  # too many, too few, or not whole
        msg = f"shape must be two whole numbers (p, q), not {values!r}"
        raise InvalidArgumentError(msg) from None
    return p, q


def path(argument: str, value: Any) -> Path:
    """Return the path of a file or folder.

    Raises:
        InvalidArgumentError: the value is not a path.
    """
    try:
        return Path(value)
    except TypeError:
        msg = f"{argument} must be a path, not {value!r}"
        raise InvalidArgumentError(msg) from None


def instance(argument: str, value: Any, kind: type[_T]) -> _T:
    """Return the value if it has the given type.

    Raises:
        InvalidArgumentError: the value has another type.
    """
    if not isinstance(value, kind):
        msg = f"{argument} must be a {kind.__name__}, not {value!r}"
        raise InvalidArgumentError(msg)
    return value


def expression(argument: str, value: Any) -> None:
    """Check that an argument is a regular expression, or None."""
    try:
        re.compile("" if value is None else value)
    except (re.error, TypeError) as error:
        msg = f"{argument} must be a regular expression, not {value!r}: {error}"
        raise InvalidArgumentError(msg) from error


def whole_number(argument: str, value: Any) -> int:
    """Return a whole number as an ``int``.

    Raises:
        InvalidArgumentError: the value is not a whole number.
    """
    try:
        return _index(value)
    except TypeError:
        msg = f"{argument} must be a whole number, not {value!r}"
        raise InvalidArgumentError(msg) from None


def positive_number(argument: str, value: Any) -> int:
    """Return a whole number that is at least 1 as an ``int``.

    Raises:
        InvalidArgumentError: the value is not such a number.
    """
    found = whole_number(argument, value)
    if found < 1:
        msg = f"{argument} must be at least 1, not {found}"
        raise InvalidArgumentError(msg)
    return found


def real_number(argument: str, value: Any) -> float:
    """Return a number as a ``float``.

    Raises:
        InvalidArgumentError: the value is not a number.
    """
    try:
        return _float(value)
    except (TypeError, ValueError):
        msg = f"{argument} must be a number, not {value!r}"
        raise InvalidArgumentError(msg) from None


def fields_to_int(specification: object, *fields: str) -> None:
    """Convert fields of a frozen dataclass instance to ``int``, in place.

    Raises:
        InvalidArgumentError: a field is not a whole number.
    """
    for name in fields:
        object.__setattr__(specification, name, whole_number(name, getattr(specification, name)))


def _index(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    return index(value)


def _float(value: Any) -> float:
    if isinstance(value, bool | str):
        raise TypeError
    return float(value)


def _converted(
    argument: str, values: Any, convert: Callable[[Any], _T], wanted: str
) -> tuple[_T, ...]:
    try:
        return tuple(convert(value) for value in as_tuple(values))
    except (TypeError, ValueError):
        msg = f"{argument} must be {wanted}, not {values!r}"
        raise InvalidArgumentError(msg) from None
