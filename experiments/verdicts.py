r"""Statistics of paired differences between methods, and the two rules that make them verdicts.

A difference is that of two scores with the same task and seed. A design fixes before its runs what
differences are averaged over (tasks, kinds of tasks or draws of their data), and the rule:
:func:`verdict_by_bounds` or :func:`verdict_by_test`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import t, ttest_1samp

from loca_theory.claims.rules import Verdict
from loca_theory.sweeps import generator

LEVEL = 0.05
LOSS = "loss"
"""Measures whose names begin so are losses."""


def points(values: pd.Series, tasks: pd.Series, measure: str) -> pd.Series:
    """Scores: 100 times a metric, or −100 times the logarithm of a loss.

    A run without a value diverged, and has the worst score of its task.
    """
    values = values.astype(float)
    scores: Any = -100 * np.log(values) if measure.startswith(LOSS) else 100 * values
    return scores.fillna(scores.groupby(tasks).transform("min"))


class Estimate(NamedTuple):
    """A mean difference, its standard error, and the degrees of freedom of its t."""

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

    With a single task, its seeds are the sample.

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


def over_fixed_tasks(differences: np.ndarray) -> Estimate:
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


class Student(NamedTuple):
    """Means with Student's 95% intervals, and two-sided p-values of a mean of 0."""

    mean: Any
    low: Any
    high: Any
    p_value: Any


def student(values: ArrayLike) -> Student:
    r"""Mean over the last axis, with :math:`\bar x \pm t_{n-1, 0.975}\, s / \sqrt n`.

    A single value has an unbounded interval, and values that are all the same one of no width.
    """
    values = np.asarray(values, dtype=float)
    mean, count = values.mean(-1), values.shape[-1]
    if values.ndim == 1 and (count < 2 or np.ptp(values) == 0):
        half, mean = math.inf if count < 2 else 0.0, float(mean)
        return Student(mean, mean - half, mean + half, float(count < 2 or mean == 0))
    test: Any = ttest_1samp(values, 0.0, axis=-1)
    ends = test.confidence_interval(1 - LEVEL)
    parts = (mean, ends.low, ends.high, test.pvalue)
    return Student(*(map(float, parts) if values.ndim == 1 else parts))


def sign_p_values(values: ArrayLike) -> np.ndarray:
    """Two-sided p-values, over the last axis, of the exact test that changes signs."""
    values = np.asarray(values, dtype=float)
    signs = np.array(list(product((1, -1), repeat=values.shape[-1])))
    sums, observed = values @ signs.T, values.sum(-1, keepdims=True)
    return np.mean(np.abs(sums) >= np.abs(observed) * (1 - 1e-12), axis=-1)


def holm(p_values: ArrayLike) -> np.ndarray:
    """Holm-adjusted p-values over the first axis, which control the family-wise error rate.

    Source: Holm, Scandinavian Journal of Statistics 6, 1979.
    """
    values = np.asarray(p_values, dtype=float)
    order = np.argsort(values, axis=0, kind="stable")
    counts = np.arange(len(values), 0, -1).reshape(-1, *[1] * (values.ndim - 1))
    steps = counts * np.take_along_axis(values, order, axis=0)
    adjusted = np.empty_like(values)
    np.put_along_axis(adjusted, order, np.maximum.accumulate(steps).clip(max=1.0), axis=0)
    return adjusted


def bootstrap(
    drawn: Callable[[np.random.Generator], float], draws: int, path: str
) -> tuple[float, float]:
    """A 95% interval by the percentiles of values, each drawn from one generator."""
    rng = generator(0, path)
    low, high = np.nanquantile([drawn(rng) for _ in range(draws)], (LEVEL / 2, 1 - LEVEL / 2))
    return float(low), float(high)


def verdict_by_bounds(kind: str, margin: float, estimate: Estimate, level: float) -> Verdict:
    """The verdict on a difference by its bounds at the level of a family.

    ``kind`` is what is claimed of the difference, with the margin m and the bounds (L, U):

    - ``greater`` than 0: supported if L > 0; not supported if U < 0, or if U < m and L ≤ −m;
      equivalent if only U < m.
    - ``equivalent`` to 0: equivalent if −m < L and U < m; not supported if, with half the level for
      each bound, L > m or U < −m.
    - ``not-worse`` than 0: supported if L > −m, not supported if U < −m.

    Otherwise it is inconclusive.
    """
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


def verdict_by_test(
    difference: float, p_value: float, *intervals: tuple[float, float, float]
) -> Verdict:
    """The verdict on a difference by a test and, if it shows nothing, by intervals with margins.

    The sides are equivalent if each interval, (low, high, margin), lies within its margin.
    """
    if p_value <= LEVEL:
        return Verdict.SUPPORTED if difference > 0 else Verdict.NOT_SUPPORTED
    is_within = all(max(-low, high) < margin for low, high, margin in intervals)
    return Verdict.EQUIVALENT if is_within else Verdict.INCONCLUSIVE
