"""The mean of paired differences over tasks and seeds, with its standard error."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.stats import t

from loca_theory.errors import InvalidArgumentError


@dataclass(frozen=True)
class Estimate:
    """A mean difference with Student's t of some degrees of freedom.

    Attributes:
        difference: The mean difference.
        standard_error: Its standard error.
        degrees_of_freedom: Degrees of freedom of the standard error.
    """

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
    _check(differences)
    values = differences.mean(1) if len(differences) > 1 else differences[0]
    error = float(values.std(ddof=1)) / len(values) ** 0.5
    return Estimate(float(values.mean()), error, len(values) - 1)


def these_tasks(differences: np.ndarray) -> Estimate:
    r"""Estimate the mean difference over these tasks alone: tasks are fixed.

    The standard error of the mean of task means is :math:`\frac1T\sqrt{\sum_t s_t^2/n}`, and its
    degrees of freedom are Welch and Satterthwaite's,
    :math:`(\sum_t s_t^2)^2 (n - 1) / \sum_t s_t^4`.

    Source: Satterthwaite, Biometrics Bulletin 2, 1946.
    """
    _check(differences)
    tasks, seeds = differences.shape
    variances = differences.var(1, ddof=1)
    error = float(np.sqrt(variances.sum() / seeds)) / tasks
    squares = float((variances**2).sum())
    degrees = float(variances.sum() ** 2 * (seeds - 1) / squares) if squares else seeds - 1.0
    return Estimate(float(differences.mean()), error, degrees)


def _check(differences: np.ndarray) -> None:
    if differences.ndim != 2 or differences.shape[0] < 1 or differences.shape[1] < 2:
        msg = f"differences of shape {differences.shape} have no variance; "
        msg += "give 1 task or more with 2 seeds or more"
        raise InvalidArgumentError(msg)
    if not np.isfinite(differences).all():
        msg = "some differences are missing or infinite; run what is missing first"
        raise InvalidArgumentError(msg)
