"""The statistics' laws under independence."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from loca_theory.dependence.detection import spectral_statistics
from loca_theory.expressivity import sample_leading_eigenvalues
from loca_theory.sweeps import generator


def null_spectral_statistics(
    p: int, q: int, draws: int, seed: int
) -> dict[str, NDArray[np.float64]]:
    """Draws of ``T``, ``largest`` and ``spikes`` for independent N(0, 1) entries.

    All singular values come from the bidiagonal model, so a draw costs one tridiagonal eigenvalue
    problem and no matrix. A centred p×q matrix has the law of a (p−1)×q one.

    Args:
        p: Rows (less one if centred).
        q: Columns.
        draws: How many.
        seed: Root seed.
    """
    found = []
    for draw in range(draws):
        rng = generator(seed, "dependence.null", p, q, draw)
        eigenvalues, _ = sample_leading_eigenvalues(p, q, min(p, q), rng)
        found.append(spectral_statistics(eigenvalues, p, q))
    return {name: np.array([one[name] for one in found]) for name in found[0]}


def low_frequency_critical_value(p: int, q: int, level: float, *, is_centred: bool) -> float:
    """Exact upper quantile of the low-frequency share under independence.

    Orthonormal coordinates of a Gaussian matrix are independent N(0, 1): the share of m of n of
    them is Beta(m/2, (n−m)/2). Centring removes the q coordinates of the column means, ⌈√q⌉ of them
    among the low frequencies.
    """
    rows, columns = math.ceil(math.sqrt(p)), math.ceil(math.sqrt(q))
    m, n = rows * columns, p * q
    if is_centred:
        m, n = m - columns, n - q
    return float(stats.beta(m / 2, (n - m) / 2).isf(level))
