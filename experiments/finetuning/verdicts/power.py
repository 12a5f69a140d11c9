r"""Power of a comparison before its runs.

With T tasks and n seeds per task, the mean difference has the standard error
:math:`\sqrt{(\tau^2 + \sigma^2/n)/T}` and T − 1 degrees of freedom, where σ is the standard
deviation of paired differences within a task and τ that of true differences between tasks. With one
task it has :math:`\sigma/\sqrt n` and n − 1 degrees of freedom.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from scipy.integrate import fixed_quad
from scipy.stats import chi, nct, norm, t

MOST_SEEDS = 4096
# Probability that the integral of TOST leaves out at each end, and its nodes.
_TAIL, _NODES = 1e-12, 200


@dataclass(frozen=True)
class Plan:
    """A comparison before its runs."""

    tasks: int
    seeds: int  # number of seeds per task, n
    standard_deviation: float  # standard deviation of paired differences within a task, σ
    # Standard deviation of true differences between tasks, τ; without effect for T = 1.
    between: float
    level: float  # one-sided level of each test

    @property
    def degrees_of_freedom(self) -> int:
        """T − 1, or n − 1 for one task."""
        return self.tasks - 1 if self.tasks > 1 else self.seeds - 1

    @property
    def standard_error(self) -> float:
        """Standard deviation of the mean difference over tasks and seeds."""
        between = self.between if self.tasks > 1 else 0.0
        return math.sqrt((between**2 + self.standard_deviation**2 / self.seeds) / self.tasks)

    def superiority(self, difference: float) -> float:
        """Probability that the lower bound is above 0, by the noncentral t."""
        quantile = float(t.isf(self.level, self.degrees_of_freedom))
        offset = difference / self.standard_error
        return float(nct.sf(quantile, self.degrees_of_freedom, offset))

    def equivalence(self, margin: float, difference: float = 0.0) -> float:
        r"""Probability that both one-sided tests exclude ±m (TOST).

        .. math:: \int_0^{m/(t\,\mathrm{se})} \bigl[\Phi\bigl((m - \mu)/\mathrm{se} - t u\bigr) -
            \Phi\bigl(-(m + \mu)/\mathrm{se} + t u\bigr)\bigr] f(u)\,\mathrm{d}u

        with f the density of :math:`\chi_\nu/\sqrt\nu`: a difference of two of Owen's Q functions.

        Source: Phillips, Journal of Pharmacokinetics and Biopharmaceutics 18, 1990.
        """
        df, se = self.degrees_of_freedom, self.standard_error
        quantile = float(t.isf(self.level, df))
        scale = 1 / math.sqrt(df)

        def integrand(u: np.ndarray) -> np.ndarray:
            upper = norm.cdf((margin - difference) / se - quantile * u)
            lower = norm.cdf(-(margin + difference) / se + quantile * u)
            return (upper - lower) * chi.pdf(u, df, scale=scale)

        # Outside of these quantiles the density does not matter.
        low = float(chi.ppf(_TAIL, df, scale=scale))
        high = min(margin / (quantile * se), float(chi.isf(_TAIL, df, scale=scale)))
        if high <= low:
            return 0.0
        found, _ = fixed_quad(integrand, low, high, n=_NODES)
        return min(max(float(found), 0.0), 1.0)

    def seeds_needed(self, margin: float, power: float, *, equivalence: bool = False) -> int | None:
        """The fewest seeds with a given power; None if more than 4096 would be needed."""

        def reaches(seeds: int) -> bool:
            plan = Plan(self.tasks, seeds, self.standard_deviation, self.between, self.level)
            found = plan.equivalence(margin) if equivalence else plan.superiority(margin)
            return found >= power

        if not reaches(MOST_SEEDS):
            return None
        return 2 + bisect_left(range(2, MOST_SEEDS), True, key=reaches)
