"""Rank correlation of predictors with what adapters reach, chosen on some tasks, judged on others.

A cell is a set of alternatives on one task that could be ranked: the methods at one budget, or all
methods at all budgets. Spearman's correlation is computed within each cell, averaged over the cells
of a task, and then over tasks, with Student's interval over tasks. Variants of a task are of one
kind; a predictor is chosen on some kinds and judged on the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from experiments.finetuning.settings import kind_of
from experiments.finetuning.statistics import Row, interval

OTHER_SEEDS = "other_seeds"
# Two methods have no rank correlation but 1 and -1.
FEWEST_METHODS = 3
_ALTERNATIVE = ["task", "method", "r"]
# The columns in which the alternatives of a cell agree, and the methods that are left out.
_SCOPES: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "methods at one budget": (["task", "r"], ()),
    "methods at one budget, without LoRA": (["task", "r"], ("lora", "dora")),
    "methods and budgets": (["task"], ()),
}


def correlations(
    runs: pd.DataFrame, predictions: pd.DataFrame, signs: Mapping[str, int]
) -> list[Row]:
    """Correlation of every predictor on all tasks, on those of the choice and on the others.

    A diverged run has the worst metric of its task. Predictors are those measured in the runs, and
    means over the predictions.
    """
    measured = [name for name in signs if name in runs]
    known = predictions.groupby(_ALTERNATIVE)[[one for one in signs if one not in measured]].mean()
    diverged = runs["diverged"].astype(bool)
    seen = runs[[*measured, "metric"]].mask(diverged).join(runs[[*_ALTERNATIVE, "seed"]])
    worst = runs["task"].map(runs[~diverged].groupby("task")["metric"].min())
    seen["metric"] = seen["metric"].fillna(worst)
    is_known = pd.MultiIndex.from_frame(seen[_ALTERNATIVE]).isin(known.index)
    seen = seen[is_known & seen["metric"].notna()]
    rows: list[Row] = []
    for scope, (columns, without) in _SCOPES.items():
        cells = seen[~seen["method"].isin(without)].groupby(columns, sort=False)
        found = [_of_cell(own, known, signs) for _, own in cells]
        names = ["task", *signs, OTHER_SEEDS]
        of_task = pd.DataFrame(found, columns=names).groupby("task", sort=False).mean()
        rows += _over_tasks(of_task, scope)
    return rows


def _of_cell(own: pd.DataFrame, known: pd.DataFrame, signs: Mapping[str, int]) -> Row:
    """The correlations of the predictors that are known of all alternatives; none of too few."""
    means = _means(own).join(known)
    if len(means) < FEWEST_METHODS:
        return {}
    row: Row = {"task": own["task"].iloc[0]} | {
        name: rank_correlation(sign * means[name], means["metric"])
        for name, sign in signs.items()
        if means[name].notna().all()
    }
    # The metric of every other seed as the predictor of that of the others.
    seeds = sorted(own["seed"].unique())
    reached, others = (
        _means(own[own["seed"].isin(seeds[start : len(seeds) // 2 * 2 : 2])])["metric"]
        for start in (0, 1)
    )
    if len(reached) == len(others) == len(means):
        row[OTHER_SEEDS] = rank_correlation(others, reached)
    return row


def _means(own: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds by numpy, whose last bits decide between metrics that are almost equal."""
    return own.groupby(_ALTERNATIVE).agg(lambda values: np.nanmean(values.to_numpy()))


def _over_tasks(of_task: pd.DataFrame, scope: str) -> list[Row]:
    """Means over tasks, with Student's 95% interval, and which predictor is chosen."""
    of_kind = of_task.index.map(kind_of)
    kinds = sorted(set(of_kind))
    parts = {"all": kinds, "choice": kinds[::2], "judgement": kinds[1::2]}
    rows: list[Row] = []
    for name, values in of_task.items():
        for part, half in parts.items():
            mine = values[of_kind.isin(half)]
            if mine.notna().any():
                row = {"predictor": name, "scope": scope, "tasks": part, "count": len(mine)}
                ends = zip(("correlation", "low", "high"), interval([*mine.dropna()]), strict=True)
                rows.append(row | dict(ends))
    on_choice = {row["predictor"]: row["correlation"] for row in rows
                 if row["tasks"] == "choice" and row["predictor"] != OTHER_SEEDS}  # fmt: skip
    chosen = max(on_choice, key=lambda name: on_choice[name], default=None)
    return [{**row, "chosen": row["predictor"] == chosen} for row in rows]


def rank_correlation(x: Any, y: Any) -> float:
    """Spearman's correlation; 0 if all values of x or of y are equal."""
    a, b = (rankdata(one) - (np.size(one) + 1) / 2 for one in (x, y))
    lengths = np.sqrt((a**2).sum() * (b**2).sum())
    return float((a * b).sum() / lengths) if lengths > 0 else 0.0
