"""Rank correlation of predictors with what adapters reach, chosen on some tasks, judged on others.

A cell is a set of alternatives on one task that could be ranked: the methods at one budget, or all
methods at all budgets. Spearman's correlation is computed within each cell, averaged over the cells
of a task, and then over tasks, with Student's interval over tasks. Variants of a task are of one
kind; a predictor is chosen on some kinds and judged on the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from experiments.finetuning.settings import kind_of
from experiments.finetuning.statistics import Row, grouped, interval

Array = NDArray[np.float64]
OTHER_SEEDS = "other_seeds"
# Two methods have no rank correlation but 1 and -1.
FEWEST_METHODS = 3
_ALTERNATIVE = ("task", "method", "r")
# Whether each cell has one budget, and the methods that are left out.
_SCOPES: dict[str, tuple[bool, tuple[str, ...]]] = {
    "methods at one budget": (True, ()),
    "methods at one budget, without LoRA": (True, ("lora", "dora")),
    "methods and budgets": (False, ()),
}
_Members = Mapping[tuple[Any, ...], Mapping[int, Row]]


@dataclass(frozen=True)
class Cell:
    """The m alternatives on one task."""

    task: str
    r: int | None  # the budget; None if the alternatives have several
    methods: tuple[str, ...]
    reached: Array  # the metric, larger is better, (m, seeds); NaN for a missing run
    # (m, seeds) if the predictor is measured in the same runs, NaN if it is missing there, and
    # (m, 1) otherwise; larger predicts the better.
    predicted: Mapping[str, Array]


def cells(
    runs: Sequence[Row],
    predictions: Sequence[Row],
    signs: Mapping[str, int],
    *,
    by_budget: bool = True,
) -> list[Cell]:
    """Put runs and predictions together, by task or by task and budget.

    A diverged run has the worst metric of its task. A cell has the predictors that are known of all
    its methods: those measured in the runs, and means over the predictions.
    """
    known = grouped(predictions, _ALTERNATIVE)
    finished = grouped([one for one in runs if not one["diverged"]], ["task"])
    usable = [one for one in runs if tuple(one[name] for name in _ALTERNATIVE) in known]
    found = []
    for (task, *rest), own in grouped(usable, ("task", "r") if by_budget else ("task",)).items():
        members = {
            key: {one["seed"]: one for one in rows}
            for key, rows in grouped(own, _ALTERNATIVE).items()
        }
        if len(members) < FEWEST_METHODS or (task,) not in finished:
            continue
        predicted = {}
        for name, sign in signs.items():
            if name in own[0]:
                values = sign * _column(members, name)
                if np.isfinite(values).any(axis=1).all():
                    predicted[name] = values
            elif all(name in one for key in members for one in known[key]):
                means = [np.mean([one[name] for one in known[key]]) for key in members]
                predicted[name] = sign * np.array(means)[:, None]
        reached = _column(members, "metric", min(one["metric"] for one in finished[task,]))
        r = rest[0] if by_budget else None
        found.append(Cell(task, r, tuple(key[1] for key in members), reached, predicted))
    return found


def _column(members: _Members, name: str, of_diverged: float = np.nan) -> Array:
    """A number of every alternative and seed; NaN for a missing run."""

    def value(run: Row | None) -> float:
        if run is None:
            return np.nan
        return of_diverged if run["diverged"] or run[name] is None else float(run[name])

    seeds = sorted({seed for of_seed in members.values() for seed in of_seed})
    return np.array([[value(own.get(seed)) for seed in seeds] for own in members.values()])


def correlations(
    runs: Sequence[Row], predictions: Sequence[Row], signs: Mapping[str, int]
) -> list[Row]:
    """Correlation of every predictor on all tasks, on those of the choice and on the others."""
    rows: list[Row] = []
    for scope, (by_budget, without) in _SCOPES.items():
        used = [one for one in runs if one["method"] not in without]
        found = cells(used, predictions, signs, by_budget=by_budget)
        known = sorted({one.task for one in found})
        kinds = sorted(set(map(kind_of, known)))
        choice, judgement = (
            [task for task in known if kind_of(task) in half] for half in (kinds[::2], kinds[1::2])
        )
        parts = {"all": [*choice, *judgement], "choice": choice, "judgement": judgement}
        means: dict[tuple[str, str], tuple[float, float, float]] = {}
        for name in (*signs, OTHER_SEEDS):
            usable = [_halved(one) for one in found] if name == OTHER_SEEDS else found
            for part, tasks in parts.items():
                own = [one for one in usable if one.task in tasks and name in one.predicted]
                if own:
                    means[name, part] = mean_correlation(own, name)
        on_choice = {name: means[name, "choice"][0] for name in signs if (name, "choice") in means}
        chosen = max(on_choice, key=lambda name: on_choice[name]) if on_choice else None
        rows += [
            {
                "predictor": name,
                "scope": scope,
                "tasks": part,
                "count": len(parts[part]),
                **dict(zip(("correlation", "low", "high"), mean, strict=True)),
                "chosen": name == chosen,
            }
            for (name, part), mean in means.items()
        ]
    return rows


def mean_correlation(found: Sequence[Cell], name: str) -> tuple[float, float, float]:
    """Mean over tasks of the rank correlation of means over seeds, with Student's 95% interval."""
    by_task: dict[str, list[float]] = {}
    for one in found:
        means = (np.nanmean(values, axis=1) for values in (one.predicted[name], one.reached))
        by_task.setdefault(one.task, []).append(float(rank_correlation(*means)))
    return interval([float(np.mean(own)) for own in by_task.values()])


def rank_correlation(x: Array, y: Array) -> float:
    """Spearman's correlation; 0 if all values of x or of y are equal."""
    x, y = (rankdata(one) - (len(one) + 1) / 2 for one in (x, y))
    lengths = np.sqrt((x**2).sum() * (y**2).sum())
    return float((x * y).sum() / lengths) if lengths > 0 else 0.0


def pairs(found: Sequence[Cell]) -> list[Row]:
    """Compare prediction and outcome for each pair of methods of a cell."""
    rows: list[Row] = []
    for one in found:
        for i, j in combinations(range(len(one.methods)), 2):
            differences = one.reached[i] - one.reached[j]
            differences = differences[np.isfinite(differences)]
            if not differences.any():
                continue
            mean, low, high = interval(differences.tolist())
            for name, values in one.predicted.items():
                predicted = float(np.nanmean(values[i]) - np.nanmean(values[j]))
                if predicted == 0 or mean == 0:
                    continue
                rows.append({
                    "task": one.task, "r": one.r,
                    "first": one.methods[i], "second": one.methods[j],
                    "difference": mean, "low": low, "high": high, "clear": low > 0 or high < 0,
                    "predictor": name, "predicted_difference": predicted,
                    "right": (predicted > 0) == (mean > 0),
                })  # fmt: skip
    return rows


def _halved(one: Cell) -> Cell:
    """The cell with the metric of every other seed as the predictor of that of the others."""
    count = one.reached.shape[1] // 2
    reached, others = (one.reached[:, start : 2 * count : 2] for start in (0, 1))
    is_whole = bool(count) and all(
        np.isfinite(half).any(axis=1).all() for half in (reached, others)
    )
    return Cell(one.task, one.r, one.methods, reached, {OTHER_SEEDS: others} if is_whole else {})
