"""Look up entries of tables, members of enumerations and objects of users' classes."""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Iterable, Mapping
from enum import StrEnum
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import TypeVar, cast

from loca_theory.errors import InvalidArgumentError

# A message lists so many names, fewer beside a suggestion, and suggests so many of more.
_LISTED, _LISTED_BESIDE, _NEAREST = 50, 30, 3

_T = TypeVar("_T")
_E = TypeVar("_E", bound=StrEnum)


def find(what: str, name: object, known: Mapping[str, _T]) -> _T:
    """Return the entry with the given name; the error suggests the nearest or lists all.

    ``what`` is the kind of entry, in the singular, for the message.
    """
    try:
        return known[cast("str", name)]
    except (KeyError, TypeError):  # unknown, or not hashable
        raise unknown_name(what, name, known) from None


def unknown_name(what: str, name: object, known: Iterable[str]) -> InvalidArgumentError:
    """The error of an unknown name, which suggests the nearest; of many names, up to three."""
    names = list(dict.fromkeys(known))
    are_many = len(names) > _LISTED
    near = nearest(name, names, _NEAREST if are_many else 1)
    hint = f"did you mean {' or '.join(near)}? Otherwise " if near else ""
    is_long = len(names) > (_LISTED_BESIDE if near else _LISTED)
    choice = f"one of {len(names)} names" if is_long else f"from {', '.join(names)}"
    return InvalidArgumentError(f"unknown {what} {name!r}; {hint}choose {choice}")


def nearest(name: object, known: Iterable[str], count: int = _NEAREST) -> list[str]:
    """The known names that are most like one, in any case of letters; else those that hold it."""
    from difflib import get_close_matches

    if not isinstance(name, str):
        return []
    of, typed = {one.casefold(): one for one in known}, name.casefold()
    near = get_close_matches(typed, of, count)
    near = near or [one for one in of if typed and typed in one][:_NEAREST]
    return [of[one] for one in near]


def member(kind: type[_E], what: str, value: object) -> _E:
    """Return the member of an enumeration with the given value; see :func:`find`."""
    return find(what, value, {one.value: one for one in kind})


def named_object(what: str, kind: type[_T], given: object, way_out: str) -> tuple[_T, str]:
    """An object with a name: itself, made by its class, or found as ``module:attribute``.

    Args:
        what: The kind of object in the singular, for messages.
        kind: Its base class.
        given: What stands for it.
        way_out: What to subclass and to give it, for messages.

    Returns:
        The object, and what stood for it.
    """
    if isinstance(given, str):
        found, origin = _imported(what, given), given
    else:
        its_class = given if isinstance(given, type) else type(given)
        found, origin = given, its_class.__name__ if issubclass(its_class, kind) else repr(given)
    if isinstance(found, type) and issubclass(found, kind):
        try:
            found = found()
        except Exception as error:  # a user's class may raise anything
            raise InvalidArgumentError(
                f"{origin}() failed ({type(error).__name__}: {error}); pass an object instead"
            ) from error
    if not isinstance(found, kind):
        raise InvalidArgumentError(f"{origin} is not a {what}; subclass {way_out}")
    name = getattr(found, "name", None)
    if not (isinstance(name, str) and name and name.isprintable() and "," not in name):
        raise InvalidArgumentError(
            f"{origin} needs a name: a short text without commas, not {name!r}"
        )
    return found, origin


def _imported(what: str, spec: str) -> object:
    module, _, attribute = spec.partition(":")
    try:
        return attrgetter(attribute)(import_module(module))
    except Exception as error:
        # Importing a user's module may raise anything.
        raise InvalidArgumentError(
            f"cannot import the {what} {spec} ({type(error).__name__}: {error}); write "
            "module:attribute with a module that Python can import"
        ) from error


def definition(instance: object) -> str | None:
    """Digest that distinguishes an object of a user's class from another of the same name.

    Returns:
        A digest of its class, its state and the file that defines the class; None if there is no
        file, as in a notebook, or the state cannot be pickled.
    """
    path = getattr(sys.modules.get(type(instance).__module__), "__file__", None)
    if path is None:
        return None
    state = type(instance).__qualname__, vars(instance)
    try:
        return hashlib.sha256(Path(path).read_bytes() + pickle.dumps(state)).hexdigest()
    except Exception:  # pickling a user's object may raise anything
        return None
