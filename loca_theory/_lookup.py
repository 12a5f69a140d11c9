"""Look up entries of tables and members of enumerations by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeVar, cast

from loca_theory.errors import InvalidArgumentError

# A message lists so many names, and suggests so many of more.
_LISTED, _NEAREST = 40, 3

_T = TypeVar("_T")
_E = TypeVar("_E", bound=StrEnum)


def find(what: str, name: object, known: Mapping[str, _T]) -> _T:
    """Return the entry with the given name; the error suggests the nearest and lists all.

    ``what`` is the kind of entry, in the singular, for the message.
    """
    try:
        return known[cast("str", name)]
    except (KeyError, TypeError):  # unknown, or not hashable
        raise unknown_name(what, name, known) from None


def unknown_name(what: str, name: object, known: Iterable[str]) -> InvalidArgumentError:
    """The error of an unknown name, which suggests the nearest; of many names, up to three."""
    from difflib import get_close_matches

    of, typed = {one.casefold(): one for one in known}, str(name).casefold()
    are_many = len(of) > _LISTED
    near = get_close_matches(typed, of, _NEAREST if are_many else 1)
    near = near or [one for one in of if typed and typed in one][:_NEAREST]
    names = [of[one] for one in near] if isinstance(name, str) else []
    hint = f"did you mean {' or '.join(names)}? Otherwise " if names else ""
    choice = f"one of {len(of)} names" if are_many else f"from {', '.join(of.values())}"
    return InvalidArgumentError(f"unknown {what} {name!r}; {hint}choose {choice}")


def member(kind: type[_E], what: str, value: object) -> _E:
    """Return the member of an enumeration with the given value; see :func:`find`."""
    return find(what, value, {one.value: one for one in kind})
