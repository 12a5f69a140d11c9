"""Differences of runs, paired by seed, and which variants of tasks share a random choice."""

from __future__ import annotations

import random

import numpy as np
import pandas as pd

from experiments.docstrings import OTHER_PACKAGES, PACKAGES
from experiments.finetuning.comparisons.design import Arm, Comparison
from experiments.finetuning.methods import find_method
from experiments.finetuning.run_tables import SETTINGS
from experiments.finetuning.settings import kind_of, settings
from experiments.verdicts import points
from loca_theory.errors import InvalidArgumentError


def scores(runs: pd.DataFrame, measure: str) -> pd.Series:
    """Scores of runs in points, by accuracies or losses; a diverged run has its task's worst.

    Raises:
        InvalidArgumentError: a run that did not diverge lacks the measure, or ``measure`` is
            accuracy and some runs have another.
    """
    diverged = runs["diverged"].astype(bool)
    column = "loss" if measure == "loss" else "metric"
    lacking = runs[~diverged & runs[column].isna()]
    if len(lacking):
        run = ", ".join(f"{name} {lacking.iloc[0][name]}" for name in ("task", "method", "seed"))
        raise InvalidArgumentError(
            f"the run {run} has no {measure}, and is not marked as diverged; run it again"
        )
    other = sorted(set(runs["measure"]) - {"accuracy"})
    if measure == "accuracy" and other:
        raise InvalidArgumentError(
            f"the measure of some runs is {', '.join(other)}; compare accuracies or losses"
        )
    return points(runs[column].mask(diverged), runs["task"], measure)


def differences(runs: pd.DataFrame, comparison: Comparison) -> np.ndarray:
    """Paired differences of a comparison, of shape (tasks, seeds); NaN where a run is missing."""
    seeds, gaps = range(comparison.seeds), []
    for task in comparison.tasks:
        of_task = runs[runs["task"] == task]
        of_task = of_task.assign(score=scores(of_task, comparison.measure))
        method, over = (
            np.mean([_scores_by_seed(of_task, task, arm).reindex(seeds) for arm in arms], axis=0)
            for arms in (comparison.method, comparison.over)
        )
        gaps.append(method - over)
    return np.array(gaps)


def _scores_by_seed(runs: pd.DataFrame, task: str, arm: Arm) -> pd.Series:
    return runs[_selected(runs, task, arm)].set_index("seed")["score"]


def _selected(runs: pd.DataFrame, task: str, arm: Arm) -> pd.Series:
    """Which runs of a task belong to an arm."""
    method, chosen = find_method(arm.method), settings(task)
    is_selected = runs["method"] == arm.method
    if method.has_budget:
        is_selected &= runs["r"] == (arm.r or chosen["r"])
    if method.kind != "loca":
        return is_selected
    default = {"scaling": 1.0, **{name: chosen[name] for name in SETTINGS if name in chosen}}
    default |= {name: method.options[name] for name in SETTINGS if name in method.options}
    if method.options.get("endless"):
        default["alternating"] = 1.0
    if arm.setting:
        default[arm.setting] = arm.value
    for name, value in default.items():
        is_selected &= pd.Series(np.isclose(runs[name].astype(float), value), runs.index)
    return is_selected


def random_choice_of(task: str) -> str:
    """The random choice of a variant of a task; for a task that is not a variant, its name.

    It repeats what modules of ``experiments.finetuning.tasks`` choose;
    tests/experiments/test_verdicts.py compares most of both. Variants with equal choices are
    dependent. The seed is the number of the variant, whatever its kind: ``digits-3`` and
    ``small-digits-3`` have the same new digits, ``docstrings-3`` and ``source-3`` the same
    packages, and two numbers can give the same turn or package.
    """
    kind, packages = kind_of(task), [*PACKAGES, *OTHER_PACKAGES]
    if kind == task:
        return task
    source = random.Random(int(task.removeprefix(f"{kind}-")))
    if kind in ("digits", "small-digits"):
        return f"digits {sorted(source.sample(range(10), 5))}"
    if kind == "turned":
        return f"turn {source.randint(1, 7)}"
    if kind == "generation":
        return f"text of {source.choice(packages)}"
    source.shuffle(packages)
    return f"packages {sorted(packages[:6])}"
