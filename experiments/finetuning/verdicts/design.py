"""The design of the experiments: what is compared, by which runs, and what they cost."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

KINDS = ("greater", "equivalent", "not-worse")
MEASURES = ("accuracy", "loss")


@dataclass(frozen=True)
class Arm:
    """Runs that are alike except for task and seed.

    Attributes:
        method: Name of the method.
        r: The budget as a rank of LoRA; None for the task's own.
        setting: Which setting of LoCA differs from the default; empty if none does.
        value: Value of this setting; for ``rate`` in steps of the grid from the rate chosen.
    """

    method: str
    r: int | None = None
    setting: str = ""
    value: float = 0.0

    @property
    def is_tuned(self) -> bool:
        """Whether its learning rate is chosen for it; otherwise it has that of the default."""
        return not self.setting


@dataclass(frozen=True)
class Comparison:
    """A comparison of two sides, each the mean of one or several arms.

    Attributes:
        name: Name of the comparison.
        family: Name of the family whose error rate is controlled.
        question: What it asks, in one sentence.
        kind: What the paper says: ``greater``, ``equivalent`` or ``not-worse``.
        method: Arms of the method that the paper speaks for.
        over: Arms that it is compared with.
        margin: Smallest difference worth knowing, in percentage points (``accuracy``) or per cent
            of the loss (``loss``).
        margin_from: Where the margin is from.
        tasks: Names of the tasks.
        seeds: Number of seeds of every task.
        standard_deviation: Planned standard deviation of paired differences within a task.
        spread_from: Where that is from.
        between: Standard deviations of true differences between tasks for which power is shown.
        measure: ``accuracy`` or ``loss``.
        claims: Claims of the ledger that it decides.
    """

    name: str
    family: str
    question: str
    kind: str
    method: tuple[Arm, ...]
    over: tuple[Arm, ...]
    margin: float
    margin_from: str
    tasks: tuple[str, ...]
    seeds: int
    standard_deviation: float
    spread_from: str
    between: tuple[float, ...]
    measure: str = "accuracy"
    claims: tuple[str, ...] = ()


@dataclass(frozen=True)
class Family:
    """Comparisons that answer one question, and share a family-wise error rate."""

    title: str
    reason: str


@dataclass(frozen=True)
class VariedSetting:
    """A setting that is varied alone, shown as a curve without a verdict."""

    method: str
    setting: str
    values: tuple[float, ...]

    @property
    def arms(self) -> tuple[Arm, ...]:
        """One arm per value."""
        return tuple(Arm(self.method, None, self.setting, value) for value in self.values)


@dataclass(frozen=True)
class Cost:
    """Runs of an experiment and their CPU hours."""

    runs: int
    hours: float


@dataclass(frozen=True)
class Design:
    """Everything that is fixed before the runs.

    Attributes:
        fixed: Date of the design.
        analysis: The analysis in words.
        families: Families by name.
        comparisons: The comparisons, in the order of their value per hour.
        context: Methods that are run at the task's own budget for orientation.
        curves: Settings that are varied.
        undecided: Why some claims are not decided, by claim.
        tasks: Tasks of all comparisons that do not name theirs.
        seeds: Number of result seeds by task; ``""`` for every other task.
        tuning_seeds: Number of seeds on which rates are chosen.
        rates: Number of rates that are tried.
        seconds: Planned CPU seconds of a run by task; ``""`` for every other task.
        hours: CPU hours that all runs may take.
        wanted_power: Power for which the number of seeds is computed.
    """

    fixed: date
    analysis: str
    families: Mapping[str, Family]
    comparisons: tuple[Comparison, ...]
    context: tuple[str, ...]
    curves: tuple[VariedSetting, ...]
    undecided: Mapping[str, str]
    tasks: tuple[str, ...]
    seeds: Mapping[str, int]
    tuning_seeds: int
    rates: int
    seconds: Mapping[str, float]
    hours: float
    wanted_power: float

    def members(self, family: str) -> tuple[Comparison, ...]:
        """The comparisons of a family."""
        return tuple(one for one in self.comparisons if one.family == family)

    def arms(self) -> dict[tuple[str, Arm], int]:
        """Number of seeds of every task and arm, in the order of the comparisons.

        Arms of different comparisons are often the same runs, and are listed once.
        """
        found: dict[tuple[str, Arm], int] = {}
        for one in self.comparisons:
            for task in one.tasks:
                for arm in (*one.method, *one.over):
                    found[task, arm] = max(one.seeds, found.get((task, arm), 0))
        others = [Arm(name) for name in self.context]
        others += [arm for curve in self.curves for arm in curve.arms]
        for task in self.tasks:
            for arm in others:
                found.setdefault((task, arm), for_task(self.seeds, task))
        return found

    def cost(self, comparisons: Collection[Comparison] | None = None) -> Cost:
        """Cost of all runs, or of those that some comparisons need, with the choice of rates."""
        if comparisons is None:
            wanted = self.arms()
        else:
            wanted = {
                (task, arm): one.seeds
                for one in comparisons
                for task in one.tasks
                for arm in (*one.method, *one.over)
            }
        runs, seconds = 0, 0.0
        for (task, arm), seeds in wanted.items():
            mine = seeds + (self.rates * self.tuning_seeds if arm.is_tuned else 0)
            runs += mine
            seconds += mine * for_task(self.seconds, task)
        return Cost(runs, seconds / 3600)


def for_task(values: Mapping[str, Any], task: str) -> Any:
    """The value of a task, or that of every other task."""
    return values.get(task, values[""])
