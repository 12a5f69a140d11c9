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
from experiments.finetuning.verdicts.estimates import Estimate, over_tasks, these_tasks
from experiments.finetuning.verdicts.paired import differences
from experiments.finetuning.verdicts.power import Plan
from loca_theory.claims.rules import Verdict

FAMILY_WISE = 0.05


@dataclass(frozen=True)
class Decision:
    """The verdict on a comparison, and what it rests on.

    Differences are in points, or in per cent of the loss.

    Attributes:
        verdict: The verdict.
        estimate: Mean difference over tasks like these.
        low: Its lower bound at the level of the family.
        high: Its upper bound.
        within: The smallest margin within which the sides are equivalent: the larger of the
            absolute values of the bounds.
        fixed: Mean difference over these tasks alone, which decides nothing.
        fixed_low: Its lower bound at the same level.
        fixed_high: Its upper bound.
        kinds_low: Lower bound, at the same level, if the kinds of tasks are random as well; it
            decides nothing. NaN if no task is a variant of another or there is one kind.
        kinds_high: Upper bound.
        between: Estimated standard deviation of true differences between tasks; NaN for one task.
        standard_deviation: Estimated standard deviation of paired differences within a task.
        task_differences: Mean difference of each task.
        task_errors: Its standard error over seeds.
    """

    verdict: Verdict
    estimate: Estimate
    low: float
    high: float
    within: float
    fixed: Estimate
    fixed_low: float
    fixed_high: float
    kinds_low: float
    kinds_high: float
    between: float
    standard_deviation: float
    task_differences: tuple[float, ...]
    task_errors: tuple[float, ...]


@dataclass(frozen=True)
class Progress:
    """The pairs of runs that a comparison has so far.

    Attributes:
        comparison: The comparison.
        pairs: Number of complete pairs of every task.
        decision: The decision; None as long as runs are missing.
    """

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
    return Plan(
        len(counted), min(counted), comparison.standard_deviation, between, level_of(family_size)
    )


def level_of(family_size: int) -> float:
    """One-sided level of each bound in a family of this many comparisons."""
    return FAMILY_WISE / family_size


def decide(comparison: Comparison, differences: np.ndarray, family_size: int) -> Decision:
    """Decide a comparison from all its paired differences."""
    level = level_of(family_size)
    estimate, fixed = over_tasks(differences), these_tasks(differences)
    low, high = estimate.bounds(level)
    variance = float(differences.var(1, ddof=1).mean())
    between = math.nan
    if len(differences) > 1:
        means = float(differences.mean(1).var(ddof=1))
        between = math.sqrt(max(means - variance / differences.shape[1], 0.0))
    return Decision(
        verdict_of(comparison.kind, comparison.margin, estimate, level),
        estimate,
        low,
        high,
        max(abs(low), abs(high)),
        fixed,
        *fixed.bounds(level),
        *_bounds_over_kinds(comparison.tasks, differences, level),
        between,
        math.sqrt(variance),
        tuple(differences.mean(1).tolist()),
        tuple((differences.std(1, ddof=1) / math.sqrt(differences.shape[1])).tolist()),
    )


def _bounds_over_kinds(
    tasks: Sequence[str], differences: np.ndarray, level: float
) -> tuple[float, float]:
    """Bounds of the mean difference if kinds are random: Student's t over the means of kinds."""
    of = [kind_of(task) for task in tasks]
    kinds = sorted(set(of))
    if not 1 < len(kinds) < len(tasks):
        return math.nan, math.nan
    return over_tasks(
        np.array([differences[[one == kind for one in of]].mean(0) for kind in kinds])
    ).bounds(level)


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
