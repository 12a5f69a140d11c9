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
from experiments.finetuning.statistics import Row, interval

Array = NDArray[np.float64]
OTHER_SEEDS = "other_seeds"
# Two methods have no rank correlation but 1 and -1.
FEWEST_METHODS = 3
# Whether each cell has one budget, and the methods that are left out.
_SCOPES: dict[str, tuple[bool, tuple[str, ...]]] = {
    "methods at one budget": (True, ()),
    "methods at one budget, without LoRA": (True, ("lora", "dora")),
    "methods and budgets": (False, ()),
}


@dataclass(frozen=True)
class Cell:
    """Alternatives on one task.

    Attributes:
        task: Name of the task.
        r: The budget; None if the alternatives have several.
        methods: The method of each of the m alternatives.
        reached: The metric, larger is better, (m, seeds); NaN for a missing run.
        predicted: By the name of the predictor, (m, seeds) if it is measured in the same runs, NaN
            if it is missing there, and (m, 1) otherwise; larger predicts the better.
    """

    task: str
    r: int | None
    methods: tuple[str, ...]
    reached: Array
    predicted: Mapping[str, Array]


def cells(
    runs: Sequence[Mapping[str, Any]],
    predictions: Sequence[Mapping[str, Any]],
    signs: Mapping[str, int],
    *,
    by_budget: bool = True,
) -> list[Cell]:
    """Put runs and predictions together.

    A diverged run has the worst metric of all runs of its task. Methods without a prediction are
    left out, and so are cells with fewer than three methods and tasks of which every run diverged.

    Args:
        runs: Rows with ``task``, ``method``, ``r``, ``seed``, ``metric`` (larger is better),
            ``diverged`` and the predictors that are measured in the runs.
        predictions: Rows with ``task``, ``method``, ``r`` and the other predictors; several rows
            of one alternative are averaged.
        signs: 1 or −1 for each predictor, by name: −1 if the smaller number predicts the better.
            A cell has the predictors that are known of all its alternatives.
        by_budget: One cell per task and budget; otherwise one per task.
    """
    known: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for entry in predictions:
        known.setdefault((entry["task"], entry["method"], entry["r"]), []).append(entry)
    groups: dict[tuple[Any, ...], dict[tuple[Any, ...], dict[int, Mapping[str, Any]]]] = {}
    for entry in runs:
        key = (entry["task"], entry["method"], entry["r"])
        if key in known:
            cell = groups.setdefault((entry["task"], entry["r"] if by_budget else None), {})
            cell.setdefault(key, {})[entry["seed"]] = entry
    worst: dict[str, float] = {}
    for entry in runs:
        if not entry["diverged"]:
            worst[entry["task"]] = min(entry["metric"], worst.get(entry["task"], entry["metric"]))
    found = []
    for (task, r), members in groups.items():
        if len(members) < FEWEST_METHODS or task not in worst:
            continue
        seeds = sorted({seed for of_seed in members.values() for seed in of_seed})

        def column(
            name: str,
            of_diverged: float = np.nan,
            members: Mapping[tuple[Any, ...], Mapping[int, Mapping[str, Any]]] = members,
            seeds: Sequence[int] = seeds,
        ) -> Array:
            return np.array([
                [_number(of_seed.get(seed), name, of_diverged) for seed in seeds]
                for of_seed in members.values()
            ])  # fmt: skip

        first = next(iter(next(iter(members.values())).values()))
        predicted = {}
        for name, sign in signs.items():
            if name in first:
                values = sign * column(name)
                if np.isfinite(values).any(axis=1).all():
                    predicted[name] = values
            elif all(name in one for key in members for one in known[key]):
                means = [np.mean([one[name] for one in known[key]]) for key in members]
                predicted[name] = sign * np.array(means)[:, None]
        methods = tuple(key[1] for key in members)
        found.append(Cell(task, r, methods, column("metric", worst[task]), predicted))
    return found


def split(tasks: Sequence[str]) -> tuple[list[str], list[str]]:
    """The tasks on which a predictor is chosen, and those on which it is judged.

    Kinds of tasks alternate in alphabetical order, so no data set is on both sides.
    """
    kinds = sorted({kind_of(task) for task in tasks})
    chosen, judged = (
        [task for task in sorted(set(tasks)) if kind_of(task) in half]
        for half in (kinds[::2], kinds[1::2])
    )
    return chosen, judged


