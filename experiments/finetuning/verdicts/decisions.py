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
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from experiments.finetuning.settings import kind_of
from experiments.finetuning.verdicts.design import Comparison, Design
from experiments.finetuning.verdicts.draws import draw_of
from experiments.finetuning.verdicts.estimates import (
    Estimate,
    differences,
    over_draws,
    over_tasks,
    these_tasks,
)
from experiments.finetuning.verdicts.power import Plan
from loca_theory.claims.rules import Verdict

FAMILY_WISE = 0.05


@dataclass(frozen=True)
class Decision:
    """The verdict on a comparison, and what it rests on, in points or in per cent of the loss."""

    verdict: Verdict
    estimate: Estimate  # of the mean difference over tasks like these
    low: float  # its bounds at the level of the family
    high: float
    within: float  # the smallest margin within which the sides are equivalent
    fixed_low: float  # bounds for these tasks alone, which decide nothing
    fixed_high: float
    # Bounds if the kinds of tasks are random as well, which decide nothing. NaN if no task is a
    # variant of another or there is one kind.
    kinds_low: float
    kinds_high: float
    # Standard error, bounds and verdict if the tasks of one draw depend on each other. NaN and None
    # where every task has a draw of its own.
    draws_error: float
    draws_low: float
    draws_high: float
    draws_verdict: Verdict | None
    between: float  # estimated standard deviation of true differences; NaN for one task
    standard_deviation: float  # estimated, of paired differences within a task
    task_differences: tuple[float, ...]  # mean difference of each task
    task_errors: tuple[float, ...]  # its standard error over seeds


@dataclass(frozen=True)
class Progress:
    """The complete pairs of runs of every task, and the decision once none is missing."""

    comparison: Comparison
    pairs: tuple[int, ...]
    decision: Decision | None


def progress(design: Design, runs: pd.DataFrame) -> list[Progress]:
    """Decide every comparison of a design whose runs are all there."""
    found = []
    for one in design.comparisons:
        values = differences(runs, one)
        pairs = tuple(int(n) for n in np.isfinite(values).sum(1))
        complete = min(pairs) == one.seeds
        size = len(design.members(one.family))
        found.append(Progress(one, pairs, decide(one, values, size) if complete else None))
    return found


def plan(
    comparison: Comparison, family_size: int, between: float, pairs: Sequence[int] | None = None
) -> Plan | None:
    """The plan of a comparison with all its runs, or with those that it has so far."""
    counted = [n for n in pairs or [comparison.seeds] * len(comparison.tasks) if n >= 2]
    if not counted or len(counted) < min(2, len(comparison.tasks)):
        return None
    spread, level = comparison.standard_deviation, level_of(family_size)
    return Plan(len(counted), min(counted), spread, between, level)


def level_of(family_size: int) -> float:
    """One-sided level of each bound in a family of this many comparisons."""
    return FAMILY_WISE / family_size


def decide(comparison: Comparison, differences: np.ndarray, family_size: int) -> Decision:
    """Decide a comparison from all its paired differences."""
    level = level_of(family_size)
    estimate = over_tasks(differences)
    low, high = estimate.bounds(level)
    fixed_low, fixed_high = these_tasks(differences).bounds(level)
    kinds_low, kinds_high = _bounds_over_kinds(comparison.tasks, differences, level)
    draws = [draw_of(task) for task in comparison.tasks]
    by_draws = over_draws(differences, draws) if 1 < len(set(draws)) < len(draws) else None
    draws_low, draws_high = by_draws.bounds(level) if by_draws else (math.nan, math.nan)
    variance = float(differences.var(1, ddof=1).mean())
    tasks, seeds = differences.shape
    between = math.nan
    if tasks > 1:
        means = float(differences.mean(1).var(ddof=1))
        between = math.sqrt(max(means - variance / seeds, 0.0))
    return Decision(
        verdict=verdict_of(comparison.kind, comparison.margin, estimate, level),
        estimate=estimate,
        low=low,
        high=high,
        within=max(abs(low), abs(high)),
        fixed_low=fixed_low,
        fixed_high=fixed_high,
        kinds_low=kinds_low,
        kinds_high=kinds_high,
        draws_error=by_draws.standard_error if by_draws else math.nan,
        draws_low=draws_low,
        draws_high=draws_high,
        draws_verdict=by_draws and verdict_of(comparison.kind, comparison.margin, by_draws, level),
        between=between,
        standard_deviation=math.sqrt(variance),
        task_differences=tuple(differences.mean(1).tolist()),
        task_errors=tuple((differences.std(1, ddof=1) / math.sqrt(seeds)).tolist()),
    )


def _bounds_over_kinds(
    tasks: Sequence[str], differences: np.ndarray, level: float
) -> tuple[float, float]:
    """Bounds of the mean difference if kinds are random: Student's t over the means of kinds."""
    of = [kind_of(task) for task in tasks]
    kinds = sorted(set(of))
    if not 1 < len(kinds) < len(tasks):
        return math.nan, math.nan
    means = [differences[[one == kind for one in of]].mean(0) for kind in kinds]
    return over_tasks(np.array(means)).bounds(level)


def verdict_of(kind: str, margin: float, estimate: Estimate, level: float) -> Verdict:
    """The verdict on a difference, as the design defines it."""
    low, high = estimate.bounds(level)
    if kind == "greater":
        if low > 0:
            return Verdict.SUPPORTED
        if high < 0 or (high < margin and low <= -margin):
            return Verdict.NOT_SUPPORTED
        return Verdict.EQUIVALENT if high < margin else Verdict.INCONCLUSIVE
    if kind == "equivalent":
        if -margin < low and high < margin:
            return Verdict.EQUIVALENT
        # The true difference may miss either end, so each has half the level.
        low, high = estimate.bounds(level / 2)
        outside = low > margin or high < -margin
    else:
        if low > -margin:
            return Verdict.SUPPORTED
        outside = high < -margin
    return Verdict.NOT_SUPPORTED if outside else Verdict.INCONCLUSIVE
