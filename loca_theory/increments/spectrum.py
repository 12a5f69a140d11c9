r"""Spectrum of an increment: bulk, spikes and tail.

For W p×q, the eigenvalues λ of WᵀW (or of WWᵀ if that is smaller) are compared with the
Marchenko–Pastur law of independent entries.

- *Bulk fit*: σ from the slope of the quantiles between the 10th and 90th percentile against the
  law's, without the eigenvalues above the edge; repeated until no further eigenvalue lies above
  it. The mean of λ is not used because spikes inflate it. In a matrix of low rank, or a nearly
  constant one, the other eigenvalues are only rounding: such a spectrum has no bulk.
- *Spikes*: eigenvalues above the edge, which is the 0.99 quantile of the Tracy–Widom limit.
- *T*: the fraction of Σλ outside the law's support, the paper's statistic.
- *Tail*: exponent α of a density :math:`x^{-α}` for the largest eigenvalues.

Source: the paper's preliminary analysis and its section on detection; I. M. Johnstone, Ann. Stat.
29 (2001) for the Tracy–Widom limit; A. Clauset, C. R. Shalizi and
M. E. J. Newman, SIAM Rev. 51 (2009) for the tail; C. H. Martin and M. W. Mahoney, J. Mach. Learn.
Res. 22 (2021) for spectra of trained weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from loca_theory._types import Array
from loca_theory.errors import InvalidArgumentError
from loca_theory.increments.marchenko_pastur import MarchenkoPastur

SPIKE_LEVEL = 0.99
"""A spike exceeds this quantile of the law of the largest eigenvalue."""

SPIKE_QUANTILE = 2.0234492813801106
"""This quantile of the Tracy–Widom law F₁ of the largest eigenvalue in its units."""

_TRIM = 0.1
# σ is not fitted again if at most this many eigenvalues are left: they are not a bulk.
_SMALLEST_BULK = 4
_TAIL_CANDIDATES = 200
_SMALLEST_TAIL = 10


@dataclass(frozen=True)
class BulkFit:
    """Comparison of a spectrum with the Marchenko–Pastur law fitted to its bulk.

    Attributes:
        sigma: Standard deviation of an entry of the bulk; None without a bulk.
        spikes: Number of eigenvalues above the edge; without a bulk, of all above rounding.
        edge: The edge, in units of the given eigenvalues.
        outlier_mass: Fraction of Σλ outside the law's support, which is T with the fitted σ; 1
            without a bulk.
        kolmogorov: Largest distance between the distribution functions of all eigenvalues and of
            the law; None without a bulk.
        wasserstein: Mean distance of the ordered eigenvalues from the law's quantiles, over σ²;
            None without a bulk.
    """

    sigma: float | None
    spikes: int
    edge: float
    outlier_mass: float
    kolmogorov: float | None
    wasserstein: float | None


def fit_bulk(eigenvalues: ArrayLike, p: int, q: int) -> BulkFit:
    """Fit σ to the bulk of a spectrum and count the eigenvalues above it.

    Args:
        eigenvalues: All min(p, q) squared singular values of W, in any order.
        p: Rows of W.
        q: Columns of W.

    Raises:
        InvalidArgumentError: there are not min(p, q) values, one is negative or not finite, or all
            are zero.
    """
    balanced, exponent = checked_spectrum(eigenvalues, (p, q))
    ordered = np.sort(balanced)
    count, spikes = len(ordered), 0
    # A variance below this comes only from the rounding of the entries.
    smallest = float(ordered[-1] / max(p, q) * np.finfo(np.float32).eps ** 2)
    while True:
        variance = _bulk_variance(ordered[: count - spikes], p - spikes, q - spikes)
        variance = max(variance, smallest)
        centre, width = edge_scaling(p - spikes, q - spikes)
        edge = variance * (centre + width * SPIKE_QUANTILE)
        count_above = int(count - np.searchsorted(ordered, edge, side="right"))
        if not spikes < count_above < count - _SMALLEST_BULK:
            spikes = max(spikes, count_above)
            break
        spikes = count_above
    if variance <= smallest:
        return BulkFit(None, spikes, float(np.ldexp(edge, exponent)), 1.0, None, None)
    law = MarchenkoPastur(count / max(p, q), float(np.sqrt(variance)))
    scaled = ordered / max(p, q)
    low, high = law.support
    outside = (scaled < low) | (scaled > high)
    steps = np.arange(count + 1) / count
    expected = law.cdf(scaled)
    gaps = np.maximum(np.abs(expected - steps[1:]), np.abs(expected - steps[:-1]))
    quantiles = law.ppf((np.arange(count) + 0.5) / count)
    return BulkFit(
        sigma=float(np.ldexp(law.sigma, exponent // 2)),
        spikes=spikes,
        edge=float(np.ldexp(edge, exponent)),
        outlier_mass=float(ordered[outside].sum() / ordered.sum()),
        kolmogorov=float(gaps.max()),
        wasserstein=float(np.abs(scaled - quantiles).mean() / variance),
    )


def _bulk_variance(ordered: Array, p: int, q: int) -> float:
    """σ² by least squares through the origin on the middle of the quantile–quantile line."""
    count = len(ordered)
    low, high = int(_TRIM * count), max(int((1 - _TRIM) * count), int(_TRIM * count) + 1)
    probability = (np.arange(low, high) + 0.5) / count
    law = MarchenkoPastur(min(p, q) / max(p, q))
    quantiles = law.ppf(probability) * max(p, q)
    return float(quantiles @ ordered[low:high] / (quantiles @ quantiles))


def spectral_statistics(eigenvalues: ArrayLike, p: int, q: int) -> dict[str, float]:
    """Compute ``T``, ``largest`` and ``spikes`` for the law whose σ² is the mean squared entry.

    ``T`` is the appendix's statistic, the fraction of Σλ outside the edges; ``largest`` is λ₁ in
    the units of its Tracy–Widom limit; ``spikes`` is the number of λ above its 0.99 quantile.
    """
    centre, width = edge_scaling(p, q)
    eigenvalues, _ = checked_spectrum(eigenvalues)
    total = float(eigenvalues.sum())
    variance = total / (p * q)
    small, large = min(p, q), max(p, q)
    scaled = eigenvalues / variance  # of a matrix with unit mean square
    low, high = (np.sqrt(large) - np.sqrt(small)) ** 2, (np.sqrt(large) + np.sqrt(small)) ** 2
    outside = (scaled < low) | (scaled > high)
    return {
        "T": float(scaled[outside].sum() / scaled.sum()),
        "largest": float((scaled.max() - centre) / width),
        "spikes": float((scaled > centre + width * SPIKE_QUANTILE).sum()),
    }


def tail_exponent(eigenvalues: ArrayLike) -> float | None:
    r"""Exponent α of a power law :math:`x^{-α}` fitted to the largest eigenvalues.

    For each candidate start x₀, α is the maximum likelihood estimate
    :math:`1 + n/\sum\ln(x_i/x_0)`. The start with the smallest Kolmogorov distance is used.

    Returns:
        α, or None for fewer than 10 positive values.
    """
    eigenvalues, _ = checked_spectrum(eigenvalues)
    ordered = np.sort(eigenvalues[eigenvalues > 0])[::-1]
    if len(ordered) < _SMALLEST_TAIL:
        return None
    logs = np.log(ordered)
    sums = np.cumsum(logs)
    best = (np.inf, None)
    sizes = np.unique(np.linspace(_SMALLEST_TAIL, len(ordered), _TAIL_CANDIDATES).astype(int))
    for n in sizes:
        excess = sums[n - 1] - n * logs[n - 1]
        if excess <= 0:
            continue
        slope = n / excess  # α − 1
        survival = np.exp(-slope * (logs[:n] - logs[n - 1]))
        distance = float(np.abs(survival - np.arange(1, n + 1) / n).max())
        if distance < best[0]:
            best = (distance, 1 + float(slope))
    return best[1]


def edge_scaling(p: int, q: int) -> tuple[float, float]:
    r"""Centre μ and scale σ with (λ₁ − μ)/σ → F₁ for the largest eigenvalue of WᵀW.

    .. math:: μ = (\sqrt{p-1/2} + \sqrt{q-1/2})^2, \quad
              σ = (\sqrt{p-1/2} + \sqrt{q-1/2})
                  \Bigl(\frac1{\sqrt{p-1/2}} + \frac1{\sqrt{q-1/2}}\Bigr)^{1/3}

    Subtracting the halves makes the error of the limit second order (Z. Ma, Bernoulli 18, 2012).
    """
    a, b = np.sqrt(p - 0.5), np.sqrt(q - 0.5)
    return float((a + b) ** 2), float((a + b) * (1 / a + 1 / b) ** (1 / 3))


def checked_spectrum(
    spectrum: ArrayLike, shape: tuple[int, int] | None = None, argument: str = "eigenvalues"
) -> tuple[Array, int]:
    """Return (x, 2e) with spectrum = 4ᵉ x, which is exact, and the largest x near 1.

    Raises:
        InvalidArgumentError: the argument is not a vector of finite numbers of at least 0, all are
            0, or there is not one for each singular value of a matrix of the shape.
    """
    try:
        values = np.asarray(spectrum)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidArgumentError(
            f"{argument} must be a vector of numbers, not {type(spectrum).__name__}: {error}"
        ) from error
    if values.ndim != 1 or values.dtype.kind not in "fiu":
        raise InvalidArgumentError(
            f"{argument} must be a vector of real numbers, not {values.dtype} of shape "
            f"{values.shape}"
        )
    if shape is not None and len(values) != min(shape):
        raise InvalidArgumentError(
            f"{argument} must be all {min(shape)} of a {shape[0]}x{shape[1]} matrix, zeros "
            f"included, not {len(values)}"
        )
    values = values.astype(np.float64)
    if bad := int((~(np.isfinite(values) & (values >= 0))).sum()):
        is_root = argument == "singular_values"
        source = "numpy.linalg.svd" if is_root else "squared_singular_values"
        raise InvalidArgumentError(
            f"{argument} must be finite and not negative: {bad} of {len(values)} are not; take "
            f"them from {source}"
        )
    if not values.any():
        raise InvalidArgumentError(
            f"{argument} must not all be 0: a matrix of zeros has no spectrum; leave it out"
        )
    exponent = int(np.frexp(values.max())[1]) // 2 * 2
    return np.ldexp(values, -exponent), exponent
