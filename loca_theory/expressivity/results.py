"""Row and result types of a comparison of methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.methods import Method
from loca_theory.expressivity.methods.engine import Engine
from loca_theory.expressivity.monte_carlo import Sampler
from loca_theory.expressivity.spending import spent
from loca_theory.sweeps import Result
from loca_theory.sweeps.results import rows


class MeanError(NamedTuple):
    """The fields that an engine adds to an :class:`ErrorRow`."""

    error: float
    standard_error: float | None
    draws: int | None = None
    seed: int | None = None
    sampler: Sampler | None = None


@dataclass(frozen=True)
class ErrorRow:
    """The error of one method at one shape and rank, from one engine.

    Attributes:
        K: Size of a square matrix; None otherwise.
        p: Rows.
        q: Columns.
        r: LoRA's rank, which sets the budget.
        method: Name of the method.
        numbers: Numbers that it spends of the budget, with the indices that are charged; under
            ``bits``, what its bits would store. None if it is not known, as for bounds.
        spent: Fraction of the budget that it spends; None as for ``numbers``.
        engine: How the error was obtained.
        error: Relative error ‖W − Ŵ‖²/‖W‖²: its expectation, or the mean of the draws.
        standard_error: Standard error of the mean; 0 for exact values, None if it is unknown.
        draws: Number of Monte Carlo draws; None if nothing was drawn.
        seed: Root seed; None if nothing was drawn.
        sampler: Sampler of the draws; None if nothing was drawn.
    """

    K: int | None
    p: int
    q: int
    r: int
    method: str
    numbers: int | None
    spent: float | None
    engine: Engine
    error: float
    standard_error: float | None
    draws: int | None = None
    seed: int | None = None
    sampler: Sampler | None = None

    @classmethod
    def of(cls, method: Method, budget: Budget, engine: Engine, error: MeanError) -> ErrorRow:
        """The row of a method at a budget, with the error from an engine."""
        fraction = spent(method, budget)
        return cls(
            K=budget.p if budget.p == budget.q else None,
            p=budget.p,
            q=budget.q,
            r=budget.r,
            method=method.name,
            numbers=None if fraction is None else round(fraction * budget.numbers),
            spent=fraction,
            engine=engine,
            **error._asdict(),
        )


@dataclass(frozen=True, repr=False)
class SimulationResult(Result):
    """Reconstruction errors of the compared methods.

    Attributes:
        rows: One row per error, in order of shape, rank, method and engine.
    """

    rows: tuple[ErrorRow, ...] = rows(ErrorRow)
    command = "simulate"
