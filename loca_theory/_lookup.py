"""Look up entries of tables and members of enumerations by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeVar, cast

from loca_theory.errors import InvalidArgumentError

_T = TypeVar("_T")
_E = TypeVar("_E", bound=StrEnum)


def find(what: str, name: object, known: Mapping[str, _T]) -> _T:
    """Return the entry with the given name.

    Args:
        what: Kind of entry, in the singular, for the message.
        name: Name of the entry.
        known: The table.

    Raises:
        InvalidArgumentError: the name is unknown; the message suggests the nearest name and lists
            all.
    """
    try:
        return known[cast("str", name)]
    except (KeyError, TypeError):  # unknown, or not hashable
        raise unknown_name(what, name, known) from None


def unknown_name(what: str, name: object, known: Iterable[str]) -> InvalidArgumentError:
    """The error of an unknown name, which suggests the nearest."""
    from difflib import get_close_matches

    of = {one.casefold(): one for one in known}
    nearest = get_close_matches(name.casefold(), of, 1) if isinstance(name, str) else []
    hint = f"did you mean {of[nearest[0]]}? Otherwise " if nearest else ""
    msg = f"unknown {what} {name!r}; {hint}choose from {', '.join(of.values())}"
    return InvalidArgumentError(msg)


def member(kind: type[_E], what: str, value: object) -> _E:
    """Return the member of an enumeration with the given value.

    Args:
        kind: The enumeration.
        what: Kind of member, in the singular, for the message.
        value: Value of the member.

    Raises:
        InvalidArgumentError: the value is unknown; the message lists the known values.
    """
    return find(what, value, {one.value: one for one in kind})
