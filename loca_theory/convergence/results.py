"""Row and result types of the toy experiment."""

from __future__ import annotations

from dataclasses import dataclass

from loca_theory.sweeps import Result
from loca_theory.sweeps.results import rows as table


@dataclass(frozen=True)
class RecoveryRow:
    """Recovery rate of one search on one kind of problem.

    Attributes:
        search: Name of the search.
        interpretation: How the paper's description of the toy problem is understood.
        size: K.
        components: Number of components.
        condition: Condition number of the fixed weights; None for Gaussian ones.
        problems: Number of problems.
        recovered: Fraction of problems in which all true locations are found.
        low: Lower end of the exact 95% interval of ``recovered``.
        high: Upper end of that interval.
        mean_found: Mean number of true locations that are occupied at the end.
        median_final_loss: In units of the loss at ΔW = 0; None if most problems diverged.
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
        case: Whether the search ``chosen_by`` ``recovered`` or ``not recovered`` the problem.
        chosen_by: Name of the search by whose outcome the problem was chosen.
        search: Name of the search that is traced.
        problem: Number of the problem.
        size: K.
        kind: ``truth`` for a true component, which has step 0; ``learned`` for others.
        step: Evaluations of the gradient so far.
        component: Number of the component.
        row: Its row in the spectrum.
        column: Its column.
        coefficient: Its coefficient; None if it diverged.
        loss: Loss at this step, in units of the loss at ΔW = 0; None if it diverged.
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
    """Recovery rates in the toy experiment.

    Attributes:
        rows: One row per combination of size, components, condition, interpretation and search.
        traces: Step by step, the first problem that one search recovers and the first that it does
            not, under the first interpretation and for the first kind of problem.
    """

    rows: tuple[RecoveryRow, ...] = table(RecoveryRow)
    traces: tuple[TraceRow, ...] = table(TraceRow)
    command = "toy"
