"""Functions that find methods by name."""

from __future__ import annotations

from collections.abc import Iterable

from loca_theory._arguments import as_tuple
from loca_theory._lookup import definition, find, named_object
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.methods.catalogue import METHODS
from loca_theory.expressivity.methods.method import Method
from loca_theory.expressivity.methods.names import DEFAULT_NAMES, known_name

DEFAULT_METHODS = tuple(METHODS[name] for name in DEFAULT_NAMES)
"""The methods which ``simulate`` compares by default: LoRA, LoCA, their rivals and two bounds."""

_OWN = "loca_theory.Method and give it a name and approximate(matrix, budget, rng)"
_FUNCTIONS = ("approximate", "retained_energies", "expected_errors", "limit", "sample")


def find_method(method: str | Method) -> Method:
    """Find a method by its name or by ``module:attribute``, or check a given one."""
    if isinstance(method, str) and ":" not in method:
        return find("method", known_name(method), METHODS)
    candidate, origin = named_object("method", Method, method, _OWN)
    name = candidate.name
    if candidate is not (registered := METHODS.get(known_name(name), candidate)):
        # A worker process receives copies of the package's methods.
        if (type(registered), vars(registered)) == (type(candidate), vars(candidate)):
            return registered
        raise InvalidArgumentError(
            f"{origin} has the name {name} of a method of the package; give it another name"
        )
    if not any(map(candidate.defines, _FUNCTIONS)):
        raise InvalidArgumentError(
            f"{name} defines no function of a method; add approximate(matrix, budget, rng)"
        )
    return candidate


def find_methods(methods: str | Method | Iterable[str | Method]) -> tuple[Method, ...]:
    """Find several methods as :func:`find_method` does."""
    chosen = [find_method(method) for method in as_tuple(methods)]
    names = [method.name for method in chosen]
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgumentError(
                f"methods names {name} twice; leave one out, or give it another name"
            )
    return tuple(chosen)


def existing_methods(budgets: Iterable[Budget]) -> dict[str, str]:
    """The methods of the package, and why one does not exist at some of the budgets.

    Returns:
        For each method, by name, "" if it exists at every budget, and otherwise the reason.
    """
    reasons = dict.fromkeys(METHODS, "")
    for budget in budgets:
        for name, method in METHODS.items():
            try:
                method.check_budget(budget)
            except InvalidArgumentError as error:
                reasons[name] = reasons[name] or str(error)
    return reasons


def names_of(methods: Iterable[Method]) -> list[str]:
    """The names of methods, for a manifest."""
    return [method.name for method in methods]


def own_titles(methods: Iterable[Method]) -> dict[str, dict[str, str]]:
    """For a manifest: ``titles`` of the methods that are not part of the package, if any."""
    titles = {
        method.name: method.title
        for method in methods
        if method.name not in METHODS and method.title
    }
    return {"titles": titles} if titles else {}


def identity(method: Method) -> str | dict[str, str | None]:
    """The name of a method of the package, or the name and definition of a user's own method."""
    if method.name in METHODS:
        return method.name
    return {"name": method.name, "definition": definition(method)}


def identities(methods: Iterable[Method]) -> list[str | dict[str, str | None]]:
    """The :func:`identity` of each method."""
    return [identity(method) for method in methods]


def is_recognisable(method: Method) -> bool:
    """Whether a stored result of the method can be told from one of another definition."""
    return method.name in METHODS or definition(method) is not None
