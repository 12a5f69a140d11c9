r"""Distance of entries from normality: the paper's total-variation test and a calibrated one.

The total variation between the counts of n entries in B bins and a normal law with the entries' own
mean and standard deviation is :math:`T = \frac12\sum_i |n_i/n - π_i|`. Even for normal entries, the
counting noise alone makes it about :math:`\sqrt{B/(2πn)}`.

**Calibrated.** *p-value*: the null hypothesis is tolerant, "within ε of a normal law". By the
triangle inequality, such a law raises the mean of T by at most ε over that of a normal law. The
null distribution is therefore that of T under normality, shifted up by ε; the normal law is
refitted in every bootstrap replicate. *Estimate and interval*: if the bin probabilities differ from
the normal ones by τ times the observed differences (scaled to total variation 1), the mean m(τ) and
standard deviation s(τ) of T are sums of folded-normal moments. The estimate solves m(τ) = T, which
removes the counting noise, and the interval is |m(τ) − T| ≤ z s(τ).

**As printed.** The procedure of the paper's appendix, with the choices that it leaves open as
parameters. Entries are compared with 10⁵ normal samples instead of the normal law. The null
distribution comes from perturbed copies of these samples, so it lacks the counting error that the
samples themselves have.

Source: the paper's appendix "Details of the Hypothesis Testing".
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from loca_theory.errors import InvalidArgumentError, LocaTheoryError
from loca_theory.increments.histogram import (
    REACH,
    Histogram,
    cell_probabilities,
    coarse_cells,
    grid_edges,
    normal_cells,
)

_Array = NDArray[np.float64]


# The calibrated test's bins end here, in standard deviations; one open bin lies beyond each end.
_BINNED_REACH = 4
_SPREAD_REPLICATES = 199
_BINNINGS = (8, 4, 2, 1)


class AcceptanceError(LocaTheoryError):
    """The printed test's loop finds too few perturbed copies to go on."""


class Tail(StrEnum):
    """Which tail of the null distribution gives the p-value of the paper's test.

    - ``upper``: the fraction of the null distribution at or above T, as usual in tests of fit.
    - ``percentile``: the fraction at or below T, the literal meaning of the paper's text.
    """

    UPPER = "upper"
    PERCENTILE = "percentile"


@dataclass(frozen=True)
class TotalVariation:
    """Result of the calibrated test.

    Attributes:
        statistic: T, the plug-in value, including counting noise.
        estimate: The total variation with the bias of the counting noise removed.
        low: Lower end of its confidence interval.
        high: Upper end of its confidence interval.
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
    bins_per_sigma: int = 4,
    replicates: int = 999,
    confidence: float = 0.95,
) -> TotalVariation:
    """Test whether entries are within ε of a normal law, and estimate their distance from it.

    Args:
        entries: The counts.
        rng: Source of the bootstrap.
        epsilon: ε ≥ 0; 0 tests exact normality.
        bins_per_sigma: Bins of equal width in one standard deviation, from −4 to 4; a divisor
            of 64. Bins of equal width lose less of the distance than bins of equal probability
            would, and have less counting noise.
        replicates: m; the p-value is (b + 1)/(m + 1).
        confidence: Coverage of the interval.

    Raises:
        InvalidArgumentError: an argument is out of range.
    """
    if not (0 <= epsilon < 1 and replicates >= 1 and 0 < confidence < 1):
        msg = "the test needs 0 <= epsilon < 1, replicates >= 1 and 0 < confidence < 1, not "
        msg += f"{epsilon}, {replicates} and {confidence}"
        raise InvalidArgumentError(msg)
    n, first = entries.size, coarse_cells(bins_per_sigma, _BINNED_REACH)
    expected = np.add.reduceat(normal_cells(), first)
    observed = np.add.reduceat(entries.counts, first) / n
    statistic = float(np.abs(observed - expected).sum() / 2)
    null = _refitted_statistics(normal_cells(), n, first, replicates, rng)
    exceeding = int((null + epsilon >= statistic).sum())
    noise = _noise(expected, n)
    counting, standard_deviation = _folded_sum(np.zeros_like(noise), noise)
    # Refitting and the dependence of bins change the spread of T. Estimate by how much, under the
    # normal law and under the observed one.
    seen = _refitted_statistics(entries.counts / n, n, first, _SPREAD_REPLICATES, rng)
    gaps = observed - expected
    around_seen = _folded_sum(gaps, _noise(np.maximum(observed, 1 / n), n))[1]
    spread = max(1.0, float(null.std()) / standard_deviation, float(seen.std()) / around_seen)
    noise *= null.mean() / counting
    estimate, low, high = _invert(statistic, gaps, noise, spread, confidence)
    return TotalVariation(statistic, estimate, low, high, (exceeding + 1) / (replicates + 1))


def _refitted_statistics(
    cells: _Array, n: int, first: NDArray[np.int64], replicates: int, rng: np.random.Generator
) -> _Array:
    """T of samples with given cell probabilities, each against the normal law fitted to it."""
    counts = rng.multinomial(n, cells, size=replicates)
    centres, squares = _cell_moments()
    mean = counts @ centres / n
    standard_deviation = np.sqrt(counts @ squares / n - mean**2)
    inner = grid_edges()[first[1:] - 1]
    expected = cell_probabilities((inner - mean[:, None]) / standard_deviation[:, None])
    observed = np.add.reduceat(counts, first, axis=1) / n
    return np.abs(observed - expected).sum(axis=1) / 2


@cache
def _cell_moments() -> tuple[_Array, _Array]:
    """Mean of z and of z² within each cell of the grid, under N(0, 1)."""
    edges = np.concatenate([[-np.inf], grid_edges(), [np.inf]])
    density = np.exp(-(edges**2) / 2) / np.sqrt(2 * np.pi)
    moment = np.where(np.isfinite(edges), edges, 0.0) * density
    cells = normal_cells()
    return -np.diff(density) / cells, 1 - np.diff(moment) / cells


def _noise(probabilities: _Array, n: int) -> _Array:
    """Standard deviation of each bin's observed fraction."""
    return np.sqrt(probabilities * (1 - probabilities) / n)


