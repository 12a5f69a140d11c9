"""Order statistics, brackets, and eigenvalues of Wishart matrices, as the appendix prints them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy import special, stats

from loca_theory.claims.measurement import Measurement, Part, Setting
from loca_theory.expressivity import (
    Budget,
    approximate,
    exact_error,
    expected_top_sum,
    sample_leading_eigenvalues,
)

_NODES = 80


def density(setting: Setting, *, rank: str) -> Measurement:
    r"""Largest deviation of a mean under the printed density from that of the order statistic.

    Printed is :math:`h_l = n \binom{n-1}{l-1} h\, H^{l-1} (1 - H)^{n-l}` for the l-th largest of n;
    its mean is integrated numerically. The truth is the difference of two expected sums of the
    largest.

    Args:
        setting: Not used.
        rank: Read l as that of the l-th ``largest``, as printed, or ``smallest``.

    Source: the lemma on order statistics in the proof of Theorem 1.
    """
    del setting
    n, df, worst = 12, 2, 0.0
    x = np.linspace(0, 60, 200_001)
    h, cdf = stats.chi2.pdf(x, df), stats.chi2.cdf(x, df)
    for l in range(1, n + 1):  # noqa: E741
        printed = n * special.binom(n - 1, l - 1) * h * cdf ** (l - 1) * (1 - cdf) ** (n - l)
        position = l if rank == "largest" else n + 1 - l
        truth = expected_top_sum(n, position, df) - expected_top_sum(n, position - 1, df)
        worst = max(worst, abs(float(np.trapezoid(x * printed, x)) - truth))
    return Measurement.exact(worst, f"The l-th {rank} of {n} variables χ²_{df}, all l.")


def mean_bound(setting: Setting) -> Measurement:
    r"""Largest excess of E X_(l) over :math:`\mu + \sigma\sqrt{(n-l)/l}`; l-th largest of n.

    χ²₁ and χ²₂, n = 2, 10 and 200, all l.

    Source: the remark on order-statistic bounds.
    """
    del setting
    excess = -np.inf
    for df, sigma in ((1, np.sqrt(2.0)), (2, 2.0)):
        for n in (2, 10, 200):
            sums = np.array([expected_top_sum(n, count, df) for count in range(n + 1)])
            l = np.arange(1, n + 1)  # noqa: E741
            excess = max(excess, float((np.diff(sums) - df - sigma * np.sqrt((n - l) / l)).max()))
    return Measurement.exact(excess)


def bounds_compared(setting: Setting, *, means: bool, sizes: Sequence[int]) -> Measurement:
    r"""Smallest (bound of Σψ − bound of M₂)/K² over all r < K/3.

    The bounds are Σ(μ + σ√((n−i)/i)) over the N₃ = Kr and N₂ = 2Kr/3 largest.

    Args:
        setting: Not used.
        means: With the terms μ, which the printed comparison leaves out.
        sizes: Even K.

    Source: the displayed inequality of the remark in the proof of Theorem 1.
    """
    del setting
    gaps = {}
    for size in sizes:
        one = np.cumsum(np.sqrt((size**2 - (i := np.arange(1, size**2 + 1))) / i))
        n = size**2 // 2 + 2
        two = np.cumsum(np.sqrt((n - (i := np.arange(1, n + 1))) / i))
        for r in range(1, (size - 1) // 3 + 1):
            single, pairs = size * r, 2 * size * r // 3
            gap = np.sqrt(2.0) * one[single - 1] - 2 * two[pairs - 1]
            gap += (single - 2 * pairs) if means else 0
            gaps[size, r] = float(gap) / size**2
    size, r = min(gaps, key=lambda key: gaps[key])
    return Measurement.exact(
        gaps[size, r],
        f"Smallest at K = {size}, r = {r}. That one upper bound lies below another says nothing "
        "of what they bound.",
    )


def bracket(setting: Setting) -> Measurement:
    """Smallest of M₂ − kept(F2) and kept(F2) − M₁ over K², K = 2 to 60 and all r < K/3.

    Source: M₁ ≤ E(K² − L_F^(2)) ≤ M₂ in the proof of Theorem 1.
    """
    del setting
    gaps = []
    for size in range(4, 61):
        for r in range(1, (size - 1) // 3 + 1):
            low, true, high = (exact_error(c, Budget(size, size, r)) for c in ("M2", "F2", "M1"))
            gaps += [high - true, true - low]
    return Measurement.exact(min(gaps))


def wishart_constant(setting: Setting) -> Measurement:
    r"""Largest deviation from 1 of ∫ g_L over λ₁ > … > λ_K with the printed C, K = 1, 2, 3.

    :math:`C = (π/2)^{K^2/2} / Γ_K(K/2)^2`. With λ_i = u_i², u₁ = s, u_{i+1} = u_i t_i the ordered
    region becomes a box on which the integrand is smooth, and Gauss–Legendre converges.

    Source: the density of the Wishart eigenvalues and its constant.
    """
    del setting
    x, w = np.polynomial.legendre.leggauss(_NODES)
    s, ws = 7 * (1 + x), 7 * w  # u beyond 14 carries nothing
    t, wt = (1 + x) / 2, w / 2
    worst = 0.0
    for size in (1, 2, 3):
        constant = (np.pi / 2) ** (size**2 / 2) / np.exp(2 * special.multigammaln(size / 2, size))
        grids = np.meshgrid(s, *[t] * (size - 1), indexing="ij")
        u, jacobian = [grids[0]], np.ones_like(grids[0])
        for step in grids[1:]:
            jacobian = jacobian * u[-1]
            u.append(u[-1] * step)
        # dλ = 2u du cancels λ^{-1/2} up to the factor 2.
        value = jacobian * 2.0**size * np.exp(-sum(one**2 for one in u) / 2)
        for i in range(size):
            for j in range(i + 1, size):
                value = value * (u[i] ** 2 - u[j] ** 2)
        total = value
        for weights in [*[wt] * (size - 1), ws]:
            total = total @ weights
        worst = max(worst, abs(constant * float(total) - 1))
    return Measurement.exact(worst)


def largest_eigenvalue(setting: Setting, *, sizes: Sequence[int]) -> Measurement:
    """(E λ₁ − 4K)/K^{1/3}, a part a size: bounded if the expansion with c = 1 is right.

    Its limit is then 2^{4/3} E χ = −3.04, χ of Tracy and Widom's law.

    Source: equation (maxeigenvaluecalcu).
    """
    draws = setting.scaled(4000, 15_000, 60_000)
    parts = []
    for size in sizes:
        found = [sample_leading_eigenvalues(size, size, 1, setting.rng)[0][0] for _ in range(draws)]
        parts.append(Part.mean((np.array(found) - 4 * size) / size ** (1 / 3), f"K = {size}"))
    return Measurement.of(parts)


def low_rank_limit(setting: Setting, *, printed: bool, size: int) -> Measurement:
    """E(1 − L_R)/K as printed, or E(K² − L_R)/K, for r = 1; at least 4 less terms K^{-2/3}.

    Source: the displayed limit after the expansion of λ₁ in the proof of Theorem 1.
    """
    draws = setting.scaled(400, 2000, 10_000)
    largest = [sample_leading_eigenvalues(size, size, 1, setting.rng)[0][0] for _ in range(draws)]
    kept = Part.mean(np.array(largest) / size)
    shift = size - 1 / size if printed else 0.0
    return Measurement.of(
        Part("", kept.value - shift, kept.standard_error, draws), f"K = {size}, r = 1."
    )


def low_rank_sum(setting: Setting, *, first: str) -> Measurement:
    """Largest relative deviation of Σ|λ_i|² from ‖W − Ŵ_R‖², the sum from K−r+1 or from r+1.

    Args:
        setting: The source of matrices; the identity holds for each or for none.
        first: ``K-r+1``, as printed, or ``r+1``.

    Source: the expression for L_R in the appendix's proposition.
    """
    size, worst = 12, 0.0
    for r in (1, 2, 3, 4):
        w = torch.from_numpy(setting.rng.standard_normal((size, size)))
        loss = float((w - approximate(w, "R", Budget(size, size, r))).square().sum())
        energies = torch.linalg.svdvals(w).square().numpy()
        start = size - r if first == "K-r+1" else r
        worst = max(worst, abs(float(energies[start:].sum()) / loss - 1))
    return Measurement.exact(worst, f"K = {size}, r = 1 to 4.")
