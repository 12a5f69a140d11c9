"""Differences of runs, paired by seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from experiments.finetuning.methods import find_method
from experiments.finetuning.run_tables import SETTINGS
from experiments.finetuning.settings import settings
from experiments.finetuning.verdicts.design import Arm, Comparison
from loca_theory.errors import InvalidArgumentError


def scores(runs: pd.DataFrame, measure: str) -> pd.Series:
    """Scores of runs; a larger score is better.

    The score is 100 times the accuracy, or −100 times the logarithm of the loss. A run that
    diverged has the worst score of its task.
    """
    diverged = runs["diverged"].astype(bool)
    lacking = runs[~diverged & runs["loss" if measure == "loss" else "metric"].isna()]
    if len(lacking):
        one = ", ".join(f"{name} {lacking.iloc[0][name]}" for name in ("task", "method", "seed"))
        msg = f"the run {one} has no {measure}, and is not marked as diverged; run it again"
        raise InvalidArgumentError(msg)
    if measure == "loss":
        losses = runs["loss"].astype(float)
        if (losses <= 0).any():
            msg = "a loss of 0 or less has no logarithm; compare accuracies instead"
            raise InvalidArgumentError(msg)
        values = pd.Series(-100 * np.log(losses), runs.index)
    else:
        other = sorted(set(runs["measure"]) - {"accuracy"})
        if other:
            msg = f"the measure of some runs is {', '.join(other)}; compare accuracies or losses"
            raise InvalidArgumentError(msg)
        values = 100 * runs["metric"].astype(float)
    values = values.mask(diverged)
    return values.fillna(values.groupby(runs["task"]).transform("min"))


def differences(runs: pd.DataFrame, comparison: Comparison) -> np.ndarray:
    """Paired differences (T, n) of a comparison; NaN where a run is missing."""
    found = np.empty((len(comparison.tasks), comparison.seeds))
    for row, task in zip(found, comparison.tasks, strict=True):
        mine = runs[runs["task"] == task]
        valued = mine.assign(score=scores(mine, comparison.measure))
        method = _mean(valued, task, comparison.method, comparison.seeds)
        row[:] = method - _mean(valued, task, comparison.over, comparison.seeds)
    return found


def _mean(valued: pd.DataFrame, task: str, arms: Sequence[Arm], seeds: int) -> np.ndarray:
    """Mean score of some arms for every seed."""
    by_seed = [
        valued[_selected(valued, task, arm)].set_index("seed")["score"].reindex(range(seeds))
        for arm in arms
    ]
    return np.mean([found.to_numpy(dtype=np.float64) for found in by_seed], axis=0)


def _selected(runs: pd.DataFrame, task: str, arm: Arm) -> pd.Series:
    """Which runs of a task belong to an arm."""
    method, chosen = find_method(arm.method), settings(task)
    wanted = runs["method"] == arm.method
    if method.has_budget:
        wanted &= runs["r"] == (arm.r or chosen["r"])
    if method.kind != "loca":
        return wanted
    default = {"scaling": 1.0, **{name: chosen[name] for name in SETTINGS if name in chosen}}
    default |= {name: method.options[name] for name in SETTINGS if name in method.options}
    if method.options.get("endless"):
        default["alternating"] = 1.0
    if arm.setting:
        default[arm.setting] = arm.value
    for name, value in default.items():
        wanted &= pd.Series(np.isclose(runs[name].astype(float), value), runs.index)
    return wanted
