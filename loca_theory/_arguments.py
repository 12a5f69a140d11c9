"""Check arguments of public functions, and convert them to plain Python values.

Every function raises InvalidArgumentError for other values; the message names the argument.
"""

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
    """Convert a whole number, or an iterable of them, to a tuple of ``int``."""
    return _converted(argument, values, _indices, "whole numbers")


def numbers(argument: str, values: Any) -> tuple[float, ...]:
    """Convert a number, or an iterable of numbers, to a tuple of ``float``."""
    return _converted(argument, values, lambda some: tuple(map(_float, as_tuple(some))), "numbers")


def ranks(values: Any) -> tuple[int, ...]:
    """Return LoRA ranks without duplicates; they must be positive whole numbers."""
    try:
        found = integers("ranks", values)
    except InvalidArgumentError:
        found = ()
    if not found or min(found) < 1:
        raise InvalidArgumentError(
            f"ranks must be positive whole numbers, not {values!r}; "
            "write for example ranks=8 or ranks=[8, 16]"
        )
    return tuple(dict.fromkeys(found))


def shape(values: Any) -> tuple[int, int]:
    """Return the shape (p, q) of a matrix."""

    def two(some: Any) -> tuple[int, int]:
        p, q = _indices(some)
        return p, q

    return _converted("shape", values, two, "two whole numbers (p, q)")


def path(argument: str, value: Any) -> Path:
    """Return the path of a file or folder."""
    return _converted(argument, value, Path, "a path")


def instance(argument: str, value: Any, kind: type[_T]) -> _T:
    """Return the value if it has the given type."""
    if not isinstance(value, kind):
        raise InvalidArgumentError(f"{argument} must be a {kind.__name__}, not {value!r}")
    return value


def expression(argument: str, value: Any) -> None:
    """Check that an argument is a regular expression, or None."""
    try:
        re.compile("" if value is None else value)
    except (re.error, TypeError) as error:
        raise InvalidArgumentError(
            f"{argument} must be a regular expression, not {value!r}: {error}"
        ) from error


def whole_number(argument: str, value: Any) -> int:
    """Return a whole number as an ``int``."""
    return _converted(argument, value, _index, "a whole number")


def positive_number(argument: str, value: Any) -> int:
    """Return a whole number that is at least 1 as an ``int``."""
    found = whole_number(argument, value)
    if found < 1:
        raise InvalidArgumentError(f"{argument} must be at least 1, not {found}")
    return found


def real_number(argument: str, value: Any) -> float:
    """Return a number as a ``float``."""
    return _converted(argument, value, _float, "a number")


def fields_to_int(specification: object, *fields: str) -> None:
    """Convert fields of a frozen dataclass instance to ``int``, in place."""
    for name in fields:
        object.__setattr__(specification, name, whole_number(name, getattr(specification, name)))


def _index(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    return index(value)


def _indices(values: Any) -> tuple[int, ...]:
    return tuple(map(_index, as_tuple(values)))


def _float(value: Any) -> float:
    if isinstance(value, bool | str):
        raise TypeError
    return float(value)


def _converted(argument: str, value: Any, convert: Callable[[Any], _T], wanted: str) -> _T:
    """The converted value, or an error that says what was wanted of the argument."""
    try:
        return convert(value)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"{argument} must be {wanted}, not {value!r}") from None
