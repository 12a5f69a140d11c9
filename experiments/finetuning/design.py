"""The design of the experiments, read from ``experiments/design.toml`` and checked."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from experiments.finetuning.methods import methods as known_methods
from experiments.finetuning.settings import task_names
from loca_theory.errors import InvalidArgumentError, ResourceError

DESIGN = Path(__file__).parents[1] / "design.toml"
KINDS = ("greater", "equivalent", "not-worse")
MEASURES = ("accuracy", "loss")
# Settings of LoCA that runs may differ in, and which are columns of their tables.
SETTINGS = ("scaling", "alternating", "location_rate")
_RATE = "rate"
_LEAST_MARGIN = 0.5


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
        standard_deviation_from: Where that is from.
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
    standard_deviation_from: str
    between: tuple[float, ...]
    measure: str = "accuracy"
    claims: tuple[str, ...] = ()


@dataclass(frozen=True)
class Family:
    """Comparisons that answer one question, and share a family-wise error rate."""

    title: str
    reason: str


@dataclass(frozen=True)
class Curve:
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
        wanted_power: Power that the smallest detectable difference has.
    """

    fixed: date
    analysis: str
    families: Mapping[str, Family]
    comparisons: tuple[Comparison, ...]
    context: tuple[str, ...]
    curves: tuple[Curve, ...]
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
                found.setdefault((task, arm), _of(self.seeds, task))
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
            seconds += mine * _of(self.seconds, task)
        return Cost(runs, seconds / 3600)


def _of(values: Mapping[str, Any], task: str) -> Any:
    return values.get(task, values[""])


def read_design(
    path: Path = DESIGN,
    *,
    methods: Collection[str] | None = None,
    tasks: Collection[str] | None = None,
) -> Design:
    """Read a design and check that it can be run.

    Args:
        path: The TOML file.
        methods: Names of known methods; None for those of ``methods.toml``.
        tasks: Names of known tasks; None for those of ``tasks.toml``.

    Raises:
        ResourceError: the file cannot be read.
        InvalidArgumentError: an entry is missing or unknown, or a number is out of range.
    """
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        msg = f"{path} cannot be read as a design ({error}); give a TOML file"
        raise ResourceError(msg) from error
    try:
        design = _parsed(given)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        msg = f"{path.name} is not a complete design ({type(error).__name__}: {error}); "
        msg += "compare it with experiments/design.toml"
        raise InvalidArgumentError(msg) from error
    _check(
        design,
        known_methods() if methods is None else methods,
        task_names() if tasks is None else tasks,
    )
    return design


def _parsed(given: Mapping[str, Any]) -> Design:
    seeds = dict(given["seeds"])
    seconds = dict(given["cost"])
    tuning, rates = seeds.pop("tuning"), seeds.pop("rates")
    hours = seconds.pop("hours")
    seeds[""], seconds[""] = seeds.pop("results"), seconds.pop("seconds")
    tasks = tuple(given["tasks"]["all"])
    return Design(
        fixed=given["date"],
        analysis=given["analysis"].strip(),
        families={name: Family(**entry) for name, entry in given["families"].items()},
        comparisons=tuple(
            _comparison({"between": given["power"]["between"], **entry}, tasks, seeds)
            for entry in given["comparisons"]
        ),
        context=tuple(given["context"]["methods"]),
        curves=tuple(
            Curve(entry["method"], entry["setting"], tuple(entry["values"]))
            for entry in given["curves"]
        ),
        undecided={entry["claim"]: entry["reason"] for entry in given["undecided"]},
        tasks=tasks,
        seeds=seeds,
        tuning_seeds=tuning,
        rates=rates,
        seconds=seconds,
        hours=hours,
        wanted_power=given["power"]["wanted"],
    )


def _comparison(
    entry: dict[str, Any], tasks: tuple[str, ...], seeds: Mapping[str, int]
) -> Comparison:
    name, setting = entry.pop("method"), entry.pop("setting", "")
    if setting:
        inside, outside = entry.pop("inside"), entry.pop("outside")
        method = tuple(Arm(name, None, setting, value) for value in inside)
        over = tuple(Arm(name, None, setting, value) for value in outside)
    else:
        r = entry.pop("r", None)
        over_r = entry.pop("over_r", r)
        method = _at_budgets(name, r)
        over = _at_budgets(entry.pop("over"), over_r)
    mine = tuple(entry.pop("tasks", tasks))
    numbers = [_of(seeds, task) for task in mine]
    return Comparison(
        method=method,
        over=over,
        tasks=mine,
        seeds=min(numbers, default=0),
        claims=tuple(entry.pop("claims", ())),
        between=tuple(entry.pop("between")),
        **entry,
    )


def _at_budgets(method: str, r: int | Sequence[int] | None) -> tuple[Arm, ...]:
    if r is None or isinstance(r, int):
        return (Arm(method, r),)
    return tuple(Arm(method, one) for one in r)


def _check(design: Design, methods: Collection[str], tasks: Collection[str]) -> None:
    names = [one.name for one in design.comparisons]
    _require(len(set(names)) == len(names), "two comparisons have one name", "rename one")
    for task in {*design.tasks, *(task for one in design.comparisons for task in one.tasks)}:
        _known("task", task, tasks)
    for _, arm in design.arms():
        _known("method", arm.method, methods)
        settings = ("", *SETTINGS, _RATE)
        _known("setting", arm.setting, settings)
        _require(arm.r is None or arm.r >= 1, f"r={arm.r} is not a budget", "use 1 or more")
    for one in design.comparisons:
        _known("family", one.family, design.families)
        _known("kind", one.kind, KINDS)
        _known("measure", one.measure, MEASURES)
        mine = f"comparison {one.name}"
        _require(
            math.isfinite(one.margin) and one.margin > 0,
            f"{mine}: margin={one.margin} is not positive",
            f"use {_LEAST_MARGIN} or more",
        )
        _require(
            one.margin >= _LEAST_MARGIN,
            f"{mine}: margin={one.margin} is too small to be decided",
            f"use {_LEAST_MARGIN} or more",
        )
        _require(one.seeds >= 2, f"{mine}: seeds={one.seeds} have no variance", "use 2 or more")
        _require(
            math.isfinite(one.standard_deviation) and one.standard_deviation > 0,
            f"{mine}: standard_deviation={one.standard_deviation} is not positive",
            "use 2 if it is not known",
        )
        _require(bool(one.tasks), f"{mine} has no task", "name one")
        _require(
            bool(one.method) and bool(one.over) and not {*one.method} & {*one.over},
            f"{mine} compares runs with themselves or with none",
            "give two sides that differ",
        )
        _require(
            all(arm.setting != _RATE for arm in (*one.method, *one.over)),
            f"{mine}: setting={_RATE} is chosen by tuning",
            f"use one of {', '.join(SETTINGS)}",
        )
    hours = design.cost().hours
    _require(
        hours <= design.hours,
        f"the runs take {hours:.1f} CPU hours, more than {design.hours}",
        "use fewer seeds or comparisons",
    )


def _known(what: str, name: str, known: Collection[str]) -> None:
    listed = ", ".join(one for one in known if one)
    _require(name in known, f"there is no {what} {name}", f"use one of {listed}")


def _require(condition: bool, problem: str, way_out: str) -> None:
    if not condition:
        msg = f"{problem}; {way_out}"
        raise InvalidArgumentError(msg)
