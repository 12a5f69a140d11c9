r"""Compare the spread of scores between methods under three rules for the learning rate.

These are one rate for all, rates with equally large first updates, and tuned rates.

With :math:`\bar x_{tm}` the mean score over seeds of method m on task t, the spread of M methods on
T tasks is :math:`\sqrt{\tfrac1T \sum_t \tfrac1{M-1} \sum_m (\bar x_{tm} - \bar x_t)^2}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

import numpy as np
import pandas as pd

from experiments.equal_updates.phases import DESIGN, EQUAL_UPDATE, ONE_RATE, TUNED
from experiments.live_kinds.phases import Rates, trial_at
from experiments.pretrained.runs import Design, Rows, score_of, tasks_of_kinds
from experiments.verdicts import bootstrap
from loca_theory.claims.rules import Verdict

Scores = Mapping[str, np.ndarray]
"""Scores in points by rule: tasks × seeds × methods, in the order of the rule's methods."""


def scores(
    rows: Rows, by_rule: Mapping[str, Mapping[str, Rates]], design: Design = DESIGN
) -> dict[str, np.ndarray]:
    """The scores of the runs that count; a diverged run gets the constant-prediction score."""
    tasks, seeds = tasks_of_kinds(design), range(design["seeds"])
    measured = {}
    for rule, rates in by_rule.items():
        values = [
            100 * score_of(rows[trial_at(chosen, "counted", task, method, seed)])
            for task, seed, (method, chosen) in product(tasks, seeds, rates.items())
        ]
        measured[rule] = np.reshape(values, (len(tasks), len(seeds), len(rates)))
    return measured


def spread(values: np.ndarray) -> float:
    """Standard deviation between methods, of their means over seeds, pooled over tasks."""
    return float(np.sqrt(values.mean(axis=1).var(axis=-1, ddof=1).mean()))


def spreads(measured: Scores, design: Design = DESIGN) -> pd.Series:
    """The spread of the methods at PEFT's default settings, in points, by rule."""
    count = len(design["defaults"])
    return pd.Series({rule: spread(values[..., :count]) for rule, values in measured.items()})


def spread_verdicts(measured: Scores, design: Design = DESIGN) -> pd.DataFrame:
    """Ratios of spreads, and the points of tuning, with 95% intervals and what they show."""
    count, margin = len(design["defaults"]), design["margin"]

    def ratio(rule: str) -> Callable[[Scores], float]:
        return lambda drawn: spread(drawn[rule][..., :count]) / spread(drawn[ONE_RATE])

    def points(drawn: Scores) -> float:
        # LoRA, the first method, is left out: both rules give it the same rate.
        return float((drawn[TUNED] - drawn[EQUAL_UPDATE])[..., 1:].mean())

    statistics = {
        "spread at equal first updates / at one rate": ratio(EQUAL_UPDATE),
        "spread when tuned / at one rate": ratio(TUNED),
        "points of tuning beyond equal first updates": points,
    }
    lines = {}
    for title, statistic in statistics.items():
        low, high = interval(measured, statistic, design["draws"])
        if statistic is not points:
            shows = "less" if high < 1 else "more" if low > 1 else "not shown"
        elif -margin < low and high < margin:
            shows = Verdict.EQUIVALENT.value
        else:
            shows = "tuning gains" if low > 0 else "not shown"
        lines[title] = {"value": statistic(measured), "low": low, "high": high, "shows": shows}
    return pd.DataFrame(lines).T


def interval(
    measured: Scores, statistic: Callable[[Scores], float], draws: int
) -> tuple[float, float]:
    """A 95% percentile bootstrap interval: tasks are resampled, then seeds within each.

    A drawn task has the same seeds for all rules and methods.
    """
    tasks, seeds, _ = next(iter(measured.values())).shape

    def drawn(rng: np.random.Generator) -> float:
        task = rng.integers(tasks, size=(tasks, 1))
        seed = rng.integers(seeds, size=(tasks, seeds))
        return statistic({rule: scores[task, seed] for rule, scores in measured.items()})

    # This name is part of the seed, so it stays.
    return bootstrap(drawn, draws, "equal-steps.bootstrap")


def means(
    measured: Scores, by_rule: Mapping[str, Mapping[str, Rates]], design: Design = DESIGN
) -> pd.DataFrame:
    """Mean scores by rule, method and task, and the rates."""
    tasks = tasks_of_kinds(design)
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
    count, ratios = len(design["defaults"]), {}
    for i, task in enumerate(tasks_of_kinds(design)):
        remaining = {rule: np.delete(values, i, axis=0) for rule, values in measured.items()}
        ratios[task] = spread(remaining[EQUAL_UPDATE][..., :count]) / spread(remaining[ONE_RATE])
    return pd.Series(ratios)
