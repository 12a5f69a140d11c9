"""Tables of the methods of the package, what each costs, and of the coders."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from loca_theory import _arguments
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.coders.registry import CODERS
from loca_theory.expressivity.methods import Method
from loca_theory.expressivity.methods.engine import Engine
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
        first_step: ‖ΔW‖ after the first step of Adam, Frobenius norm, for a gradient of independent
            normal entries and the adapter as PEFT initialises it, LoRA with α = 2r; None without a
            learning rate, or if no formula is known.
        equivalent_lr: The learning rate at which the first step is as large as LoRA's; None as for
            ``first_step``.
    """

    name: str
    title: str
    reference: str
    is_oracle: bool
    engines: tuple[Engine, ...]
    parameters: int | None
    stored_bits: float | None
    first_step: float | None = None
    equivalent_lr: float | None = None


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
    names: str | Method | Iterable[str | Method] | None = None,
    *,
    K: int = 768,
    r: int = 8,
    lr: float | None = None,
) -> MethodTable:
    """Describe the methods: what each costs, and the engines that can evaluate its error.

    Args:
        names: Methods, their names, or ``module:attribute``; None for all methods of the package,
            and its coders.
        K: Size of the square matrix that the costs refer to.
        r: LoRA rank whose budget each method spends there.
        lr: Learning rate of Adam; says how far its first step moves the matrix through each method,
            and which rate of it moves the matrix as far as LoRA at this one.

    Raises:
        InvalidArgumentError: a method is unknown, two have the same name, ``names`` is empty,
            r does not fit K, or lr is not positive.

    >>> import loca_theory as loca
    >>> loca.methods("LoCA").methods[0].title
    "DCT, best coefficients (LoCA's target)"
    >>> loca.methods("C3A", K=768, r=8).methods[0].parameters
    12288
    >>> rate = loca.methods("FourierFT", K=768, r=8, lr=1e-4).methods[0].equivalent_lr
    >>> f"{rate:.1e}"
    '5.9e-04'
    """
    if lr is not None and not 0 < _arguments.real_number("lr", lr) < math.inf:
        raise InvalidArgumentError(f"lr must be positive, not {lr}; choose a value such as 1e-4")
    (size,), (rank,) = _arguments.integers("K", (K,)), _arguments.integers("r", (r,))
    budget = Budget(size, size, rank)
    chosen = tuple(METHODS.values()) if names is None else find_methods(names)
    if not chosen:
        raise InvalidArgumentError("names is empty; name a method, or omit names for all methods")
    grid = {"methods": [method.name for method in chosen], "K": budget.p, "r": budget.r, "lr": lr}
    rows = tuple(_row(method, budget, lr) for method in chosen)
    coders = tuple(
        CoderRow(
            coder.name,
            coder.title,
            coder.reference,
            tuple(transform.value for transform in coder.transforms),
        )
        for coder in CODERS.values()
    )
    return MethodTable(manifest(grid=grid, seed=None), rows, coders if names is None else ())


def _row(method: Method, budget: Budget, lr: float | None) -> MethodRow:
    exists = method.exists(budget)
    step = method.first_step(budget) if exists and lr is not None else None
    of_lora = METHODS["LoRA"].first_step(budget)
    return MethodRow(
        name=method.name,
        title=method.title,
        reference=method.reference,
        is_oracle=method.is_oracle,
        engines=tuple(engine for engine in Engine if engine in method.engines(budget)),
        parameters=method.parameters(budget) if exists else None,
        stored_bits=method.stored_bits(budget) if exists else None,
        first_step=lr * step.frobenius if lr and step else None,
        equivalent_lr=lr * of_lora.frobenius / step.frobenius if lr and step and of_lora else None,
    )
