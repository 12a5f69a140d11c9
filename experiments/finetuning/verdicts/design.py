"""The designs of the experiments: what is compared, by which runs, and what they cost.

Two are fixed before the runs, in ``experiments/design.toml`` and ``experiments/many-tasks.toml``.
``experiments/after-the-runs.toml`` splits comparisons whose results were known, and
``experiments/alternatives.toml`` has those under which a claim is false.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any

_FOLDER = Path(__file__).parents[2]
DESIGN, MANY_TASKS = _FOLDER / "design.toml", _FOLDER / "many-tasks.toml"
AFTER = _FOLDER / "after-the-runs.toml"
DESIGNS = (DESIGN, MANY_TASKS, AFTER)
ALTERNATIVES = _FOLDER / "alternatives.toml"


@dataclass(frozen=True)
class Arm:
    """Runs that are alike except for task and seed."""

    method: str
    r: int | None = None  # the budget as a rank of LoRA; None for the task's own
    setting: str = ""  # which setting of LoCA differs from the default
    value: float = 0.0  # for ``rate`` in steps of the grid from the rate chosen


@dataclass(frozen=True)
class Comparison:
    """A comparison of two sides, each the mean of one or several arms."""

    name: str
    family: str  # whose error rate is controlled
    question: str
    kind: str  # what the paper says: ``greater``, ``equivalent`` or ``not-worse``
    method: tuple[Arm, ...]  # that the paper speaks for
    over: tuple[Arm, ...]
    # Smallest difference worth knowing, in percentage points or, of the loss, in per cent.
    margin: float
    margin_from: str
    tasks: tuple[str, ...]
    seeds: int  # of every task
    standard_deviation: float  # planned, of paired differences within a task
    spread_from: str  # where that is from
    between: tuple[float, ...]  # of true differences between tasks, for which power is shown
    measure: str = "accuracy"  # or ``loss``
    claims: tuple[str, ...] = ()  # of the ledger, which it decides


@dataclass(frozen=True)
class Design:
    """Everything that is fixed before the runs."""

    fixed: date
    analysis: str  # in words
    # Comparisons that answer one question, and share a family-wise error rate: title and reason.
    families: Mapping[str, Mapping[str, str]]
    comparisons: tuple[Comparison, ...]  # in the order of their value per hour
    orientation: tuple[Arm, ...]  # runs without a verdict
    undecided: Mapping[str, str]  # why some claims are not decided
    tasks: tuple[str, ...]  # of all comparisons that do not name theirs
    seeds: Mapping[str, int]  # of results by task; ``""`` for every other task
    tuning_seeds: int
    rates: int  # that are tried
    seconds: Mapping[str, float]  # planned CPU time of a run by task; ``""`` for every other
    hours: float  # CPU time that all runs may take
    wanted_power: float  # for which the number of seeds is computed

    def members(self, family: str) -> tuple[Comparison, ...]:
        """The comparisons of a family."""
        return tuple(one for one in self.comparisons if one.family == family)

    def arms(self, comparisons: Collection[Comparison] | None = None) -> dict[tuple[str, Arm], int]:
        """Number of seeds of every task and arm, of some comparisons or of the whole design."""
        found: dict[tuple[str, Arm], int] = {}
        for one in self.comparisons if comparisons is None else comparisons:
            for task in one.tasks:
                for arm in (*one.method, *one.over):
                    found[task, arm] = max(one.seeds, found.get((task, arm), 0))
        for task in self.tasks if comparisons is None else ():
            for arm in self.orientation:
                found.setdefault((task, arm), for_task(self.seeds, task))
        return found

    def cost(self, comparisons: Collection[Comparison] | None = None) -> tuple[int, float]:
        """Number of all runs, or of those that some comparisons need, and their CPU hours."""
        runs, seconds = 0, 0.0
        for (task, arm), seeds in self.arms(comparisons).items():
            mine = seeds + (0 if arm.setting else self.rates * self.tuning_seeds)
            runs += mine
            seconds += mine * for_task(self.seconds, task)
        return runs, seconds / 3600


def for_task(values: Mapping[str, Any], task: str) -> Any:
    """The value of a task, or that of every other task."""
    return values.get(task, values[""])


def read_alternatives() -> dict[str, dict[str, Any]]:
    """The fields of each alternative that differ from a comparison's, by that comparison's name."""
    return tomllib.loads(ALTERNATIVES.read_text(encoding="utf-8"))


def read_design(
    path: Path = DESIGN, instead: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> Design:
    """Read a design, with other values of some fields of some comparisons ``instead``."""
    given = tomllib.loads(path.read_text(encoding="utf-8"))
    seeds, seconds = dict(given["seeds"]), dict(given["cost"])
    tuning, rates, hours = seeds.pop("tuning"), seeds.pop("rates"), seconds.pop("hours")
    seeds[""], seconds[""] = seeds.pop("results"), seconds.pop("seconds")
    tasks = tuple(given["tasks"]["all"])
    if "draws" in given["tasks"]:
        draws = range(1, given["tasks"]["draws"] + 1)
        tasks = tuple(f"{name}-{draw}" for name in tasks for draw in draws)
    orientation = [Arm(name) for name in given.get("context", {}).get("methods", ())]
    for one in given.get("curves", ()):
        orientation += _varied(one["method"], one["setting"], one["values"])
    shared = {"between": given["power"]["between"], "tasks": tasks}
    return Design(
        fixed=given["date"],
        analysis=given["analysis"].strip(),
        families=given["families"],
        comparisons=tuple(
            _comparison({**shared, **one, **instead.get(one["name"], {})}, seeds)
            for one in given["comparisons"]
        ),
        orientation=tuple(orientation),
        undecided={entry["claim"]: entry["reason"] for entry in given.get("undecided", ())},
        tasks=tasks,
        seeds=seeds,
        tuning_seeds=tuning,
        rates=rates,
        seconds=seconds,
        hours=hours,
        wanted_power=given["power"]["wanted"],
    )


def _comparison(entry: dict[str, Any], seeds: Mapping[str, int]) -> Comparison:
    name, setting = entry.pop("method"), entry.pop("setting", "")
    if setting:
        method = _varied(name, setting, entry.pop("inside"))
        over = _varied(name, setting, entry.pop("outside"))
    else:
        r = entry.pop("r", None)
        method = _at_budgets(name, r)
        over = _at_budgets(entry.pop("over"), entry.pop("over_r", r))
    for key in ("tasks", "between", "claims"):
        entry[key] = tuple(entry.get(key, ()))
    entry["spread_from"] = entry.pop("standard_deviation_from")
    counts = [for_task(seeds, task) for task in entry["tasks"]]
    return Comparison(method=method, over=over, seeds=min(counts), **entry)


def _varied(method: str, setting: str, values: Sequence[float]) -> tuple[Arm, ...]:
    return tuple(Arm(method, None, setting, value) for value in values)


def _at_budgets(method: str, r: int | Sequence[int] | None) -> tuple[Arm, ...]:
    return tuple(Arm(method, one) for one in (r if isinstance(r, Sequence) else [r]))
