"""Order statistics and the bounds M1 and M2 built from them, as printed in the appendix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import integrate, special, stats

from loca_theory.claims.checks._extremes import largest_entry, least
from loca_theory.claims.checks.theorems import covered
from loca_theory.claims.estimates import Returned
from loca_theory.expressivity import exact_error
from loca_theory.expressivity.order_statistics import expected_top_sum


def density(*, rank: str) -> Returned:
    r"""Largest deviation of the integral of the printed density from the order statistic's law.

    The printed density is :math:`h_l = n \binom{n-1}{l-1} h\, H^{l-1} (1 - H)^{n-l}` for the l-th
    largest of n. The law is binomial: the l-th largest is at most x if at most l − 1 of the n
    exceed x.

    Args:
        rank: Whether l counts from the ``largest``, as printed, or from the ``smallest``.

    Source: the lemma on order statistics in the proof of Theorem 1.
    """
    n, df, gaps = 12, 2, []
    x = np.linspace(0, 60, 20_001)
    h, cdf = stats.chi2.pdf(x, df), stats.chi2.cdf(x, df)
    for l in range(1, n + 1):  # noqa: E741
        printed = n * special.binom(n - 1, l - 1) * h * cdf ** (l - 1) * (1 - cdf) ** (n - l)
        position = l if rank == "largest" else n + 1 - l  # counted from the largest
        law = stats.binom.cdf(position - 1, n, 1 - cdf)
        gaps.append(integrate.cumulative_simpson(printed, x=x, initial=0) - law)
    return largest_entry(gaps), f"The l-th {rank} of {n} variables χ²_{df}, all l."


def mean_bound(*, factor: float = 1.0) -> Returned:
    r"""Largest excess of E X_(l), the l-th largest of n, over :math:`\mu + \sigma\sqrt{(n-l)/l}`.

    The variables are χ²₁ and χ²₂, with n = 2, 10 and 200, and all l.

    Args:
        factor: Factor of σ in the bound, 1 as printed.

    Source: the remark on order-statistic bounds.
    """
    excess = -np.inf
    for df, sigma in ((1, np.sqrt(2.0)), (2, 2.0)):
        for n in (2, 10, 200):
            sums = np.array([expected_top_sum(n, count, df) for count in range(n + 1)])
            l = np.arange(1, n + 1)  # noqa: E741
            bound = df + factor * sigma * np.sqrt((n - l) / l)
            excess = max(excess, float((np.diff(sums) - bound).max()))
    return excess


def bound_reached(*, law: str) -> Returned:
    r"""Smallest ratio of the largest possible :math:`E X_{(l)}` to :math:`\sigma\sqrt{(n-l)/l}`.

    All variables have mean 0 and variance σ². The bound is tight if the ratio is 1.

    If they are independent, the mean of the largest (l = 1) is :math:`\int_0^1 Q(u)\, n u^{n-1}\,
    du` for their quantile function Q. By Cauchy and Schwarz it is at most
    :math:`\sigma\lVert n u^{n-1} - 1\rVert`, which Q ∝ :math:`n u^{n-1} - 1` reaches.

    If they may depend on each other, let them be the numbers :math:`\sqrt{(n-l)/l}`, l times, and
    :math:`-\sqrt{l/(n-l)}`, n − l times, in random order. Each variable then has mean 0 and
    variance 1.

    Args:
        law: ``independent``, with l = 1, or ``any``, with all l < n; n = 2, 3, 10 and 60.

    Source: the remark on order-statistic bounds; E. J. Gumbel, Ann. Math. Stat. 25 (1954); B. C.
    Arnold and R. A. Groeneveld, Ann. Stat. 7 (1979).
    """
    ratios = []
    for n in (2, 3, 10, 60):
        if law == "independent":
            nodes, weights = np.polynomial.legendre.leggauss(n)  # exact up to degree 2n − 1
            density = n * ((nodes + 1) / 2) ** (n - 1)
            ratios.append(np.sqrt(weights @ (density - 1) ** 2 / 2) / np.sqrt(n - 1))
            continue
        for l in range(1, n):  # noqa: E741
            values = np.repeat([np.sqrt((n - l) / l), -np.sqrt(l / (n - l))], [l, n - l])
            reached = (values[l - 1] - values.mean()) / values.std()
            ratios.append(reached / np.sqrt((n - l) / l))
    return min(ratios), f"The largest is {max(ratios):.3f}."


def bounds_compared(*, means: bool, sizes: Sequence[int], locations: int = 2) -> Returned:
    r"""Smallest (bound of Σψ − bound of M₂)/K² over all r < K/3.

    The bounds are Σ(μ + σ√((n−i)/i)) over the N₃ = Kr and the N₂ = 2Kr/3 largest.

    Args:
        means: Include the terms μ, which the printed comparison omits.
        sizes: Even values of K.
        locations: N₂ in units of Kr/3: 2 as in the proof.

    Source: the displayed inequality of the remark in the proof of Theorem 1.
    """
    gaps = {}
    for size in sizes:
        one = np.cumsum(np.sqrt((size**2 - (i := np.arange(1, size**2 + 1))) / i))
        n = size**2 // 2 + 2
        two = np.cumsum(np.sqrt((n - (i := np.arange(1, n + 1))) / i))
        for r in range(1, (size - 1) // 3 + 1):
            single, pairs = size * r, locations * size * r // 3
            gap = np.sqrt(2.0) * one[single - 1] - 2 * two[pairs - 1]
            gap += (single - 2 * pairs) if means else 0
            gaps[f"K = {size}, r = {r}"] = float(gap) / size**2
    note = "Smallest at {at}. The order of two upper bounds says nothing about the order of what "
    return least(gaps, note + "they bound.")


def bracket(*, method: str = "F2") -> Returned:
    """Smallest gap in M₁ ≤ E(K² − L_F^(2)) ≤ M₂, over K², for K = 4 to 60 and all r < K/3.

    Args:
        method: The method between M₁ and M₂.

    Source: M₁ ≤ E(K² − L_F^(2)) ≤ M₂ in the proof of Theorem 1.
    """
    gaps = []
    for budget in covered(range(4, 61)):
        low, true, high = (exact_error(name, budget) for name in ("M2", method, "M1"))
        gaps += [high - true, true - low]
    return min(gaps)