def correlations(
    runs: Sequence[Mapping[str, Any]],
    predictions: Sequence[Mapping[str, Any]],
    signs: Mapping[str, int],
) -> list[Row]:
    """Correlation of every predictor on all tasks, on those of the choice and on the others.

    What the metric of half of the seeds says of the other half is added as ``other_seeds``. It is a
    scale and no ceiling: it predicts and is judged with half of the seeds.

    Returns:
        ``predictor``, ``scope``, ``tasks`` (``all``, ``choice`` or ``judgement``), ``count`` of
        tasks, ``correlation`` with ``low`` and ``high``, and ``chosen``: whether it is the
        predictor with the largest correlation on the tasks of the choice.
    """
    rows: list[Row] = []
    for scope, (by_budget, without) in _SCOPES.items():
        kept = [one for one in runs if one["method"] not in without]
        found = cells(kept, predictions, signs, by_budget=by_budget)
        halves = split([one.task for one in found])
        parts = {"all": [*halves[0], *halves[1]], "choice": halves[0], "judgement": halves[1]}
        means: dict[tuple[str, str], tuple[float, float, float]] = {}
        for name in (*signs, OTHER_SEEDS):
            usable = [one for one in map(_halved if name == OTHER_SEEDS else _same, found)
                      if name in one.predicted]  # fmt: skip
            for part, tasks in parts.items():
                own = [one for one in usable if one.task in tasks]
                if own:
                    means[name, part] = mean_correlation(own, name)
        choice = {name: means[name, "choice"][0] for name in signs if (name, "choice") in means}
        chosen = max(choice, key=lambda name: choice[name]) if choice else None
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
    """Mean rank correlation over tasks with Student's 95% interval, unbounded for one task.

    Args:
        found: Cells that have the predictor.
        name: The predictor.
    """
    by_task: dict[str, list[float]] = {}
    for one in found:
        by_task.setdefault(one.task, []).append(_correlation(one, name))
    return interval([float(np.mean(own)) for own in by_task.values()])


def rank_correlation(x: Array, y: Array) -> Array:
    """Spearman's correlation along the last axis; 0 if all values of x or of y are equal."""
    x, y = (rankdata(one, axis=-1) for one in np.broadcast_arrays(x, y))
    x, y = (one - one.mean(axis=-1, keepdims=True) for one in (x, y))
    lengths = np.sqrt((x**2).sum(-1) * (y**2).sum(-1))
    return np.where(lengths > 0, (x * y).sum(-1) / np.where(lengths > 0, lengths, 1.0), 0.0)


def pairs(found: Sequence[Cell]) -> list[Row]:
    """Compare prediction and outcome for each pair of methods of a cell.

    Pairs whose predictions or outcomes are equal are dropped.

    Returns:
        ``difference`` of the metric (positive if ``first`` is better) with a 95% interval, paired
        by seed; ``clear``: whether it excludes 0; ``predictor`` and ``predicted_difference``;
        ``right``: whether both differences have the same sign.
    """
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


def _correlation(one: Cell, name: str) -> float:
    """Rank correlation of means over seeds."""
    means = (np.nanmean(values, axis=1) for values in (one.predicted[name], one.reached))
    return float(rank_correlation(*means))


def _halved(one: Cell) -> Cell:
    """The cell with the metric of every other seed as the predictor of that of the others."""
    count = one.reached.shape[1] // 2
    both = [one.reached[:, start : 2 * count : 2] for start in (0, 1)]
    is_whole = bool(count) and all(np.isfinite(half).any(axis=1).all() for half in both)
    predicted = {OTHER_SEEDS: both[1]} if is_whole else {}
    return Cell(one.task, one.r, one.methods, both[0], predicted)


def _same(one: Cell) -> Cell:
    return one


def _number(entry: Mapping[str, Any] | None, name: str, of_diverged: float) -> float:
    if entry is None:
        return np.nan
    return of_diverged if entry["diverged"] or entry[name] is None else float(entry[name])
