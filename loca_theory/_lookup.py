"""Finding by name what is listed in a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from loca_theory.errors import InvalidArgumentError

_T = TypeVar("_T")


def find(what: str, name: str, known: Mapping[str, _T]) -> _T:
    """The entry of that name.

    Args:
        what: What is listed, in the singular, for the message.
        name: Which.
        known: The table.

    Raises:
        InvalidArgumentError: there is none; the message lists those there are.
    """
    try:
        return known[name]
    except KeyError:
        msg = f"unknown {what} {name!r}; choose from {', '.join(known)}"
        raise InvalidArgumentError(msg) from None
