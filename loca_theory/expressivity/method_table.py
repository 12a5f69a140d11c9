"""Tables of the methods of the package, what each costs, and of the coders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from loca_theory import _arguments
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.coders.registry import CODERS
from loca_theory.expressivity.methods import Method
from loca_theory.expressivity.methods.method import Engine
from loca_theory.expressivity.methods.registry import METHODS, find_methods
from loca_theory.sweeps import Result
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.results import rows


@dataclass(frozen=True)
class MethodRow:
    """Description of one method.

    Attributes:
        name: Short name of the method.
        title: Title in a few words.
        reference: Publication; "" if the paper or this package defines the method.
        is_oracle: Whether the method needs W, which training does not know; see :class:`Method`.
        engines: Engines that can evaluate its error at the budget of the table.
        parameters: Trained numbers at the budget of the table; None if they are not known, or the
            method does not exist there.
        stored_bits: Bits of the stored adapter; None as for ``parameters``.
    """

    name: str
    title: str
    reference: str
    is_oracle: bool
    engines: tuple[Engine, ...]
    parameters: int | None
    stored_bits: float | None


@dataclass(frozen=True)
class CoderRow:
    """Description of one coder, which stores a matrix in few bits.

    Attributes:
        name: Name of the coder.
        title: Title in a few words.
        reference: Publication; "" if this package defines the coder.
        transforms: What can be coded: the entries (``none``), or coordinates in other bases; empty
            for a bound.
    """

    name: str
    title: str
    reference: str
    transforms: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class MethodTable(Result):
    """Methods and coders, in the order of tables and legends.

    Attributes:
        methods: One row per method.
        coders: One row per coder that ``analyze(bits=…)`` compares.
    """

    methods: tuple[MethodRow, ...] = rows(MethodRow)
    coders: tuple[CoderRow, ...] = rows(CoderRow)
    command = "methods"
    names = ("name",)


def methods(
    names: str | Method | Iterable[str | Method] | None = None, *, K: int = 768, r: int = 8
) -> MethodTable:
    """Describe the methods: what each costs, and the engines that can evaluate its error.

    Args:
        names: Methods, their names, or ``module:attribute``; None for all methods of the package,
            and its coders.
        K: Size of the square matrix that the costs refer to.
        r: LoRA rank whose budget each method spends there.

    Raises:
        InvalidArgumentError: a method is unknown, two have the same name, ``names`` is empty, or
            r does not fit K.

    >>> import loca_theory as loca
    >>> loca.methods("D").methods[0].title
    "DCT, best coefficients (LoCA's target)"
    >>> loca.methods("C3A", K=768, r=8).methods[0].parameters
    12288
    """
    (size,), (rank,) = _arguments.integers("K", (K,)), _arguments.integers("r", (r,))
    budget = Budget(size, size, rank)
    found = tuple(METHODS.values()) if names is None else find_methods(names)
    if not found:
        msg = "names is empty; name a method, or omit names for all methods"
        raise InvalidArgumentError(msg)
    grid = {"methods": [method.name for method in found], "K": budget.p, "r": budget.r}
    rows = tuple(_row(method, budget) for method in found)
    coders = tuple(
        CoderRow(one.name, one.title, one.reference, tuple(each.value for each in one.transforms))
        for one in CODERS.values()
    )
    return MethodTable(manifest(grid=grid, seed=None), rows, coders if names is None else ())


def _row(method: Method, budget: Budget) -> MethodRow:
    engines = tuple(engine for engine in Engine if engine in method.engines(budget))
    exists = method.exists(budget)
    return MethodRow(
        *(method.name, method.title, method.reference, method.is_oracle, engines),
        parameters=method.parameters(budget) if exists else None,
        stored_bits=method.stored_bits(budget) if exists else None,
    )
