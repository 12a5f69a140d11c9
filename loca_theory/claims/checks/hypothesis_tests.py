"""The tests of the paper: total variation, the Marchenko–Pastur fit, and the statistic T.

T is the statistic of the section on non-i.i.d. effects: its values, critical value and power.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

import numpy as np
import torch
from numpy.typing import NDArray

from loca_theory.claims.checks.normality import LAWS, mix
from loca_theory.claims.estimates import Estimate, Returned, Rng, Tier
from loca_theory.dependence.detection import centred, upper_critical_value
from loca_theory.dependence.structures import STRUCTURES
from loca_theory.expressivity.laws.bidiagonal import sample_leading_eigenvalues
from loca_theory.increments import PrintedTest, calibrated_test, fit_bulk
from loca_theory.increments.eigenvalues import squared_singular_values
from loca_theory.increments.histogram import Histogram, histogram
from loca_theory.increments.printed_test import AcceptanceError, Tail
from loca_theory.increments.spectrum import spectral_statistics

_Array = NDArray[np.float64]
SIZE = 300
# Number of draws of which each printed value is assumed to be the mean.
_AVERAGED = 100
_LEVEL = 0.05
# So many eigenvalues of independent entries are never above the edge: seldom is the second.
_LEADING = 16
# The entries below have unit variance, for which the printed noise of 1e-5 is negligible.
_NOISE = 1e-5


def _entries(rng: Rng, law: str, size: int) -> Histogram:
    """Counts of size² independent entries of unit variance."""
    return histogram(torch.from_numpy(LAWS[law](rng, (size * size,))))


def printed_rejections(*, tier: Tier, rng: Rng, law: str, tail: str, size: int) -> Returned:
    """Fraction of size×size matrices that the printed test rejects at level 0.05.

    Args:
        law: ``normal``, or ``t5`` for Student's with 5 degrees of freedom.
        tail: The p-value: the ``upper`` tail, or the ``percentile`` taken literally.
        size: Rows and columns.
    """
    runs, test = tier.scaled(18, 60, 300), PrintedTest(tail=Tail(tail), noise=_NOISE)
    rejected = sum(test.p_value(_entries(rng, law, size), rng) <= _LEVEL for _ in range(runs))
    return Estimate.fraction(rejected, runs), f"{size}×{size} entries each."


def calibrated_rejections(*, tier: Tier, rng: Rng, law: str, size: int) -> Returned:
    """Fraction of size×size matrices that the calibrated test rejects at level 0.05.

    Its null hypothesis is "total variation at most 0.001".
    """
    # Judging a level of 0.05 takes more runs than judging a power of one half.
    runs = tier.scaled(300, 600, 3000) if law == "normal" else tier.scaled(18, 60, 300)
    tests = (calibrated_test(_entries(rng, law, size), rng, replicates=99) for _ in range(runs))
    rejected = sum(test.p_value <= _LEVEL for test in tests)
    return Estimate.fraction(rejected, runs), f"{size}×{size} entries each."


def loop_ends(*, tier: Tier, rng: Rng, standard_deviation: float, bins: int) -> Returned:
    """Fraction of runs in which the printed loop finds its 100 copies within ε = 0.001 of G.

    Args:
        standard_deviation: Standard deviation of the entries, which decides whether the noise
            σ_e = 10⁻⁵ is small.
        bins: Bins per standard deviation, a number that is not printed.
    """
    runs, test, ended = tier.scaled(20, 50, 200), PrintedTest(bins_per_sigma=bins), 0
    for _ in range(runs):
        entries = histogram(torch.from_numpy(standard_deviation * rng.standard_normal(10_000)))
        with suppress(AcceptanceError):
            test.p_value(entries, rng)
            ended += 1
    note = f"Entries of standard deviation {standard_deviation:g}."
    return Estimate.fraction(ended, runs), note


def marchenko_pastur(*, tier: Tier, rng: Rng, rows: int, columns: int, ar: float = 0.0) -> Returned:
    """Kolmogorov distance of the spectrum of independent entries from the fitted law.

    Args:
        rows: Rows of the matrix.
        columns: Columns of the matrix.
        ar: Correlation of neighbouring entries of a row, ρ^|i−j|; 0 for independent ones.
    """
    distances, factor = [], mix(ar, columns)
    for _ in range(tier.scaled(20, 100, 500)):
        matrix = torch.from_numpy(rng.standard_normal((rows, columns)) @ factor.T)
        law = fit_bulk(squared_singular_values(matrix), rows, columns)
        distances.append(1.0 if law.kolmogorov is None else law.kolmogorov)
    return Estimate.mean(distances), f"{rows}×{columns}."


def _statistics(rng: Rng, rhos: Sequence[float], draws: int, *, is_centred: bool) -> _Array:
    """T under (1−ρ)I + ρ11ᵀ, shape (len(rhos), draws); the draws are shared by all ρ."""

    def t(matrix: _Array) -> float:
        return _t(centred(matrix) if is_centred else matrix, SIZE - is_centred)

    families = (STRUCTURES["equicorrelated"].family(SIZE, SIZE, rng) for _ in range(draws))
    return np.array([[t(family(rho)) for rho in rhos] for family in families]).T.copy()


def _t(matrix: _Array, rows: int) -> float:
    eigenvalues = squared_singular_values(torch.from_numpy(matrix))
    return spectral_statistics(eigenvalues, rows, SIZE)["T"]


def _null(rng: Rng, draws: int, rows: int, columns: int) -> _Array:
    """T of independent entries, not more rows than columns, through the bidiagonal model."""
    if rows == columns:
        return _null_of_squares(rng, draws, rows)
    drawn = (sample_leading_eigenvalues(rows, columns, rows, rng)[0] for _ in range(draws))
    return np.array([spectral_statistics(leading, rows, columns)["T"] for leading in drawn])


def _null_of_squares(rng: Rng, draws: int, size: int) -> _Array:
    """T of square matrices: their lower edge is 0, so that only the largest eigenvalues count."""
    t = np.empty(draws)
    for draw in range(draws):
        leading, total = sample_leading_eigenvalues(size, size, min(_LEADING, size), rng)
        t[draw] = leading[leading > 4 * total / size].sum() / total
    return t


def _correlation_null(rng: Rng, draws: int) -> _Array:
    """T of the sample correlation matrix of independent entries."""
    matrices = (centred(rng.standard_normal((SIZE, SIZE))) for _ in range(draws))
    scaled = (matrix / np.sqrt(np.square(matrix).mean(axis=0)) for matrix in matrices)
    return np.array([_t(matrix, SIZE - 1) for matrix in scaled])


def statistic(
    *,
    tier: Tier,
    rng: Rng,
    rhos: Sequence[float],
    printed: Sequence[float] = (),
    is_centred: bool = False,
) -> Returned:
    """Mean of T, one estimate per ρ.

    Args:
        rhos: Values of ρ in (1−ρ)I + ρ11ᵀ.
        printed: Printed values of T. If given, each estimate is the printed value less the mean, in
            standard errors of a mean of 100 draws.
        is_centred: Subtract each column's mean first.
    """
    # With 5000 draws two seeds would disagree on a claim in 15 of 100 cases, with these in one.
    draws = tier.scaled(30, 10_000, 20_000)
    statistics = _statistics(rng, rhos, draws, is_centred=is_centred)
    parts = [Estimate.mean(row) for row in statistics]
    if printed:
        units = statistics.std(axis=1, ddof=1) / np.sqrt(_AVERAGED)
        parts = [
            Estimate((value - part.value) / unit, part.standard_error / unit, part.n)
            for part, value, unit in zip(parts, printed, units, strict=True)
        ]
    shown = ", ".join(f"{row.std(ddof=1):.3f}" for row in statistics)
    return _by_rho(rhos, parts), f"Standard deviations of T over draws: {shown}."


def _by_rho(rhos: Sequence[float], parts: Iterable[Estimate]) -> dict[str, Estimate]:
    return {f"rho = {rho:g}": part for rho, part in zip(rhos, parts, strict=True)}


def critical_level(*, tier: Tier, rng: Rng, printed: float, columns: str = "raw") -> Returned:
    """Fraction of 300×300 matrices with independent entries whose T exceeds the printed value.

    Args:
        printed: The printed critical value.
        columns: ``raw``, or ``standardised`` to mean 0 and variance 1, as for a sample correlation
            matrix.
    """
    if columns == "raw":
        null = _null(rng, tier.scaled(1000, 8000, 50_000), SIZE, SIZE)
    else:
        null = _correlation_null(rng, tier.scaled(150, 16_000, 64_000))
    note = f"The 0.95 quantile of T at K = {SIZE} is {upper_critical_value(null, 0.05):.4f}."
    return Estimate.exceeding(null, printed), note


def critical_value(*, tier: Tier, rng: Rng, printed: float, rounding: float, size: int) -> Returned:
    """Fractions of matrices whose T exceeds the printed value less, and plus, half a last digit.

    The 0.95 quantile rounds to the printed value if the first fraction is above 0.05 and the second
    is below 0.05.

    Args:
        printed: The printed critical value.
        rounding: Unit of its last digit.
        size: K.
    """
    null = _null(rng, tier.scaled(250, 1500, 10_000), size, size)
    bounds = (printed - rounding / 2, printed + rounding / 2)
    parts = {f"T > {bound:g}": Estimate.exceeding(null, bound) for bound in bounds}
    fraction = float((null > printed).mean())
    note = f"The 0.95 quantile of T at K = {size} is {upper_critical_value(null, 0.05):.5f}; "
    return parts, f"{note}{printed:g} itself is exceeded by a fraction of {fraction:.3f}."


def power(*, tier: Tier, rng: Rng, rhos: Sequence[float], is_centred: bool) -> Returned:
    """Fraction of correlated matrices whose T exceeds its 0.95 quantile, one estimate per ρ.

    Args:
        rhos: Values of ρ in (1−ρ)I + ρ11ᵀ.
        is_centred: Subtract each column's mean first, as for a sample correlation matrix.
    """
    null = _null(rng, tier.scaled(500, 4000, 20_000), SIZE - is_centred, SIZE)
    bound = upper_critical_value(null, 0.05)
    statistics = _statistics(rng, rhos, tier.scaled(60, 400, 2000), is_centred=is_centred)
    parts = (Estimate.exceeding(row, bound) for row in statistics)
    return _by_rho(rhos, parts), f"Critical value {bound:.4f}."
