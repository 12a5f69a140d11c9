r"""Test statistics for dependence, and their critical values.

For W with p ≥ q, λ are the eigenvalues of C = WᵀW/p; a wide matrix is transposed first.

- ``T``: the appendix's statistic, the fraction of Σλ outside the Marchenko–Pastur edges
  :math:`\hat σ^2 (1 \pm \sqrt{q/p})^2`. For square matrices the lower edge is 0, so under
  independence T is either 0 or at least about 4/K: its law has an atom at 0.
- ``largest``: λ₁ in the units of its Tracy–Widom limit.
- ``spikes``: the number of λ beyond the 0.99 quantile of that limit.
- ``low-frequency``: the fraction of ‖W‖² in the lowest √p × √q frequencies of the DCT.

``T``, ``largest`` and ``spikes`` are those of
:func:`~loca_theory.increments.spectrum.spectral_statistics`.

σ̂² is the mean square entry. Centring subtracts the mean of each column, as the term "sample
correlation matrix" implies. Under independence the centred matrix has the law of a (p−1)×q matrix,
and a mean that all columns share is removed.

Source: the paper's section "Statistical Detection of Correlation" for T.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from loca_theory._types import Array
from loca_theory.expressivity.laws.bidiagonal import sample_leading_eigenvalues
from loca_theory.expressivity.monte_carlo import ERROR_PACKAGES
from loca_theory.increments.spectrum import spectral_statistics
from loca_theory.sweeps import Cell, generator

STATISTICS = ("T", "largest", "spikes", "low-frequency")
DEPENDENCE_PACKAGES = ("loca_theory.dependence", *ERROR_PACKAGES)
"""The packages on whose code the stored draws of this study depend."""


def low_frequency_fraction(spectrum: Array) -> float:
    """Fraction of the energy in the ⌈√p⌉ × ⌈√q⌉ lowest frequencies of a DCT spectrum."""
    p, q = spectrum.shape
    corner = spectrum[: math.ceil(math.sqrt(p)), : math.ceil(math.sqrt(q))]
    return float(np.square(corner).sum() / np.square(spectrum).sum())


def centred(matrix: Array) -> Array:
    """Subtract the mean of each column."""
    return matrix - matrix.mean(axis=0, keepdims=True)


def upper_critical_value(null: Array, level: float) -> float:
    """The smallest null draw c that at most a fraction ``level`` of the null draws exceeds.

    A test that rejects if the statistic exceeds c has at most this size, even if the law has an
    atom.
    """
    ordered = np.sort(null)
    allowed = math.floor(level * len(ordered))
    return float(ordered[len(ordered) - 1 - allowed])


NULL_EXPERIMENT = "dependence.null"
# Draws per cell. Fixed, so that a run with more draws reuses the stored blocks of a shorter run.
NULL_BLOCK = 250


@dataclass(frozen=True)
class NullCell(Cell):
    """A block of draws of the statistics of p×q matrices of independent N(0, 1) entries."""

    experiment = NULL_EXPERIMENT
    packages = DEPENDENCE_PACKAGES

    p: int
    q: int
    seed: int
    draws: tuple[int, int]


def evaluate_null(cell: NullCell) -> dict[str, list[float]]:
    """Draw one block of the statistics ``T``, ``largest`` and ``spikes``.

    All singular values come from the bidiagonal model, so a draw costs one tridiagonal eigenvalue
    problem and no matrix.
    """
    p, q = cell.p, cell.q
    statistics = []
    for draw in range(*cell.draws):
        rng = generator(cell.seed, NULL_EXPERIMENT, p, q, draw)
        eigenvalues, _ = sample_leading_eigenvalues(p, q, min(p, q), rng)
        statistics.append(spectral_statistics(eigenvalues, p, q))
    return {name: [draw[name] for draw in statistics] for name in statistics[0]}


def low_frequency_critical_value(p: int, q: int, level: float, *, is_centred: bool) -> float:
    """Exact upper quantile of the low-frequency fraction under independence.

    Orthonormal coordinates of a Gaussian matrix are independent N(0, 1), so the fraction of the
    energy in m of n of them has the law Beta(m/2, (n−m)/2). Centring removes the q coordinates of
    the column means, of which ⌈√q⌉ are low frequencies.
    """
    rows, columns = math.ceil(math.sqrt(p)), math.ceil(math.sqrt(q))
    m, n = rows * columns, p * q
    if is_centred:
        m, n = m - columns, n - q
    return float(stats.beta(m / 2, (n - m) / 2).isf(level))
