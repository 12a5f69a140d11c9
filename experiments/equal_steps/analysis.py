r"""How much methods differ at rates by each rule, and what tuning is worth beside equal steps.

With :math:`\bar x_{tm}` the mean score over seeds of method m on task t, the spread of M methods on
T tasks is :math:`\sqrt{\tfrac1T \sum_t \tfrac1{M-1} \sum_m (\bar x_{tm} - \bar x_t)^2}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

import numpy as np
import pandas as pd

from experiments.equal_steps.phases import DESIGN, ONE_RATE, ONE_STEP, TUNED, trial_of
from experiments.live_kinds.phases import Rates, Rows
from experiments.pretrained.runs import Design
from loca_theory.sweeps import generator

Scores = Mapping[str, np.ndarray]
"""Scores in points by rule: tasks × seeds × methods, in the order of the rule's methods."""


def scores(
    rows: Rows, by_rule: Mapping[str, Mapping[str, Rates]], design: Design = DESIGN
) -> dict[str, np.ndarray]:
    """The scores of the runs that count; of a run that diverged, the trivial one."""
    tasks = [task for tasks in design["kinds"].values() for task in tasks]

    def score(task: str, method: str, chosen: Rates, seed: int) -> float:
        row = rows[trial_of(task, method, chosen, seed)]
        return 100 * (row["trivial"] if row["metric"] is None else row["metric"])

    found = {}
    for rule, rates in by_rule.items():
        every = product(tasks, range(design["seeds"]), rates.items())
        values = [score(task, method, chosen, seed) for task, seed, (method, chosen) in every]
        found[rule] = np.reshape(values, (len(tasks), design["seeds"], len(rates)))
    return found


def spread(values: np.ndarray) -> float:
    """Standard deviation between methods, of their means over seeds, pooled over tasks."""
    return float(np.sqrt(values.mean(axis=1).var(axis=-1, ddof=1).mean()))


def spreads(measured: Scores, design: Design = DESIGN) -> pd.Series:
    """The spread of the methods with defaults, in points, by rule."""
    count = len(design["defaults"])
    return pd.Series({rule: spread(values[..., :count]) for rule, values in measured.items()})


def result(measured: Scores, design: Design = DESIGN) -> pd.DataFrame:
    """Ratios of spreads, and the points of tuning, with 95% intervals and what they show."""
    count, margin = len(design["defaults"]), design["margin"]

    def ratio(rule: str) -> Callable[[Scores], float]:
        return lambda drawn: spread(drawn[rule][..., :count]) / spread(drawn[ONE_RATE])

    def points(drawn: Scores) -> float:
        # Without LoRA, the first method, which has one rate by both rules.
        return float((drawn[TUNED] - drawn[ONE_STEP])[..., 1:].mean())

    statistics = {
        "spread at one step / at one rate": ratio(ONE_STEP),
        "spread when tuned / at one rate": ratio(TUNED),
        "points of tuning beyond one step": points,
    }
    found = {}
    for title, statistic in statistics.items():
        low, high = interval(measured, statistic, design["draws"])
        if statistic is not points:
            shows = "less" if high < 1 else "more" if low > 1 else "not shown"
        elif -margin < low and high < margin:
            shows = "equivalent within a margin"
        else:
            shows = "tuning gains" if low > 0 else "not shown"
        found[title] = {"value": statistic(measured), "low": low, "high": high, "shows": shows}
    return pd.DataFrame(found).T


def interval(
    measured: Scores, statistic: Callable[[Scores], float], draws: int
) -> tuple[float, float]:
    """A 95% interval over tasks, drawn with replacement, and in each seeds, by percentiles.

    A drawn task has the same seeds for all rules and methods.
    """
    rng = generator(0, "equal-steps.bootstrap")
    tasks, seeds, _ = next(iter(measured.values())).shape
    values = []
    for _ in range(draws):
        task = rng.integers(tasks, size=(tasks, 1))
        seed = rng.integers(seeds, size=(tasks, seeds))
        values.append(statistic({rule: each[task, seed] for rule, each in measured.items()}))
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)


def means(
    measured: Scores, by_rule: Mapping[str, Mapping[str, Rates]], design: Design = DESIGN
) -> pd.DataFrame:
    """Mean scores by rule, method and task, and the rates."""
    tasks = [task for tasks in design["kinds"].values() for task in tasks]
    lines = {
        (rule, method): {"rate": chosen.adapter, **dict(zip(tasks, of_task, strict=True))}
        for rule, values in measured.items()
        for (method, chosen), of_task in zip(
            by_rule[rule].items(), values.mean(axis=1).T, strict=True
        )
    }
    return pd.DataFrame(lines).T


def without_each_task(measured: Scores, design: Design = DESIGN) -> pd.Series:
    """The primary ratio without each task."""
    tasks = [task for tasks in design["kinds"].values() for task in tasks]
    count = len(design["defaults"])
    others = {task: [i for i in range(len(tasks)) if tasks[i] != task] for task in tasks}
    ratios = {
        task: spread(measured[ONE_STEP][kept][..., :count]) / spread(measured[ONE_RATE][kept])
        for task, kept in others.items()
    }
    return pd.Series(ratios)
