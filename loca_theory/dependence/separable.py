r"""Errors of selections under separable dependence.

W has covariance Σ = A ⊗ B, that is :math:`W = A^{1/2} Z B^{1/2}` with independent N(0, 1) entries
in Z. In a separable orthonormal basis, given by the rows of C (p×p) and D (q×q), the coordinate
:math:`(C W D^\top)_{ij}` is normal with variance

.. math:: v_{ij} = a_i b_j, \qquad a_i = (C A C^\top)_{ii}, \quad b_j = (D B D^\top)_{jj} ,

and two coordinates have covariance :math:`(C A C^\top)_{ik} (D B D^\top)_{jl}`. Hence they are
independent if and only if the basis diagonalises both factors. Then
:func:`~loca_theory.expressivity.laws.unequal_variances.expected_top_sum_of_unequal` gives the
energy that the N largest retain:

- the DCT diagonalises (1−ρ)I + ρ11ᵀ, the factor of ``row-equicorrelated`` and of ``blocks`` with a
  single block (a circulant matrix is diagonal in the real Fourier basis);
- the standard basis (method S) diagonalises the factors of ``scaled``.

Elsewhere, as for the DCT of ``ar1``, which it diagonalises only in the limit of large matrices, the
coordinates are correlated and the prediction treats them as independent. Their laws are the true
ones, so the mean number E B(x) of squares above x is exact. The variance of B(x) is not: by Šidák's
inequality it is at least that of independent coordinates. If ΔVar is the difference where
E B(x) = N, the prediction retains too much by :math:`ΔVar / (2\,|\tfrac{d}{dx} E B(x)|)` to leading
order. Relative to E‖W‖² this is about the number of coordinates that fluctuate together, over pq.

The retained energy of independent coordinates is a convex and symmetric function of their
variances. Of all profiles of the same sum, equal variances therefore retain the least. S has equal
variances under every correlation of entries of variance 1, so the prediction for the DCT is at
least as large.

Source: A. P. Dawid, Biometrika 68 (1981) for matrix-variate normal laws; N. Ahmed, T. Natarajan and
K. R. Rao, IEEE Trans. Comput. 23 (1974) for the DCT of an AR(1) process; Z. Šidák, J. Am. Stat.
Assoc. 62 (1967).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from loca_theory.expressivity.laws.unequal_variances import expected_top_sum_of_unequal


def cosine_variances(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Variances :math:`(C A C^\top)_{ii}` of the orthonormal DCT-II of a random vector.

    For another basis C they are ``((C @ A) * C).sum(axis=1)``, and for the entries themselves the
    diagonal of A.
    """
    once = fft.dct(covariance, axis=0, norm="ortho")
    # Rounding errors may leave a variance of 0 slightly negative.
    return fft.dct(once, axis=1, norm="ortho").diagonal().clip(min=0.0)


def selection_loss_of_separable(
    a: NDArray[np.float64], b: NDArray[np.float64], count: int
) -> float:
    r"""Expected loss of the N largest of independent coordinates of variances :math:`a_i b_j`.

    Returns:
        The expected squared error relative to :math:`E\|W\|^2 = \sum_i a_i \sum_j b_j`; 0 if that
        is 0. It is exact if the basis diagonalises both factors, up to the error of
        :func:`~loca_theory.expressivity.laws.unequal_variances.expected_top_sum_of_unequal`, and
        otherwise treats correlated coordinates as independent.

    >>> lags = np.abs(np.subtract.outer(np.arange(64), np.arange(64)))
    >>> variances = cosine_variances(0.5 ** lags)
    >>> round(selection_loss_of_separable(variances, variances, 512), 3)  # DCT coefficients
    0.309
    >>> round(selection_loss_of_separable(np.ones(64), np.ones(64), 512), 3)  # entries
    0.498
    """
    variances = np.outer(a, b)
    retained = expected_top_sum_of_unequal(variances, count)
    energy = float(variances.sum())
    return 1 - retained / energy if energy else 0.0
