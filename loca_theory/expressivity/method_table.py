"""Table of the methods of the package."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.methods import METHODS, Engine, Method, find_methods
from loca_theory.sweeps import Result, manifest, rows

_TYPICAL = Budget(768, 768, 8)


@dataclass(frozen=True)
class MethodRow:
    """Description of one method.

    Attributes:
        method: Short name of the method.
        title: Title in a few words.
        reference: Publication; "" if the paper or this package defines the method.
        is_oracle: Whether the method needs W, which training does not know; see :class:`Method`.
        engines: Engines that can evaluate its error at K = 768, r = 8.
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
    """Describe the methods, and list the engines that can evaluate their errors.

    Args:
        names: Methods, their names, or ``module:attribute``; None for all methods of the package.

    Raises:
        InvalidArgumentError: a method is unknown, two have the same name, or ``names`` is empty.

    >>> import loca_theory as loca
    >>> loca.methods("D").rows[0].title
    "DCT, best coefficients (LoCA's target)"
    """
    found = tuple(METHODS.values()) if names is None else find_methods(names)
    if not found:
        msg = "names is empty; name a method, or omit names for all methods"
        raise InvalidArgumentError(msg)
    grid = {"methods": [method.name for method in found]}
    return MethodTable(manifest(grid=grid, seed=None), tuple(_row(method) for method in found))


def _row(method: Method) -> MethodRow:
    known = method.engines(_TYPICAL)
    return MethodRow(
        method=method.name,
        title=method.title,
        reference=method.reference,
        is_oracle=method.is_oracle,
        engines=tuple(engine for engine in Engine if engine in known),
    )
