"""Finding by name what is listed in a table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar, cast

from loca_theory.errors import InvalidArgumentError

_T = TypeVar("_T")
_E = TypeVar("_E", bound=StrEnum)


def find(what: str, name: object, known: Mapping[str, _T]) -> _T:
    """The entry of that name.

    Args:
        what: What is listed, in the singular, for the message.
        name: Which.
        known: The table.

    Raises:
        InvalidArgumentError: there is none; the message lists those there are.
    """
    try:
        return known[cast("str", name)]
    except (KeyError, TypeError):  # nothing of that name, or not a name at all
        msg = f"unknown {what} {name!r}; choose from {', '.join(known)}"
        raise InvalidArgumentError(msg) from None


def member(kind: type[_E], what: str, value: object) -> _E:
    """The member of an enumeration with that value.

    Args:
        kind: The enumeration.
        what: What it lists, in the singular, for the message.
        value: Which.

    Raises:
        InvalidArgumentError: there is none; the message lists those there are.
    """
    return find(what, value, {one.value: one for one in kind})
