"""The fraction of a budget that methods spend, because not all can spend all of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from loca_theory.expressivity.budgets import Accounting, Budget
from loca_theory.expressivity.methods import Method
from loca_theory.expressivity.methods.method import called
from loca_theory.expressivity.methods.registry import METHODS

# A method that spends a budget to this fraction is compared fairly.
_TOLERANCE = 0.02


def spent(method: Method, budget: Budget) -> float | None:
    """Fraction of a budget that a method spends; None if it is not known.

    A trained number costs 1, and so does an index, except under ``trainable``; under ``bits``
    stored bits are compared. As many numbers as LoRA trains spend the whole budget, also under
    ``dof``.
    """
    if budget.accounting is Accounting.BITS:
        bits = called(method, "stored_bits", budget)
        return None if bits is None else bits / budget.bits
    count = called(method, "parameters", budget)
    if count is None:
        return None
    if count == (budget.p + budget.q) * budget.r:
        return 1.0
    indices = 0 if budget.accounting is Accounting.TRAINABLE else method.indices(budget)
    return (count + indices) / budget.numbers


def off_budget(spent: Iterable[float | None]) -> str:
    """The range of fractions of a budget in per cent, if one is off by over 2%; "" otherwise."""
    fractions = [
        fraction for fraction in spent if fraction is not None and not math.isnan(fraction)
    ]
    low, high = min(fractions, default=1.0), max(fractions, default=1.0)
    if 1 - low <= _TOLERANCE and high - 1 <= _TOLERANCE:
        return ""
    ends = dict.fromkeys((f"{low:.0%}", f"{high:.0%}"))
    return " to ".join(ends)


def off_budgets(names: Iterable[str], budgets: Sequence[Budget]) -> dict[str, str]:
    """In words, what methods of the package spend of budgets where it is off by more than 2%."""
    methods = [METHODS[name] for name in dict.fromkeys(names) if name in METHODS]
    texts = {
        method.name: off_budget(
            spent(method, budget) for budget in budgets if method.exists(budget)
        )
        for method in methods
    }
    return {name: text for name, text in texts.items() if text}
