"""The designs of the experiments: what is compared, by which runs, and what they cost.

Two are fixed before the runs, in ``experiments/design.toml`` and ``experiments/many-tasks.toml``.
``experiments/after-the-runs.toml`` splits comparisons whose results were known, and
``experiments/alternatives.toml`` has those under which a claim is false.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
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
    kind: str  # what the paper says: ``greater``, ``equivalent`` or ``not-worse``
    method: tuple[Arm, ...]  # that the paper speaks for
    over: tuple[Arm, ...]
    # Smallest difference worth knowing, in percentage points or, of the loss, in per cent.
    margin: float
    tasks: tuple[str, ...]
    seeds: int  # of every task
    measure: str = "accuracy"  # or ``loss``
    claims: tuple[str, ...] = ()  # of the ledger, which it decides


@dataclass(frozen=True)
class Design:
    """Everything that is fixed before the runs."""

    file: Mapping[str, Any]  # families, seeds, costs and words, as they stand in the TOML file
    tasks: tuple[str, ...]  # of all comparisons that do not name theirs
    comparisons: tuple[Comparison, ...]  # in the order of their value per hour
    orientation: tuple[Arm, ...]  # runs without a verdict

    def members(self, family: str) -> tuple[Comparison, ...]:
        """The comparisons of a family, which answer one question and share its error rate."""
        return tuple(comparison for comparison in self.comparisons if comparison.family == family)

    def arms(self, comparisons: Collection[Comparison] | None = None) -> dict[tuple[str, Arm], int]:
        """Number of seeds of every task and arm, of some comparisons or of the whole design."""
        seeds_of: dict[tuple[str, Arm], int] = {}
        for comparison in self.comparisons if comparisons is None else comparisons:
            for task in comparison.tasks:
                for arm in (*comparison.method, *comparison.over):
                    seeds_of[task, arm] = max(comparison.seeds, seeds_of.get((task, arm), 0))
        for task in self.tasks if comparisons is None else ():
            for arm in self.orientation:
                seeds_of.setdefault((task, arm), _seeds(self.file, task))
        return seeds_of

    def cost(self, comparisons: Collection[Comparison] | None = None) -> tuple[int, float]:
        """Number of all runs, or of those that some comparisons need, and their CPU hours."""
        runs, seconds = 0, 0.0
        counts, costs = self.file["seeds"], self.file["cost"]
        for (task, arm), seeds in self.arms(comparisons).items():
            arm_runs = seeds + (0 if arm.setting else counts["rates"] * counts["tuning"])
            runs += arm_runs
            seconds += arm_runs * costs.get(task, costs["seconds"])
        return runs, seconds / 3600


def read_alternatives() -> dict[str, dict[str, Any]]:
    """The fields of each alternative that differ from a comparison's, by that comparison's name."""
    return tomllib.loads(ALTERNATIVES.read_text(encoding="utf-8"))


def read_design(
    path: Path = DESIGN, instead: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> Design:
    """Read a design, with other values of some fields of some comparisons ``instead``."""
    file = tomllib.loads(path.read_text(encoding="utf-8"))
    tasks = tuple(file["tasks"]["all"])
    if "draws" in file["tasks"]:
        draws = range(1, file["tasks"]["draws"] + 1)
        tasks = tuple(f"{name}-{draw}" for name in tasks for draw in draws)
    orientation = [Arm(name) for name in file.get("context", {}).get("methods", ())]
    for curve in file.get("curves", ()):
        orientation += _varied(curve["method"], curve["setting"], curve["values"])
    comparisons = [
        _comparison({"tasks": tasks, **entry, **instead.get(entry["name"], {})}, file)
        for entry in file["comparisons"]
    ]
    return Design(file, tasks, tuple(comparisons), tuple(orientation))


def _comparison(entry: Mapping[str, Any], file: Mapping[str, Any]) -> Comparison:
    """A comparison by its entry in the file, which also says where its numbers are from."""
    name, r = entry["method"], entry.get("r")
    if "setting" in entry:
        method, over = (_varied(name, entry["setting"], entry[x]) for x in ("inside", "outside"))
    else:
        method = _at_budgets(name, r)
        over = _at_budgets(entry["over"], entry.get("over_r", r))
    names = {field.name for field in fields(Comparison)} - {"method", "over"}
    values = {key: value for key, value in entry.items() if key in names}
    values |= {key: tuple(entry.get(key, ())) for key in ("tasks", "claims")}
    seeds = min(_seeds(file, task) for task in entry["tasks"])
    return Comparison(method=method, over=over, seeds=seeds, **values)


def _seeds(file: Mapping[str, Any], task: str) -> int:
    return file["seeds"].get(task, file["seeds"]["results"])


def _varied(method: str, setting: str, values: Sequence[float]) -> tuple[Arm, ...]:
    return tuple(Arm(method, None, setting, value) for value in values)


def _at_budgets(method: str, r: int | Sequence[int] | None) -> tuple[Arm, ...]:
    return tuple(Arm(method, rank) for rank in (r if isinstance(r, Sequence) else [r]))
