"""Differences of runs, paired by seed, from their tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.finetuning.methods import find_method
from experiments.finetuning.settings import settings
from experiments.finetuning.verdicts.design import SETTINGS, Arm, Comparison
from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.sweeps import find_tables

_RUN = ("task", "method", "r", "seed", *SETTINGS)
COLUMNS = (*_RUN, "measure", "metric", "loss", "diverged")
_NUMBERS = ("r", *SETTINGS, "metric", "loss")
# Summaries and curves have no metric of a seed.
_RUNS_HAVE = ("task", "method", "seed", "metric", "diverged")


def read_runs(folder: Path, pattern: str = "*") -> pd.DataFrame:
    """Read the runs of all tables in a folder that have the columns of runs.

    A run that is in several tables counts once. Runs of the curve over learning rates are left out,
    because they are not at the rate that was chosen; tables mark them by ``rate`` in a column
    ``setting``.

    Args:
        folder: Folder of parquet tables.
        pattern: Pattern of the tables' names.

    Raises:
        ResourceError: there is no table of runs, one cannot be read or lacks a column, or two
            disagree on a run.
    """
    found = []
    for path in find_tables(folder, [pattern]):
        try:
            table = pd.read_parquet(path)
        except (OSError, ValueError) as error:
            msg = f"{path} cannot be read ({type(error).__name__}); delete it and make it again"
            raise ResourceError(msg) from error
        if not set(_RUNS_HAVE) <= set(table.columns):
            continue
        missing = sorted({*COLUMNS} - {*table.columns})
        if missing:
            msg = f"{path} has runs without {', '.join(missing)}; make it again"
            raise ResourceError(msg)
        if "setting" in table.columns:
            table = table[table["setting"] != "rate"]
        found.append(table[list(COLUMNS)].astype(dict.fromkeys(_NUMBERS, float)))
    if not found:
        msg = f"{folder} has no table of runs; give the folder that the runs wrote to"
        raise ResourceError(msg)
    return distinct(pd.concat(found, ignore_index=True))


def distinct(runs: pd.DataFrame) -> pd.DataFrame:
    """Each run once.

    Raises:
        ResourceError: two rows disagree on a run.
    """
    runs = runs.drop_duplicates()
    twice = runs[runs.duplicated(list(_RUN))]
    if len(twice):
        one = ", ".join(f"{name} {twice.iloc[0][name]}" for name in ("task", "method", "seed"))
        msg = f"the tables disagree on the run {one}; give a folder that has it only once"
        raise ResourceError(msg)
    return runs


def scores(runs: pd.DataFrame, measure: str) -> pd.Series:
    """Scores of runs; a larger score is better.

    The score is 100 times the accuracy, or −100 times the logarithm of the loss. A run that
    diverged has the worst score of its task.

    Args:
        runs: Rows of runs.
        measure: ``accuracy`` or ``loss``.

    Raises:
        InvalidArgumentError: a run has another measure, or a loss is not positive.
    """
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
    values = values.mask(runs["diverged"].astype(bool))
    return values.fillna(values.groupby(runs["task"]).transform("min"))


def differences(runs: pd.DataFrame, comparison: Comparison) -> np.ndarray:
    """Paired differences (T, n) of a comparison; NaN where a run is missing.

    Args:
        runs: Rows of runs, each once; see :func:`read_runs`.
        comparison: The comparison.

    Raises:
        InvalidArgumentError: the measure of a run is not that of the comparison.
    """
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
