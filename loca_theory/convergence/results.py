"""The tables of the toy experiment, as types."""

from __future__ import annotations

from dataclasses import dataclass

from loca_theory.sweeps import Result
from loca_theory.sweeps import rows as table


@dataclass(frozen=True)
class RecoveryRow:
    """How many problems of one kind one search recovers.

    Attributes:
        search: Name of the search.
        interpretation: Name of the interpretation of what the description leaves open.
        size: K.
        components: Number of components.
        condition: Condition number of the fixed weights; None for Gaussian ones.
        problems: Number of problems.
        recovered: Fraction of them in which all true locations are found.
        low: Lower end of its exact 95% interval.
        high: Upper end.
        mean_found: True locations that are occupied in the end, on average.
        median_final_loss: In units of the loss at ΔW = 0; None where most problems diverged.
        diverged: Number of problems whose loss diverged; they count as not recovered.
        steps: Evaluations of the gradient in each problem.
        seed: Root seed.
    """

    search: str
    interpretation: str
    size: int
    components: int
    condition: float | None
    problems: int
    recovered: float
    low: float
    high: float
    mean_found: float
    median_final_loss: float | None
    diverged: int
    steps: int
    seed: int


@dataclass(frozen=True)
class TraceRow:
    """One component of one problem at one step.

    Attributes:
        case: ``recovered`` or ``not recovered``, by the search that the problem was chosen by.
        chosen_by: Name of that search.
        search: Name of the search whose steps these are.
        problem: Number of the problem.
        size: K.
        kind: ``truth`` for a true component, which stands at step 0; ``learned`` for others.
        step: Evaluations of the gradient so far.
        component: Number of the component.
        row: Its row in the spectrum.
        column: Its column.
        coefficient: Its coefficient; None where it diverged.
        loss: Loss at this step, in units of that at ΔW = 0; None where it diverged.
    """

    case: str
    chosen_by: str
    search: str
    problem: int
    size: int
    kind: str
    step: int
    component: int
    row: int
    column: int
    coefficient: float | None
    loss: float | None


@dataclass(frozen=True, repr=False)
class ToyResult(Result):
    """Rates of recovery in the toy experiment.

    Attributes:
        rows: One row per combination of size, components, condition, interpretation and search.
        traces: Under the first interpretation and kind of problem, the first problem that the
            search to be looked at recovers and the first that it does not, step by step.
    """

    rows: tuple[RecoveryRow, ...] = table(RecoveryRow)
    traces: tuple[TraceRow, ...] = table(TraceRow)
    command = "toy"