def _folded_sum(shifts: _Array, noise: _Array) -> tuple[float, float]:
    """Mean and standard deviation of ½ Σ|N(shift, noise²)|, treating bins as independent."""
    standard = shifts / noise
    density = np.sqrt(2 / np.pi) * np.exp(-(standard**2) / 2)
    mean = noise * (density + standard * special.erf(standard / np.sqrt(2)))
    variance = np.maximum(shifts**2 + noise**2 - mean**2, 0.0)
    return float(mean.sum() / 2), float(np.sqrt(variance.sum()) / 2)


def _invert(
    statistic: float, gaps: _Array, noise: _Array, spread: float, confidence: float
) -> tuple[float, float, float]:
    """The τ with m(τ) = T, and the ends of |m(τ) − T| ≤ z s(τ) with s multiplied by ``spread``."""
    direction = gaps / (np.abs(gaps).sum() / 2) if statistic > 0 else gaps
    z = float(stats.norm.ppf(0.5 + confidence / 2)) * spread

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


@dataclass(frozen=True)
class PrintedTest:
    """Settings of the test as printed, and the choices that the paper leaves open.

    Attributes:
        samples: Size of the reference sample G, 10⁵ as printed.
        noise: σ_e of the perturbation, in the units of the entries; 10⁻⁵ as printed.
        epsilon: Copies closer to G than this are accepted; 0.001 as printed.
        copies: Number of copies to accept; 100 as printed.
        sets: Samples of n points from each copy; 10 as printed.
        bins_per_sigma: Bins in one standard deviation, a divisor of 64; not printed. None selects
            the finest of 8, 4, 2 and 1 at which enough copies are accepted.
        tail: Interpretation of "percentile"; not printed.
        attempts: Number of copies to try per copy that is wanted, before the test gives up.
    """

    samples: int = 100_000
    noise: float = 1e-5
    epsilon: float = 0.001
    copies: int = 100
    sets: int = 10
    bins_per_sigma: int | None = None
    tail: Tail = Tail.UPPER
    attempts: int = 3

    def p_value(self, entries: Histogram, rng: np.random.Generator) -> float:
        """Run the test.

        Args:
            entries: The counts.
            rng: Draws G, the perturbations and the samples.

        Raises:
            AcceptanceError: too few copies are closer to G than ε, so the loop would not end.
            InvalidArgumentError: the grid cells cannot be merged into such bins.
        """
        sample = rng.standard_normal(self.samples)
        noise = self.noise / entries.standard_deviation
        bins, accepted = self._binned_copies(sample, noise, rng)
        first, reference = coarse_cells(bins, REACH), _fractions(sample, bins)
        n = entries.size
        sets = np.concatenate([rng.multinomial(n, copy, size=self.sets) for copy in accepted]) / n
        null = np.abs(sets - reference).sum(axis=1)
        merged = np.add.reduceat(entries.counts, first) / n
        statistic = np.abs(merged - reference).sum()
        beyond = null >= statistic if self.tail is Tail.UPPER else null <= statistic
        return float(beyond.mean())

    def _binned_copies(
        self, sample: _Array, noise: float, rng: np.random.Generator
    ) -> tuple[int, list[_Array]]:
        if self.bins_per_sigma is not None:
            bins = self.bins_per_sigma
            coarse_cells(bins, REACH)  # raises if there are no such bins
            return bins, self._copies(sample, bins, noise, rng)
        for bins in _BINNINGS[:-1]:
            with suppress(AcceptanceError):
                return bins, self._copies(sample, bins, noise, rng)
        return _BINNINGS[-1], self._copies(sample, _BINNINGS[-1], noise, rng)

    def _copies(
        self, sample: _Array, bins: int, noise: float, rng: np.random.Generator
    ) -> list[_Array]:
        reference = _fractions(sample, bins)
        accepted: list[_Array] = []
        distances = []
        while len(accepted) < self.copies:
            made = len(distances)
            hopeless = made >= self.copies // 2 and not accepted
            if hopeless or made >= self.attempts * self.copies:
                msg = f"the paper's test accepted {len(accepted)} of {made} perturbed copies of "
                msg += f"its samples: their median total variation is {np.median(distances):.2g} "
                msg += f"and must be below epsilon = {self.epsilon:g}; raise epsilon, lower noise "
                msg += f"({noise:.2g} standard deviations) or use fewer bins"
                raise AcceptanceError(msg)
            copy = _fractions(sample + noise * rng.standard_normal(len(sample)), bins)
            distances.append(float(np.abs(copy - reference).sum() / 2))
            if distances[-1] < self.epsilon:
                accepted.append(copy)
        return accepted


def _fractions(z: _Array, steps: int) -> _Array:
    """Fraction of the values in each bin of width 1/steps from −8 to 8, and beyond."""
    cells = np.clip(np.floor(z * steps), -REACH * steps - 1, REACH * steps).astype(np.int64)
    cells += REACH * steps + 1
    return np.bincount(cells, minlength=2 * REACH * steps + 2) / len(z)
