"""The methods of the package as a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.methods import METHODS, Engine, Method, find_methods
from loca_theory.sweeps import Result, manifest, rows

# As large as the layers of large models.
_LARGE = 4096


@dataclass(frozen=True)
class MethodRow:
    """One method.

    Attributes:
        method: Its short name.
        title: What it is, in a few words.
        reference: Where it was published; "" for what the paper or this package defines.
        is_oracle: Whether it has to see W, as no training does; see :class:`Method`.
        engines: What can evaluate its error at every size.
    """

    method: str
    title: str
    reference: str
    is_oracle: bool
    engines: tuple[Engine, ...]


@dataclass(frozen=True, repr=False)
class MethodTable(Result):
    """Methods, in the order of tables and legends.

    Attributes:
        rows: One row per method.
    """

    rows: tuple[MethodRow, ...] = rows(MethodRow)
    command = "methods"


def methods(names: str | Method | Iterable[str | Method] | None = None) -> MethodTable:
    """What each method is, and what can evaluate its error.

    Args:
        names: Methods, their names, or ``module:attribute``; None for all that ship with the
            package.

    Raises:
        InvalidArgumentError: a method is unknown, two are of one name, or there is none.

    >>> import loca_theory as loca
    >>> loca.methods("D").rows[0].title
    "DCT, best coefficients (LoCA's target)"
    """
    found = tuple(METHODS.values()) if names is None else find_methods(names)
    if not found:
        msg = "names is empty; name a method, or leave it out for all"
        raise InvalidArgumentError(msg)
    origin = manifest(grid={"methods": [method.name for method in found]}, seed=None)
    return MethodTable(origin, tuple(_row(method) for method in found))


def _row(method: Method) -> MethodRow:
    known = method.engines(_LARGE, _LARGE)
    return MethodRow(
        method=method.name,
        title=method.title,
        reference=method.reference,
        is_oracle=method.is_oracle,
        engines=tuple(engine for engine in Engine if engine in known),
    )
