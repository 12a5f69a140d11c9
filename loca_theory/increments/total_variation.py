r"""Distance of entries from normality: a calibrated total-variation test.

The total variation between the counts of n entries in B bins and a normal law with the entries' own
mean and standard deviation is :math:`T = \frac12\sum_i |n_i/n - π_i|`. Even for normal entries, the
counting noise alone makes it about :math:`\sqrt{B/(2πn)}`.

*p-value*: the null hypothesis is tolerant, "within ε of a normal law". By the triangle inequality,
such a law raises the mean of T by at most ε over that of a normal law. The null distribution is
therefore that of T under normality, shifted up by ε; the normal law is refitted in every bootstrap
replicate. *Estimate and interval*: if the bin probabilities differ from
the normal ones by τ times the observed differences (scaled to total variation 1), the mean m(τ) and
standard deviation s(τ) of T are sums of folded-normal moments. The estimate solves m(τ) = T, which
removes the counting noise, and the interval is |m(τ) − T| ≤ z s(τ).

Source: the statistic is that of the paper's appendix "Details of the Hypothesis Testing"; the
calibration is this package's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import optimize, special

from loca_theory._types import Array
from loca_theory.errors import InvalidArgumentError
from loca_theory.increments.histogram import (
    REACH,
    Histogram,
    cell_probabilities,
    coarse_cells,
    grid_edges,
    normal_cells,
)

# Bins in one standard deviation, and where they end; one open bin lies beyond each end. Bins of
# equal width lose less of the distance than bins of equal probability would, and have less counting
# noise.
_BINS, _BINNED_REACH = 4, 4
# Coverage of the interval.
_CONFIDENCE = 0.95
_SPREAD_REPLICATES = 199
# Cells per standard deviation in which replicates are drawn. Their means, which are found from the
# counts, lack the variance of the values within the cells, about 1/3072 of the whole.
_STEPS = 16


@dataclass(frozen=True)
class TotalVariation:
    """Result of the calibrated test.

    Attributes:
        statistic: T, the plug-in value, including counting noise.
        estimate: The total variation with the bias of the counting noise removed.
        low: Lower end of its 95% confidence interval.
        high: Upper end of that interval.
        p_value: p-value of the null hypothesis that the total variation is at most ε.
    """

    statistic: float
    estimate: float
    low: float
    high: float
    p_value: float


def calibrated_test(
    entries: Histogram,
    rng: np.random.Generator,
    *,
    epsilon: float = 0.001,
    replicates: int = 999,
    null: Array | None = None,
) -> TotalVariation:
    """Test whether entries are within ε of a normal law, and estimate their distance from it.

    Args:
        entries: The counts.
        rng: Source of the bootstrap.
        epsilon: ε ≥ 0; 0 tests exact normality.
        replicates: m; the p-value is (b + 1)/(m + 1).
        null: m values of T under normality, from :func:`null_statistics` for as many entries; None
            to draw them.

    Raises:
        InvalidArgumentError: an argument is out of range.
    """
    if not (0 <= epsilon < 1 and replicates >= 1):
        raise InvalidArgumentError(
            f"the test needs 0 <= epsilon < 1 and replicates >= 1, not {epsilon} and {replicates}"
        )
    n, first = entries.size, coarse_cells(_BINS, _BINNED_REACH)
    expected = np.add.reduceat(normal_cells(), first)
    observed = np.add.reduceat(entries.counts, first) / n
    statistic = float(np.abs(observed - expected).sum() / 2)
    if null is None:
        null = null_statistics(n, rng, replicates)
    exceeding = int((null + epsilon >= statistic).sum())
    noise = _noise(expected, n)
    counting, standard_deviation = _folded_sum(np.zeros_like(noise), noise)
    # Refitting and the dependence of bins change the spread of T. Estimate by how much, under the
    # normal law and under the observed one.
    seen = _refitted_statistics(entries.counts / n, n, _SPREAD_REPLICATES, rng)
    gaps = observed - expected
    around_seen = _folded_sum(gaps, _noise(np.maximum(observed, 1 / n), n))[1]
    spread = max(1.0, float(null.std()) / standard_deviation, float(seen.std()) / around_seen)
    noise *= null.mean() / counting
    estimate, low, high = _invert(statistic, gaps, noise, spread)
    return TotalVariation(statistic, estimate, low, high, (exceeding + 1) / (len(null) + 1))


def null_statistics(n: int, rng: np.random.Generator, replicates: int = 999) -> Array:
    """Draw T for normal entries, each time against the normal law fitted to them.

    These numbers depend only on the number of entries, so matrices of one size can share them.
    """
    return _refitted_statistics(normal_cells(), n, replicates, rng)


def _refitted_statistics(cells: Array, n: int, replicates: int, rng: np.random.Generator) -> Array:
    """T of samples with given cell probabilities, each against the normal law fitted to it."""
    merged = coarse_cells(_STEPS, REACH)
    probabilities = np.add.reduceat(cells, merged)
    counts = rng.multinomial(n, probabilities, size=replicates)
    centres, squares = (
        np.add.reduceat(cells * moment, merged) / np.where(probabilities > 0, probabilities, 1)
        for moment in _cell_moments()
    )
    mean = counts @ centres / n
    standard_deviation = np.sqrt(counts @ squares / n - mean**2)
    inner = np.arange(-_BINNED_REACH * _BINS, _BINNED_REACH * _BINS + 1)
    standard = (inner / _BINS - mean[:, None]) / standard_deviation[:, None]
    first = REACH * _STEPS + 1 + inner * (_STEPS // _BINS)
    observed = np.add.reduceat(counts, np.concatenate([[0], first]), axis=1) / n
    return np.abs(observed - cell_probabilities(standard)).sum(axis=1) / 2


@cache
def _cell_moments() -> tuple[Array, Array]:
    """Mean of z and of z² within each cell of the grid, under N(0, 1)."""
    edges = np.concatenate([[-np.inf], grid_edges(), [np.inf]])
    density = np.exp(-(edges**2) / 2) / np.sqrt(2 * np.pi)
    moment = np.where(np.isfinite(edges), edges, 0.0) * density
    cells = normal_cells()
    return -np.diff(density) / cells, 1 - np.diff(moment) / cells


def _noise(probabilities: Array, n: int) -> Array:
    """Standard deviation of each bin's observed fraction."""
    return np.sqrt(probabilities * (1 - probabilities) / n)


