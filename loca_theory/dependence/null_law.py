"""Laws of the test statistics under independence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from scipy import stats

from loca_theory.dependence.draws import PACKAGES
from loca_theory.expressivity.laws.bidiagonal import sample_leading_eigenvalues
from loca_theory.increments.spectrum import spectral_statistics
from loca_theory.sweeps import Cell, generator

EXPERIMENT = "dependence.null"
# Draws per cell. Fixed, so that a run with more draws reuses the stored blocks of a shorter run.
BLOCK = 250


@dataclass(frozen=True)
class NullCell(Cell):
    """A block of draws of the statistics of p×q matrices of independent N(0, 1) entries."""

    experiment = EXPERIMENT
    packages = PACKAGES

    p: int
    q: int
    seed: int
    draws: tuple[int, int]


def evaluate_null(cell: NullCell) -> dict[str, Any]:
    """Draw one block of the statistics ``T``, ``largest`` and ``spikes``.

    All singular values come from the bidiagonal model, so a draw costs one tridiagonal eigenvalue
    problem and no matrix.
    """
    p, q = cell.p, cell.q
    found = []
    for draw in range(*cell.draws):
        rng = generator(cell.seed, EXPERIMENT, p, q, draw)
        eigenvalues, _ = sample_leading_eigenvalues(p, q, min(p, q), rng)
        found.append(spectral_statistics(eigenvalues, p, q))
    return {name: [one[name] for one in found] for name in found[0]}


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
