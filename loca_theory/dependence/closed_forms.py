r"""Closed forms of losses and crossings under dependence.

Unless stated otherwise, losses are relative to pq, the expected energy of the independent part.

A separable W has covariance Σ = A ⊗ B, that is :math:`W = A^{1/2} Z B^{1/2}` with independent
N(0, 1) entries in Z. In a separable orthonormal basis, given by the rows of C (p×p) and D (q×q),
the coordinate :math:`(C W D^\top)_{ij}` is normal with variance

.. math:: v_{ij} = a_i b_j, \qquad a_i = (C A C^\top)_{ii}, \quad b_j = (D B D^\top)_{jj} ,

and two coordinates have covariance :math:`(C A C^\top)_{ik} (D B D^\top)_{jl}`. Hence they are
independent if and only if the basis diagonalises both factors. Then
:func:`~loca_theory.expressivity.laws.unequal_variances.expected_top_sum_of_unequal` gives the
energy that the N largest retain:

- the DCT diagonalises (1−ρ)I + ρ11ᵀ, the factor of ``row-equicorrelated`` and of ``blocks`` with a
  single block (a circulant matrix is diagonal in the real Fourier basis);
- the standard basis (entries) diagonalises the factors of ``scaled``.

Elsewhere, as for the DCT of ``ar1``, which it diagonalises only in the limit of large matrices, the
coordinates are correlated and the prediction treats them as independent. Their laws are the true
ones, so the mean number E B(x) of squares above x is exact. The variance of B(x) is not: by Šidák's
inequality it is at least that of independent coordinates. If ΔVar is the difference where
E B(x) = N, the prediction retains too much by :math:`ΔVar / (2\,|\tfrac{d}{dx} E B(x)|)` to leading
order. Relative to E‖W‖² this is about the number of coordinates that fluctuate together, over pq.

The retained energy of independent coordinates is a convex and symmetric function of their
variances. Of all profiles of the same sum, equal variances therefore retain the least. Entries have
equal variances under every correlation of entries of variance 1, so the prediction for the DCT is
at least as large.

Source: the spiked-model limits of F. Benaych-Georges and R. R. Nadakuditi, J. Multivar. Anal. 111
(2012), applied to the paper's question; A. P. Dawid, Biometrika 68 (1981) for matrix-variate normal
laws; N. Ahmed, T. Natarajan and K. R. Rao, IEEE Trans. Comput. 23 (1974) for the DCT of an AR(1)
process; Z. Šidák, J. Am. Stat. Assoc. 62 (1967).
"""

from __future__ import annotations

import numpy as np
from scipy import fft, optimize, special

from loca_theory._types import Array
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import Budget
from loca_theory.expressivity.laws.order_statistics import (
    expected_top_sum_with_outlier,
    on_panels,
)
from loca_theory.expressivity.laws.unequal_variances import expected_top_sum_of_unequal
from loca_theory.expressivity.limits import low_rank_fraction

_NODES, _FAR = 32, 9.0


def _half_normal_nodes(scale: float) -> tuple[Array, Array]:
    """Nodes and weights for E f(|g|), where g is standard normal and f varies on the given scale.

    The rule is Gauss–Legendre on panels whose edges double from the scale up to 9 standard
    deviations.
    """
    edges = [0.0, *(scale * 2.0 ** np.arange(np.ceil(np.log2(_FAR / scale)))), _FAR]
    g, weights = on_panels(edges, _NODES)
    return g, weights * np.sqrt(2 / np.pi) * np.exp(-g * g / 2)


def selection_loss_with_spike(t: float, retained: float) -> float:
    r"""Loss of the largest coefficients of a matrix with a random rank-one spike.

    In any basis that is not aligned with the spike :math:`\sqrt{t\,pq}\; u v^\top` of uniformly
    random unit vectors, the coefficients look like independent copies of :math:`\sqrt t\, g h + ε`
    with g, h and ε standard normal. Given g, such a coefficient is normal with variance
    :math:`1 + t g^2`. Retaining the fraction f of the coefficients whose magnitude exceeds c, where
    :math:`E\,P(|X| > c \mid g) = f`, leaves the loss

    .. math:: D(t) = E\,\bigl[(1 + t g^2)\, P(χ^2_3 < c^2/(1 + t g^2))\bigr] .

    Returns:
        The loss relative to pq, in the limit of large matrices. At t = 0 it is the loss of the
        LoCA for independent entries.
    """
    if t < 0 or not 0 < retained < 1:
        raise InvalidArgumentError(
            "t must not be negative and retained must lie strictly between 0 and 1, "
            f"not {t} and {retained}"
        )
    g, weights = _half_normal_nodes(0.5 / np.sqrt(1 + t))
    variance = 1 + t * g * g

    def exceeding(c: float) -> float:
        return float(weights @ special.erfc(c / np.sqrt(2 * variance))) - retained

    c = float(optimize.brentq(exceeding, 0.0, 40 * np.sqrt(1 + t), xtol=1e-14))
    below = special.gammainc(1.5, c * c / (2 * variance))
    return float(weights @ (variance * below))


