"""Rank correlation of predictors with what adapters reach, chosen on some tasks, judged on others.

A cell is a set of alternatives on one task that could be ranked: the methods at one budget, or all
methods at all budgets. Spearman's correlation is computed within each cell, averaged over the cells
of a task, and then over tasks, with Student's interval over tasks. Variants of a task are of one
kind; a predictor is chosen on some kinds and judged on the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from experiments.finetuning.settings import kind_of
from experiments.finetuning.statistics import Row, interval

Array = NDArray[np.float64]
OTHER_SEEDS = "other_seeds"
# Two methods have no rank correlation but 1 and -1.
FEWEST_METHODS = 3
_ALTERNATIVE = ["task", "method", "r"]
# Whether each cell has one budget, and the methods that are left out.
_SCOPES: dict[str, tuple[bool, tuple[str, ...]]] = {
    "methods at one budget": (True, ()),
    "methods at one budget, without LoRA": (True, ("lora", "dora")),
    "methods and budgets": (False, ()),
}


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
    runs: pd.DataFrame,
    predictions: pd.DataFrame,
    signs: Mapping[str, int],
    *,
    by_budget: bool = True,
) -> list[Cell]:
    """Put runs and predictions together, by task or by task and budget.

    A diverged run has the worst metric of its task. A cell has the predictors that are known of all
    its methods: those measured in the runs, and means over the predictions.
    """
    diverged = runs["diverged"].astype(bool)
    worst = runs["task"].map(runs[~diverged].groupby("task")["metric"].min())
    measured = [name for name in signs if name in runs]
    seen = runs[[*measured, "metric"]].mask(diverged)
    seen["metric"] = seen["metric"].fillna(worst)
    index: Any = pd.MultiIndex.from_frame(runs[[*_ALTERNATIVE, "seed"]])
    known = predictions.groupby(_ALTERNATIVE)[[one for one in signs if one not in measured]].mean()
    seen = seen.set_index(index)
    seen = seen[index.droplevel("seed").isin(known.index) & seen["metric"].notna()]
    found = []
    for _, own in seen.groupby(["task", "r"] if by_budget else "task", sort=False):
        levels: Any = own.index
        members, seeds = levels.droplevel("seed").unique(), sorted(levels.unique("seed"))
        if len(members) < FEWEST_METHODS:
            continue
        own = own.reindex([(*one, seed) for one in members for seed in seeds])
        of = {name: own[name].to_numpy().reshape(len(members), -1) for name in own}
        of |= {name: known.loc[members, [name]].to_numpy() for name in known}
        is_known = {name: np.isfinite(values).any(axis=1).all() for name, values in of.items()}
        predicted = {name: sign * of[name] for name, sign in signs.items() if is_known[name]}
        task, _, r = members[0]
        methods = tuple(members.get_level_values("method"))
        found.append(Cell(task, int(r) if by_budget else None, methods, of["metric"], predicted))
    return found


def correlations(
    runs: pd.DataFrame, predictions: pd.DataFrame, signs: Mapping[str, int]
) -> list[Row]:
    """Correlation of every predictor on all tasks, on those of the choice and on the others."""
    rows: list[Row] = []
    for scope, (by_budget, without) in _SCOPES.items():
        used = runs[~runs["method"].isin(without)]
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
                    means[name, part] = _mean_correlation(own, name)
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


def _mean_correlation(found: Sequence[Cell], name: str) -> tuple[float, float, float]:
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
    is_whole = count and np.isfinite([reached, others]).any(axis=2).all()
    return replace(one, reached=reached, predicted={OTHER_SEEDS: others} if is_whole else {})
