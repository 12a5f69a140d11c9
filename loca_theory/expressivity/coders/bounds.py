r"""Lower bounds on the error of coders at a number of bits per entry.

One is of independent normal numbers, and one of codes that treat each coordinate alone.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln, psi

from loca_theory._types import Array
from loca_theory.expressivity.bits import least_error

# ln z at which the integrand of E ln Q is summed; it is analytic, so that the sum converges fast.
_LOG_Z = np.arange(-40.0, 90.0, 0.05)


def water_filling(variances: Array, bits: float) -> float:
    r"""The least relative error of independent normal numbers with these variances.

    .. math:: \frac{\sum_i \min(θ, σ_i^2)}{\sum_i σ_i^2}
        \quad\text{with}\quad \frac1n \sum_i \max(0, \tfrac12 \log_2 σ_i^2/θ) = b

    Args:
        variances: The variances σᵢ², not all 0.
        bits: Bits b per number.

    Source: T. M. Cover, J. A. Thomas, Elements of Information Theory, 2006, theorem 10.3.3.
    """
    ordered = np.sort(variances[variances > 0])[::-1]
    # If the k largest get bits, log θ is the mean of their logarithms minus 2bn/k.
    count = np.arange(1, len(ordered) + 1)
    levels = (np.cumsum(np.log2(ordered)) - 2 * bits * len(variances)) / count
    theta = 2.0 ** levels.max()
    return float(np.minimum(theta, ordered).sum() / ordered.sum())


def spectral_bound(singular_values: Array, shape: tuple[int, int], bits: float) -> float:
    r"""Lower bound on the relative error of codes of single coordinates, fixed before the matrix.

    They know the singular values, and not the singular vectors.

    With random singular vectors (Haar), independent on both sides, every coordinate in a separable
    orthonormal basis is :math:`X = ρ ξ` with :math:`ρ = \|Σ b\|`, b uniform on the sphere of
    :math:`\mathbb R^q`, and ξ an independent coordinate of a uniform point on that of
    :math:`\mathbb R^p`. A code of single coordinates that was made without the matrix has at least
    the relative error

    .. math:: \frac{e^{2 h(X)}}{2πe\, \mathbb E X^2}\, 2^{-2b} \ge
        \frac{e^{\mathbb E \ln ρ^2}}{\mathbb E ρ^2} \cdot
        \frac{e^{2 h(ξ)}}{2πe\, \mathbb E ξ^2}\, 2^{-2b} ,

    because :math:`h(X) \ge h(X \mid ρ)`. The right side is returned, or the same with p and q
    exchanged, whichever is larger. The least error of codes of many such numbers together is at
    most :math:`2^{-2b}`. With independent normal :math:`h_k`, :math:`Q = \sum_k s_k^2 h_k^2` and
    :math:`\mathbb E \ln ρ^2 = \mathbb E \ln Q - ψ(q/2) - \ln 2`,

    .. math:: \mathbb E \ln Q =
        \int_0^\infty \Bigl(e^{-z} - \prod_k (1 + 2 s_k^2 z)^{-1/2}\Bigr) \frac{dz}{z} .

    Args:
        singular_values: The singular values :math:`s_k`, not all 0.
        shape: (p, q), at least 2 each.
        bits: Bits b per coordinate.

    Source: the lower bound of C. E. Shannon, IRE Nat. Conv. Rec. 7 (1959); the upper one, by a
    normal number of the same variance, of Cover and Thomas (2006), exercise 10.8.
    """
    squares = singular_values**2 / (singular_values**2).sum()
    z = np.exp(_LOG_Z)
    laplace = np.exp(-np.log1p(2 * np.outer(squares, z)).sum(axis=0) / 2)
    of_q = float((np.exp(-z) - laplace).sum()) * (_LOG_Z[1] - _LOG_Z[0])
    # E ρ² is 1/q here.
    logarithms = (
        of_q - psi(q / 2) - math.log(2 / q) + _entropy(p) for p, q in (shape, shape[::-1])
    )
    return math.exp(max(logarithms)) * least_error(bits)


def _entropy(m: int) -> float:
    """2h − ln 2πe of one of m coordinates of a uniform point with squared norm m."""
    log_c = gammaln(m / 2) - gammaln((m - 1) / 2) - math.log(math.pi * m) / 2
    entropy = -log_c - (m - 3) / 2 * (psi((m - 1) / 2) - psi(m / 2))
    return float(2 * entropy - math.log(2 * math.pi * math.e))
