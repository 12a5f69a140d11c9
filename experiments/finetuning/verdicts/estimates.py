"""Differences of runs, paired by seed, and their mean over tasks and seeds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import t

from experiments.docstrings import OTHER_PACKAGES, PACKAGES
from experiments.finetuning.methods import find_method
from experiments.finetuning.run_tables import SETTINGS
from experiments.finetuning.settings import kind_of, settings
from experiments.finetuning.verdicts.design import Arm, Comparison
from loca_theory.errors import InvalidArgumentError


def scores(runs: pd.DataFrame, measure: str) -> pd.Series:
    """Scores of runs: 100 times the accuracy, or −100 times the logarithm of the loss."""
    diverged = runs["diverged"].astype(bool)
    column = "loss" if measure == "loss" else "metric"
    lacking = runs[~diverged & runs[column].isna()]
    if len(lacking):
        run = ", ".join(f"{name} {lacking.iloc[0][name]}" for name in ("task", "method", "seed"))
        raise InvalidArgumentError(
            f"the run {run} has no {measure}, and is not marked as diverged; run it again"
        )
    values = runs[column].astype(float)
    other = sorted(set(runs["measure"]) - {"accuracy"})
    if measure == "accuracy" and other:
        raise InvalidArgumentError(
            f"the measure of some runs is {', '.join(other)}; compare accuracies or losses"
        )
    values = -100 * values.apply(np.log) if measure == "loss" else 100 * values
    values = values.mask(diverged)
    return values.fillna(values.groupby(runs["task"]).transform("min"))


def differences(runs: pd.DataFrame, comparison: Comparison) -> np.ndarray:
    """Paired differences (T, n) of a comparison; NaN where a run is missing."""
    seeds, gaps = range(comparison.seeds), []
    for task in comparison.tasks:
        of_task = runs[runs["task"] == task]
        of_task = of_task.assign(score=scores(of_task, comparison.measure))
        method, over = (
            np.mean([
                of_task[_selected(of_task, task, arm)].set_index("seed")["score"].reindex(seeds)
                for arm in arms
            ], axis=0)
            for arms in (comparison.method, comparison.over)
        )  # fmt: skip
        gaps.append(method - over)
    return np.array(gaps)


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


class Estimate(NamedTuple):
    """A mean difference with Student's t of some degrees of freedom."""

    difference: float
    standard_error: float
    degrees_of_freedom: float

    def bounds(self, level: float) -> tuple[float, float]:
        """One-sided lower and upper confidence bounds."""
        half = self.standard_error * _quantile(level, self.degrees_of_freedom)
        return self.difference - half, self.difference + half


@cache
def _quantile(level: float, degrees_of_freedom: float) -> float:
    return float(t.isf(level, degrees_of_freedom))


def over_tasks(differences: np.ndarray) -> Estimate:
    r"""Estimate the mean difference over tasks like these: tasks are random.

    In the mixed model :math:`d_{ts} = \mu + b_t + \varepsilon_{ts}` with
    :math:`b_t \sim N(0, \tau^2)` and :math:`\varepsilon_{ts} \sim N(0, \sigma^2)`, the T task means
    are independent :math:`N(\mu, \tau^2 + \sigma^2/n)`. So their mean and Student's t with T − 1
    degrees of freedom are exact for balanced data. They are those of REML, except where REML sets a
    negative estimate of τ² to 0. If σ differs between tasks, one-sided tests at levels up to 4.16%
    are conservative.

    Source: Bakirov and Székely, Zapiski Nauchnyh Seminarov POMI 328, 2005; Ibragimov and Müller,
        Journal of Business & Economic Statistics 28, 2010.
    """
    values = differences.mean(1) if len(differences) > 1 else differences[0]
    error = float(values.std(ddof=1)) / len(values) ** 0.5
    return Estimate(float(values.mean()), error, len(values) - 1)


def over_draws(differences: np.ndarray, draws: Sequence[str]) -> Estimate:
    r"""Estimate the mean difference over tasks, of which those of one draw depend on each other.

    With the sums :math:`s_g` of the deviations of task means from their mean over the G draws, the
    cluster-robust standard error of the mean of T tasks is
    :math:`\frac1T\sqrt{\frac{G}{G-1}\sum_g s_g^2}`, with G − 1 degrees of freedom. If every task
    has a draw of its own, it is that of :func:`over_tasks`.

    Source: Liang and Zeger, Biometrika 73, 1986.
    """
    values = differences.mean(1)
    sums = pd.Series(values - values.mean()).groupby(list(draws)).sum()
    count = len(sums)
    error = float(np.sqrt(count / (count - 1) * np.square(sums).sum())) / len(values)
    return Estimate(float(values.mean()), error, count - 1)


def these_tasks(differences: np.ndarray) -> Estimate:
    r"""Estimate the mean difference over these tasks alone: tasks are fixed.

    The standard error of the mean of task means is :math:`\frac1T\sqrt{\sum_t s_t^2/n}`, and its
    degrees of freedom are Welch and Satterthwaite's,
    :math:`(\sum_t s_t^2)^2 (n - 1) / \sum_t s_t^4`.

    Source: Satterthwaite, Biometrics Bulletin 2, 1946.
    """
    tasks, seeds = differences.shape
    variances = differences.var(1, ddof=1)
    error = float(np.sqrt(variances.sum() / seeds)) / tasks
    squares = float((variances**2).sum())
    degrees = float(variances.sum() ** 2 * (seeds - 1) / squares) if squares else seeds - 1.0
    return Estimate(float(differences.mean()), error, degrees)


def draw_of(task: str) -> str:
    """The random part of a variant of a task; for a task that is not a variant, its name.

    The seed of what is random is the variant's number, whatever its kind. So ``digits-3`` and
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
