r"""Test statistics for dependence, and their critical values.

The first three are those of :func:`~loca_theory.increments.spectrum.spectral_statistics`. For W
with p ≥ q, λ are the eigenvalues of C = WᵀW/p; a wide matrix is transposed first.

- ``T``: the appendix's statistic, the fraction of Σλ outside the Marchenko–Pastur edges
  :math:`\hat σ^2 (1 \pm \sqrt{q/p})^2`. For square matrices the lower edge is 0, so under
  independence T is either 0 or at least about 4/K: its law has an atom at 0.
- ``largest``: λ₁ in the units of its Tracy–Widom limit.
- ``spikes``: the number of λ beyond the 0.99 quantile of that limit.
- ``low-frequency``: the fraction of ‖W‖² in the lowest √p × √q frequencies of the DCT.

σ̂² is the mean square entry. Centring subtracts the mean of each column, as the term "sample
correlation matrix" implies. Under independence the centred matrix has the law of a (p−1)×q matrix,
and a mean that all columns share is removed.

Source: the paper's section "Statistical Detection of Correlation" for T.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

STATISTICS = ("T", "largest", "spikes", "low-frequency")

_Array = NDArray[np.float64]


def low_frequency_fraction(spectrum: _Array) -> float:
    """Fraction of the energy in the ⌈√p⌉ × ⌈√q⌉ lowest frequencies of a DCT spectrum."""
    p, q = spectrum.shape
    corner = spectrum[: math.ceil(math.sqrt(p)), : math.ceil(math.sqrt(q))]
    return float(np.square(corner).sum() / np.square(spectrum).sum())


def centred(matrix: _Array) -> _Array:
    """Subtract the mean of each column."""
    return matrix - matrix.mean(axis=0, keepdims=True)


def upper_critical_value(null: _Array, level: float) -> float:
    """The smallest null draw c that at most a fraction ``level`` of the null draws exceeds.

    A test that rejects if the statistic exceeds c has at most this size, even if the law has an
    atom.
    """
    ordered = np.sort(null)
    allowed = math.floor(level * len(ordered))
    return float(ordered[len(ordered) - 1 - allowed])
