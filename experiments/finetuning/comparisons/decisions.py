"""Verdicts on comparisons, from confidence bounds at the level of their family.

All bounds of a family of k comparisons have the one-sided level 5% / k. Whatever the true
difference is, a false verdict requires one particular bound to miss it, so Bonferroni's correction
over the comparisons is enough for a family-wise error rate of 5%. The later steps of Holm's method
are invalid here: a comparison can be decided in the wrong direction, and would pass its level on.

Source: Finner and Strassburger, Annals of Statistics 30, 2002 (partitioning principle).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from experiments.finetuning.comparisons.design import Comparison, Design
from experiments.finetuning.comparisons.differences import differences, random_choice_of
from experiments.finetuning.settings import kind_of
from experiments.verdicts import (
    LEVEL,
    Estimate,
    over_draws,
    over_fixed_tasks,
    over_tasks,
    verdict_by_bounds,
)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The verdict on a comparison, and what it rests on."""

    verdict: str
    # The mean difference over tasks like these, in points or in per cent of the loss.
    difference: float
    standard_error: float
    degrees_of_freedom: float
    low: float  # bounds at the level of the family
    high: float
    within: float  # the smallest margin within which the sides are equivalent
    # Bounds for these tasks alone, and if the kinds of tasks are random as well; they decide
    # nothing. The latter are NaN if no task is a variant of another or there is one kind.
    fixed_low: float
    fixed_high: float
    kinds_low: float = math.nan
    kinds_high: float = math.nan
    # If the tasks of one draw depend on each other; NaN and None where each has one of its own.
    draws_error: float = math.nan
    draws_low: float = math.nan
    draws_high: float = math.nan
    draws_verdict: str | None = None
    between: float = (
        math.nan
    )  # standard deviation of true differences between tasks, NaN for one task
    standard_deviation: float  # of paired differences within a task
    task_differences: tuple[float, ...]  # the mean of each task
    task_errors: tuple[float, ...]  # standard errors of these means, over seeds


Decided = tuple[Comparison, tuple[int, ...], Decision | None]
"""A comparison, the complete pairs of runs of every task, and the decision if none is missing."""


def decide_all(design: Design, runs: pd.DataFrame) -> list[Decided]:
    """Each comparison, its complete pairs by task, and its decision, if no run is missing."""
    decided: list[Decided] = []
    for comparison in design.comparisons:
        values = differences(runs, comparison)
        pairs = tuple(np.isfinite(values).sum(1).tolist())
        size = len(design.members(comparison.family))
        is_complete = min(pairs) == comparison.seeds
        decision = decide(comparison, values, size) if is_complete else None
        decided.append((comparison, pairs, decision))
    return decided


def decide(comparison: Comparison, differences: np.ndarray, family_size: int) -> Decision:
    """Decide a comparison from its paired differences, of shape (tasks, seeds); none is missing."""
    level, (tasks, seeds) = LEVEL / family_size, differences.shape

    def verdict(estimate: Estimate) -> str:
        return verdict_by_bounds(comparison.kind, comparison.margin, estimate, level).value

    estimate = over_tasks(differences)
    low, high = estimate.bounds(level)
    values: dict[str, Any] = {**estimate._asdict(), "low": low, "high": high}
    values["fixed_low"], values["fixed_high"] = over_fixed_tasks(differences).bounds(level)
    kinds, draws = ([of(task) for task in comparison.tasks] for of in (kind_of, random_choice_of))
    if 1 < len(set(kinds)) < len(kinds):
        # Student's t over the means of kinds.
        masks = [np.equal(kinds, kind) for kind in sorted(set(kinds))]
        of_kinds = np.array([differences[mask].mean(0) for mask in masks])
        values["kinds_low"], values["kinds_high"] = over_tasks(of_kinds).bounds(level)
    if 1 < len(set(draws)) < len(draws):
        drawn = over_draws(differences, draws)
        values |= {"draws_error": drawn.standard_error, "draws_verdict": verdict(drawn)}
        values["draws_low"], values["draws_high"] = drawn.bounds(level)
    variance, means = float(differences.var(1, ddof=1).mean()), differences.mean(1)
    if tasks > 1:
        excess = float(means.var(ddof=1)) - variance / seeds
        values["between"] = math.sqrt(max(excess, 0.0))
    values["standard_deviation"] = math.sqrt(variance)
    values["task_differences"] = tuple(means.tolist())
    values["task_errors"] = tuple((differences.std(1, ddof=1) / math.sqrt(seeds)).tolist())
    return Decision(verdict=verdict(estimate), within=max(abs(low), abs(high)), **values)