def _folded_sum(shifts: Array, noise: Array) -> tuple[float, float]:
    """Mean and standard deviation of ½ Σ|N(shift, noise²)|, treating bins as independent."""
    standard = shifts / noise
    density = np.sqrt(2 / np.pi) * np.exp(-(standard**2) / 2)
    mean = noise * (density + standard * special.erf(standard / np.sqrt(2)))
    variance = np.maximum(shifts**2 + noise**2 - mean**2, 0.0)
    return float(mean.sum() / 2), float(np.sqrt(variance.sum()) / 2)


def _invert(
    statistic: float, gaps: Array, noise: Array, spread: float
) -> tuple[float, float, float]:
    """The τ with m(τ) = T, and the ends of |m(τ) − T| ≤ z s(τ) with s multiplied by ``spread``."""
    direction = gaps / (np.abs(gaps).sum() / 2) if statistic > 0 else gaps
    z = float(special.ndtri(0.5 + _CONFIDENCE / 2)) * spread

    def solve(standard_deviations: float) -> float:
        def excess(tau: float) -> float:
            mean, standard_deviation = _folded_sum(tau * direction, noise)
            return mean + standard_deviations * standard_deviation - statistic

        if excess(0.0) >= 0:
            return 0.0
        # The mean is at least τ, so the root is at most T, unless standard deviations are
        # subtracted: then search a little above T.
        high = 1.0 + statistic
        return float(optimize.brentq(excess, 0.0, high, xtol=1e-12)) if excess(high) > 0 else 1.0

    return solve(0.0), solve(z), solve(-z)
