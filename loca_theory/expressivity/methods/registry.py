"""The methods that ship with the package, and methods by name."""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from loca_theory._arguments import several
from loca_theory._lookup import find
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.methods import bounds
from loca_theory.expressivity.methods.bases import COSINE, ENTRIES, FOURIER
from loca_theory.expressivity.methods.bounds import Bound
from loca_theory.expressivity.methods.frozen_factors import FrozenFactors
from loca_theory.expressivity.methods.low_rank import ColumnNormalised, LowRank
from loca_theory.expressivity.methods.method import Method
from loca_theory.expressivity.methods.selection import LocationSelection, Selection
from loca_theory.expressivity.methods.subspace import RandomCosines, RandomLocations, Subspace

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        LowRank("R", "LoRA, best rank-r approximation", "arXiv:2106.09685"),
        Bound("U", "random locations, the printed line 1 - N0/pq", error=bounds.printed_line),
        RandomLocations("F1", "Fourier, random locations"),
        Subspace("V1", "DCT, random locations", basis=COSINE),
        RandomCosines(
            "FourierFT",
            "as shipped: real coefficients, random locations of the full spectrum",
            "arXiv:2405.03003",
        ),
        Bound("M1", "upper bracket of F2", error=bounds.upper_bracket, large=bounds.bracket_limit),
        LocationSelection("F2", "Fourier, best locations"),
        Bound("M2", "lower bracket of F2", error=bounds.lower_bracket, large=bounds.bracket_limit),
        Selection("F3", "Fourier, best single coefficients", basis=FOURIER),
        Selection("D", "DCT, best coefficients (LoCA's target)", "arXiv:2502.06820", basis=COSINE),
        Selection("S", "the largest entries of the matrix itself", basis=ENTRIES),
        Bound("RD", "rate-distortion bound at LoRA's stored bits", error=bounds.rate_distortion),
        ColumnNormalised("DoRA", "column magnitudes times a rank-r direction", "arXiv:2402.09353"),
        FrozenFactors("VeRA", "frozen random factors, trained diagonals", "arXiv:2310.11454"),
    )
}
"""The methods by name, in the order of tables and legends."""

DEFAULT_METHODS = tuple(method for method in METHODS.values() if method.defines("limit"))
"""The methods with a formula: those that ``simulate`` compares unless told otherwise."""

_FUNCTIONS = ("approximate", "retained_energies", "expected_errors", "limit", "sample")


def find_method(method: str | Method) -> Method:
    """A method by its name, by ``module:attribute``, or itself.

    Args:
        method: The name of one that ships with the package, the location of one's own (an instance
            of :class:`Method`, or a class that takes no arguments), or an object.

    Raises:
        InvalidArgumentError: there is none of that name, the module does not import or has no such
            attribute, or what is there is not a method with a function.
    """
    if isinstance(method, str):
        if ":" not in method:
            return find("method", method, METHODS)
        found, origin = _imported(method), method
    else:
        kind = method if isinstance(method, type) else type(method)
        found, origin = method, kind.__name__ if issubclass(kind, Method) else repr(method)
    if isinstance(found, type) and issubclass(found, Method):
        try:
            found = found()
        except Exception as error:  # a user's class does anything
            msg = f"{origin}() failed ({type(error).__name__}: {error}); pass an object instead"
            raise InvalidArgumentError(msg) from error
    if not isinstance(found, Method):
        msg = f"{origin} is not a method; subclass loca_theory.Method and give it a name and "
        msg += "approximate(matrix, budget, rng)"
        raise InvalidArgumentError(msg)
    name = getattr(found, "name", None)
    if not (isinstance(name, str) and name and name.isprintable() and "," not in name):
        msg = f"{origin} needs a name: a short text without commas, not {name!r}"
        raise InvalidArgumentError(msg)
    if found is not METHODS.get(name, found):
        msg = f"{origin} is called {name}, as a method of the package is; give it another name"
        raise InvalidArgumentError(msg)
    if not any(map(found.defines, _FUNCTIONS)):
        msg = f"{name} has no function of a method; define approximate(matrix, budget, rng)"
        raise InvalidArgumentError(msg)
    return found


def find_methods(methods: str | Method | Iterable[str | Method]) -> tuple[Method, ...]:
    """Methods as :func:`find_method` finds them, each once.

    Raises:
        InvalidArgumentError: as for :func:`find_method`, or two are of one name.
    """
    found = [find_method(one) for one in several(methods)]
    names = [method.name for method in found]
    for name in names:
        if names.count(name) > 1:
            msg = f"methods names {name} twice; leave one out, or give it another name"
            raise InvalidArgumentError(msg)
    return tuple(found)


def own_titles(methods: Iterable[Method]) -> dict[str, str]:
    """The titles of those methods that do not ship with the package, for a manifest."""
    return {one.name: one.title for one in methods if one.name not in METHODS and one.title}


def definition(method: Method) -> str | None:
    """What tells a user's method from another of its name, so that results can be stored.

    Returns:
        A digest of the object's state and of the file that defines its class; None where there is
        no file, as in a notebook, or the state cannot be pickled.
    """
    path = getattr(sys.modules.get(type(method).__module__), "__file__", None)
    if path is None:
        return None
    try:
        return hashlib.sha256(Path(path).read_bytes() + pickle.dumps(vars(method))).hexdigest()
    except Exception:  # a method may hold anything
        return None


def _imported(spec: str) -> object:
    module, _, attribute = spec.partition(":")
    try:
        value: object = import_module(module)
        for part in attribute.split("."):
            value = getattr(value, part)
    except Exception as error:
        # Whatever the user's module does when it is imported.
        msg = f"cannot import the method {spec} ({type(error).__name__}: {error}); write "
        msg += "module:attribute, of a module that Python finds"
        raise InvalidArgumentError(msg) from error
    return value
