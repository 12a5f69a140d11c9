"""Arguments of public functions as plain values; one line of what is wrong with any other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import index
from pathlib import Path
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
    return _converted(argument, values, _index, "whole numbers")


def numbers(argument: str, values: Any) -> tuple[float, ...]:
    """One number or several, NumPy's as well, as a tuple.

    Args:
        argument: What they are given as, for the message.
        values: The numbers.

    Raises:
        InvalidArgumentError: one is not a number.
    """
    return _converted(argument, values, _float, "numbers")


def ranks(values: Any) -> tuple[int, ...]:
    """LoRA ranks, each once.

    Raises:
        InvalidArgumentError: there are none, or one is not a whole number from 1 on.
    """
    try:
        found = integers("ranks", values)
    except InvalidArgumentError:
        found = ()
    if not found or min(found) < 1:
        msg = f"ranks must be whole numbers from 1 on, not {values!r}; write ranks=8"
        raise InvalidArgumentError(msg)
    return tuple(dict.fromkeys(found))


def shape(values: Any) -> tuple[int, int]:
    """The shape (p, q) of a matrix.

    Raises:
        InvalidArgumentError: it is not two whole numbers.
    """
    try:
        p, q = integers("shape", values)
    except ValueError:  # too many, too few, or not whole
        msg = f"shape must be two whole numbers (p, q), not {values!r}"
        raise InvalidArgumentError(msg) from None
    return p, q


def path(argument: str, value: Any) -> Path:
    """A file or folder.

    Raises:
        InvalidArgumentError: it is not a path.
    """
    try:
        return Path(value)
    except TypeError:
        msg = f"{argument} must be a path, not {value!r}"
        raise InvalidArgumentError(msg) from None


def instance(argument: str, value: Any, kind: type[_T]) -> _T:
    """An object of one of the package's types.

    Raises:
        InvalidArgumentError: it is of another type.
    """
    if not isinstance(value, kind):
        msg = f"{argument} must be a {kind.__name__}, not {value!r}"
        raise InvalidArgumentError(msg)
    return value


def whole(argument: str, value: Any) -> int:
    """A plain whole number.

    Raises:
        InvalidArgumentError: it is not one.
    """
    try:
        return _index(value)
    except TypeError:
        msg = f"{argument} must be a whole number, not {value!r}"
        raise InvalidArgumentError(msg) from None


def real(argument: str, value: Any) -> float:
    """A plain number.

    Raises:
        InvalidArgumentError: it is not one.
    """
    try:
        return _float(value)
    except (TypeError, ValueError):
        msg = f"{argument} must be a number, not {value!r}"
        raise InvalidArgumentError(msg) from None


def make_whole(specification: object, *fields: str) -> None:
    """Turn fields of a frozen specification into plain whole numbers.

    Raises:
        InvalidArgumentError: one is not a whole number.
    """
    for name in fields:
        object.__setattr__(specification, name, whole(name, getattr(specification, name)))


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
        return tuple(convert(value) for value in several(values))
    except (TypeError, ValueError):
        msg = f"{argument} must be {wanted}, not {values!r}"
        raise InvalidArgumentError(msg) from None
