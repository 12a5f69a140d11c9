"""Verdicts on comparisons, from confidence bounds at the level of their family.

All bounds of a family of k comparisons have the one-sided level 5% / k. Whatever the true
difference is, all false verdicts on a comparison need the same bound to miss it, so the family-wise
error rate is at most 5%. This is the first step of Holm's method. Its later steps would exceed 5%,
because a comparison can err in either direction: one that has a verdict may have got it by chance,
and must not pass its level on.

Source: Finner and Strassburger, Annals of Statistics 30, 2002 (partitioning principle).
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from experiments.finetuning.comparisons.design import Comparison, Design
from experiments.finetuning.comparisons.differences import differences, draw_of
from experiments.finetuning.settings import kind_of
from experiments.tables import Row
from experiments.verdicts import (
    LEVEL,
    Estimate,
    over_draws,
    over_tasks,
    these_tasks,
    verdict_by_bounds,
)

DECIDED = (
    # The mean difference over tasks like these, in points or in per cent of the loss, its bounds
    # at the level of the family, and the smallest margin within which the sides are equivalent.
    "verdict", "difference", "standard_error", "degrees_of_freedom", "low", "high", "within",
    # Bounds for these tasks alone, and if the kinds of tasks are random as well; they decide
    # nothing. The latter are NaN if no task is a variant of another or there is one kind.
    "fixed_low", "fixed_high", "kinds_low", "kinds_high",
    # If the tasks of one draw depend on each other; NaN and None where each has one of its own.
    "draws_error", "draws_low", "draws_high", "draws_verdict",
    # Estimated standard deviations of true differences, NaN for one task, and of paired ones within
    # a task; the mean difference of each task and its standard error over seeds.
    "between", "standard_deviation", "task_differences", "task_errors",
)  # fmt: skip
"""The verdict on a comparison, and what it rests on."""

Progress = tuple[Comparison, tuple[int, ...], Row | None]
"""A comparison, the complete pairs of runs of every task, and the decision if none is missing."""


def progress(design: Design, runs: pd.DataFrame) -> list[Progress]:
    """Decide every comparison of a design whose runs are all there."""
    decided: list[Progress] = []
    for comparison in design.comparisons:
        values = differences(runs, comparison)
        pairs = tuple(np.isfinite(values).sum(1).tolist())
        size = len(design.members(comparison.family))
        is_complete = min(pairs) == comparison.seeds
        row = decide(comparison, values, size) if is_complete else None
        decided.append((comparison, pairs, row))
    return decided


def decide(comparison: Comparison, differences: np.ndarray, family_size: int) -> Row:
    """Decide a comparison from all its paired differences: a value for each of ``DECIDED``."""
    level, (tasks, seeds) = LEVEL / family_size, differences.shape

    def judged(estimate: Estimate) -> str:
        return verdict_by_bounds(comparison.kind, comparison.margin, estimate, level).value

    estimate = over_tasks(differences)
    low, high = estimate.bounds(level)
    kinds, draws = ([of(task) for task in comparison.tasks] for of in (kind_of, draw_of))
    over_kinds, by_draws = (math.nan, math.nan), (math.nan, math.nan, math.nan, None)
    if 1 < len(set(kinds)) < len(kinds):
        # Student's t over the means of kinds.
        masks = [np.equal(kinds, kind) for kind in sorted(set(kinds))]
        of_kinds = np.array([differences[mask].mean(0) for mask in masks])
        over_kinds = over_tasks(of_kinds).bounds(level)
    if 1 < len(set(draws)) < len(draws):
        drawn = over_draws(differences, draws)
        by_draws = (drawn.standard_error, *drawn.bounds(level), judged(drawn))
    variance, means = float(differences.var(1, ddof=1).mean()), differences.mean(1)
    between = math.nan
    if tasks > 1:
        between = math.sqrt(max(float(means.var(ddof=1)) - variance / seeds, 0.0))
    errors = differences.std(1, ddof=1) / math.sqrt(seeds)
    values = (
        judged(estimate), *estimate, low, high, max(abs(low), abs(high)),
        *these_tasks(differences).bounds(level), *over_kinds, *by_draws,
        between, math.sqrt(variance), tuple(means.tolist()), tuple(errors.tolist()),
    )  # fmt: skip
    return dict(zip(DECIDED, values, strict=True))