def energy_retained_with_spike(fraction: float, retained: float) -> float:
    r"""Energy fraction that the largest coefficients retain if one random spike holds a fraction.

    With the fraction e = t/(1+t) of the energy in the spike, this is
    :math:`1 - D(t)/(1+t)`, where D(t) is :func:`selection_loss_with_spike`. Low rank retains more
    exactly if the r largest singular values hold a larger fraction of the energy. At the crossing
    the two are equal, which places a crossing on the phase diagram.
    """
    if not 0 <= fraction < 1:
        raise InvalidArgumentError(f"fraction must be at least 0 and below 1, not {fraction}")
    loss = selection_loss_with_spike(fraction / (1 - fraction), retained)
    return 1 - (1 - fraction) * loss


def low_rank_loss_with_spike(p: int, q: int, t: float, loss_without: float) -> float:
    r"""Loss of the best rank-r approximation of a matrix with a strong spike.

    The spike takes one rank: it raises the largest squared singular value to
    :math:`(θ^2+p)(θ^2+q)/θ^2 = θ^2 + p + q + pq/θ^2`. The other r − 1 ranks approximate an
    independent (p−1)×(q−1) matrix, whose energy is smaller by pq/θ², which went to the spike:

    .. math:: \frac{(p-1)(q-1)}{pq}\, L_R^{(p-1)(q-1)}(r-1) - \frac1{t\,pq}, \qquad θ^2 = t\,pq .

    Returns:
        The loss relative to pq.
    """
    return (p - 1) * (q - 1) / (p * q) * loss_without - 1 / (t * p * q)


def low_rank_loss_with_shared_mean(
    p: int, q: int, spread: float, loss: float, loss_without: float
) -> float:
    r"""Loss of the best rank-r approximation when all entries share one random mean.

    The mean is a spike whose strength is drawn anew for every matrix: W = Z + θ 11ᵀ/√(pq) with
    θ ~ N(0, s²). If θ² is below √(pq), the spike is hidden in the bulk and the loss is that of
    independent entries. Otherwise the spike takes one rank, as in :func:`low_rank_loss_with_spike`.
    With a = (pq)^{1/4}/s the expected loss is

    .. math:: (2Φ(a)-1)\, L_R(r) + 2(1-Φ(a)) \tfrac{(p-1)(q-1)}{pq} L_R^{(p-1)(q-1)}(r-1)
              - \tfrac{2}{s^2}\bigl[φ(a)/a - (1 - Φ(a))\bigr] ,

    where the subtracted term is the mean of 1/θ², restricted to θ² > √(pq).

    Returns:
        The loss relative to pq times the variance of the independent part.
    """
    if spread == 0:
        return loss
    a = (p * q) ** 0.25 / np.sqrt(spread)
    tail = special.ndtr(-a)
    density = np.exp(-a * a / 2) / np.sqrt(2 * np.pi)
    remaining = (p - 1) * (q - 1) / (p * q) * loss_without
    taken = 2 / spread * (density / a - tail)
    return float((1 - 2 * tail) * loss + 2 * tail * remaining - taken)


def selection_loss_with_shared_mean(budget: Budget, noise: float, atom: float) -> float:
    r"""Exact expected loss of LoCA when all entries share one random mean.

    11ᵀ is the DCT atom of frequency zero, so only the coefficient at that frequency depends on the
    mean: it is N(0, τ²), the other pq − 1 are N(0, σ²), and all are independent.

    Returns:
        The expected squared error; it is not divided by an energy.
    """
    n = budget.p * budget.q
    if noise == 0:
        return 0.0
    retained = expected_top_sum_with_outlier(n, budget.chosen_coefficients, atom / noise)
    return (n - 1 + atom / noise - retained) * noise


def limit_boundary(ratio: float, aspect: float = 1.0) -> float:
    r"""Fraction of the energy in one random spike at which LoRA and LoCA have the same loss.

    This is the line of one spike in the phase diagram, for large matrices; at the boundary both
    methods retain :func:`energy_retained_with_spike`. The function solves
    :math:`1 - R(ρ) = D(t)` for t and returns t/(1+t). R(ρ) is the fraction of the energy that rank
    truncation retains under the Marchenko–Pastur law, and D(t) is
    :func:`selection_loss_with_spike` at the paper's budget, f = ρ(1 + c)/2.
    """
    if not (0 < ratio < 0.5 and 0 < aspect <= 1):
        raise InvalidArgumentError(
            "ratio must lie strictly between 0 and 1/2 and aspect in (0, 1], "
            f"not {ratio} and {aspect}"
        )
    low_rank = 1 - low_rank_fraction(ratio, aspect)
    retained = ratio * (1 + aspect) / 2

    def gap(t: float) -> float:
        return selection_loss_with_spike(t, retained) - low_rank

    t = float(optimize.brentq(gap, 0.0, 1e6, xtol=1e-13)) if gap(0.0) < 0 else 0.0
    return t / (1 + t)


def cosine_variances(covariance: Array) -> Array:
    r"""Variances :math:`(C A C^\top)_{ii}` of the orthonormal DCT-II of a random vector.

    For another basis C they are ``((C @ A) * C).sum(axis=1)``, and for the entries themselves the
    diagonal of A.
    """
    once = fft.dct(covariance, axis=0, norm="ortho")
    # Rounding errors may leave a variance of 0 slightly negative.
    return fft.dct(once, axis=1, norm="ortho").diagonal().clip(min=0.0)


def selection_loss_of_separable(a: Array, b: Array, count: int) -> float:
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
