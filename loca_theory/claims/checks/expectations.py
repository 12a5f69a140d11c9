"""The appendix's expectations: of order statistics, of M1 and M2, and of random locations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product

import numpy as np
from scipy import integrate, special, stats

from loca_theory.claims.checks.theorems import covered, exact_gaps
from loca_theory.claims.estimates import Deviations, Returned, Rng, extreme, largest_entry, listed
from loca_theory.expressivity import Budget, exact_error, retained_energies
from loca_theory.expressivity.laws.order_statistics import expected_top_sum
from loca_theory.transforms.half_spectrum import HalfSpectrum
from loca_theory.transforms.matrices import dct_matrix

_ENUMERATED = 5  # largest K at which all choices of locations are enumerated


def density(*, rank: str) -> Returned:
    r"""Largest deviation of the integral of the printed density from the order statistic's law.

    The printed density is :math:`h_l = n \binom{n-1}{l-1} h\, H^{l-1} (1 - H)^{n-l}` for the l-th
    largest of n. The law is binomial: the l-th largest is at most x if at most l − 1 of the n
    exceed x.

    Args:
        rank: Whether l counts from the ``largest``, as printed, or from the ``smallest``.
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

    Source: E. J. Gumbel, Ann. Math. Stat. 25 (1954); B. C. Arnold and R. A. Groeneveld, Ann. Stat.
    7 (1979).
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
    """
    gaps = {}
    for size in sizes:
        bound = np.cumsum(np.sqrt((size**2 - (i := np.arange(1, size**2 + 1))) / i))
        n = size**2 // 2 + 2
        two = np.cumsum(np.sqrt((n - (i := np.arange(1, n + 1))) / i))
        for r in range(1, (size - 1) // 3 + 1):
            single, pairs = size * r, locations * size * r // 3
            gap = np.sqrt(2.0) * bound[single - 1] - 2 * two[pairs - 1]
            gap += (single - 2 * pairs) if means else 0
            gaps[f"K = {size}, r = {r}"] = float(gap) / size**2
    note = "Smallest at {at}. The order of two upper bounds says nothing about the order of what "
    return extreme(min, gaps, note + "they bound.")


def bracket(*, method: str = "Fourier pairs") -> Returned:
    """Smallest gap in M₁ ≤ E(K² − L_F^(2)) ≤ M₂, over K², for K = 4 to 60 and all r < K/3.

    Args:
        method: The method between M₁ and M₂.
    """
    pairs = [("upper bound", method), (method, "lower bound")]
    return min(exact_gaps(pairs, covered([size])).min() for size in range(4, 61))


def random_locations_retained(*, odd_locations: str = "printed") -> Deviations:
    """Largest deviation of the printed K³r/(K²/2+2), K³r/((K²+1)/2) from the exact mean.

    A self-conjugate location has mean energy 1, a pair has 2. At K = 3 to 5 and r = 1 every choice
    of Kr locations of the half spectrum is enumerated. At K = 6 to 60 and all r < K/3, the number
    of self-conjugate locations among the chosen ones has the hypergeometric law.

    Args:
        odd_locations: Number of locations for odd K: ``printed``, (K² + 1)/2, or ``as for even K``,
            K²/2 + 2.
    """
    for size in range(3, 61):
        half = HalfSpectrum(size, size)
        single, pairs = half.self_conjugate_count, half.pair_count
        as_odd = size % 2 == 1 and odd_locations == "printed"
        locations = (size**2 + 1) / 2 if as_odd else size**2 / 2 + 2
        for r in range(1, (size - 1) // 3 + 1) if size > _ENUMERATED else (1,):
            if size > _ENUMERATED:
                retained = 2.0 * size * r - stats.hypergeom(single + pairs, single, size * r).mean()
            else:
                energies = [1] * single + [2] * pairs
                retained = np.mean([sum(chosen) for chosen in combinations(energies, size * r)])
            printed = size**3 * r / locations
            yield float(retained) / printed - 1


def random_locations_loss(*, size: int, r: int) -> Returned:
    """The exact loss of random Fourier locations over the printed "L_F^(1) = 2Kr"."""
    loss, printed = size**2 * exact_error("random Fourier", Budget(size, size, r)), 2 * size * r
    note = f"At K = {size}, r = {r} the loss is {loss:.6g}; the retained energy is "
    return loss / printed, f"{note}{size**2 - loss:.6g}, close to 2Kr = {printed}."


def printed_line(*, slope: float = 2.0) -> Deviations:
    """Largest difference of the printed line 1 − 2r/K from the error of random Fourier locations.

    K = 100, 150, …, 300 and r = 8, 16, 24, 32.

    Args:
        slope: 2 as in the figures.
    """
    for size, r in product(range(100, 301, 50), (8, 16, 24, 32)):
        yield 1 - slope * r / size - exact_error("random Fourier", Budget(size, size, r))


def cosine_covariance(*, first: float = 0.5) -> Deviations:
    """Largest deviation of (Q⊗Q)(Q⊗Q)ᵀ from the identity, K = 2, …, 9.

    Args:
        first: Squared weight of the first row of Q before scaling, ½ for the DCT.
    """
    for size in range(2, 10):
        q = dct_matrix(size).numpy().copy()
        q[0] *= np.sqrt(2 * first)
        kron = np.kron(q, q)
        yield kron @ kron.T - np.eye(size**2)


def rescaled(*, rng: Rng, shift: float) -> Returned:
    """Largest relative change of a loss if a constant is added to all entries.

    The methods are LoRA, Fourier pairs, Fourier and LoCA, with K = 24 and r = 1, 4 and 7.

    Args:
        shift: The constant, the mean of all entries.
    """
    w = rng.standard_normal((24, 24))
    budgets, changes = [Budget(24, 24, r) for r in (1, 4, 7)], {}
    for method in ("LoRA", "Fourier pairs", "Fourier", "LoCA"):
        before, after = (
            np.square(matrix).sum() - retained_energies(matrix, method, budgets)
            for matrix in (w, w + shift)
        )
        change = np.abs(after / before - 1).max()
        changes[method] = float(change)
    return max(changes.values()), listed(changes, ".2g")
