"""The total-variation test and the Marchenko–Pastur fit of the preliminary analysis."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import torch

from loca_theory.claims.estimates import Estimate, Returned, Rng, Tier
from loca_theory.increments import PrintedTest, calibrated_test, fit_bulk
from loca_theory.increments.eigenvalues import squared_singular_values
from loca_theory.increments.histogram import Histogram, histogram
from loca_theory.increments.printed_test import AcceptanceError, Tail

LEVEL = 0.05
# The entries below have unit variance, for which the printed noise of 1e-5 is negligible.
_NOISE = 1e-5


def _entries(rng: Rng, law: str, size: int) -> Histogram:
    """Counts of size² independent entries of unit variance."""
    if law == "normal":
        values = rng.standard_normal(size * size)
    else:
        values = rng.standard_t(5, size * size) / np.sqrt(5 / 3)
    return histogram(torch.from_numpy(values))


def printed_rejections(*, tier: Tier, rng: Rng, law: str, tail: str, size: int) -> Returned:
    """Fraction of size×size matrices that the printed test rejects at level 0.05.

    Args:
        law: ``normal``, or ``t5`` for Student's with 5 degrees of freedom.
        tail: The p-value: the ``upper`` tail, or the ``percentile`` taken literally.
        size: Rows and columns.

    Source: appendix "Details of the Hypothesis Testing".
    """
    runs, test = tier.scaled(18, 60, 300), PrintedTest(tail=Tail(tail), noise=_NOISE)
    rejected = sum(test.p_value(_entries(rng, law, size), rng) <= LEVEL for _ in range(runs))
    return Estimate.fraction(rejected, runs), f"{size}×{size} entries each."


def calibrated_rejections(*, tier: Tier, rng: Rng, law: str, size: int) -> Returned:
    """Fraction of size×size matrices that the calibrated test rejects at level 0.05.

    Its null hypothesis is "total variation at most 0.001".

    Source: the null hypothesis of the paper; :func:`~loca_theory.increments.calibrated_test`.
    """
    # Judging a level of 0.05 takes more runs than judging a power of one half.
    runs = tier.scaled(300, 600, 3000) if law == "normal" else tier.scaled(18, 60, 300)
    rejected = sum(
        calibrated_test(_entries(rng, law, size), rng, replicates=99).p_value <= LEVEL
        for _ in range(runs)
    )
    return Estimate.fraction(rejected, runs), f"{size}×{size} entries each."


def loop_ends(*, tier: Tier, rng: Rng, standard_deviation: float, bins: int) -> Returned:
    """Fraction of runs in which the printed loop finds its 100 copies within ε = 0.001 of G.

    Args:
        standard_deviation: Standard deviation of the entries, which decides whether the noise
            σ_e = 10⁻⁵ is small.
        bins: Bins per standard deviation, a number that is not printed.

    Source: step 3 of the testing procedure.
    """
    runs, test = tier.scaled(20, 50, 200), PrintedTest(bins_per_sigma=bins)
    ended = 0
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

    Source: the Marchenko–Pastur law in the preliminary analysis.
    """
    draws = tier.scaled(20, 100, 500)
    found, own = [], np.arange(columns)
    mix = np.linalg.cholesky(ar ** np.abs(np.subtract.outer(own, own)))
    for _ in range(draws):
        matrix = torch.from_numpy(rng.standard_normal((rows, columns)) @ mix.T)
        law = fit_bulk(squared_singular_values(matrix), rows, columns)
        found.append(1.0 if law.kolmogorov is None else law.kolmogorov)
    return Estimate.mean(found), f"{rows}×{columns}."
