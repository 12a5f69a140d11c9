r"""The inverse of the antisymmetric moment matrix of a Gaussian matrix's singular values.

For a p×q Gaussian matrix, p ≥ q, a = p − q, take the functions

.. math:: f_j(u) = \sqrt2\, u^a e^{-u^2/2}\, \ell_j(u^2), \qquad
          \int_0^\infty f_i f_j\, u\, du = δ_{ij},

with the orthonormal Laguerre polynomials :math:`\ell_j = L_j^{(a)}\sqrt{j!/Γ(j+a+1)}`, j < q. Their
ordered double integrals :math:`A_{ij} = \iint_{u<v}(f_i(u)f_j(v) - f_j(u)f_i(v))` have an inverse
in closed form. Let :math:`β_j = \sqrt{(j+1)(j+1+a)}`. From :math:`(u f_j)' = β_j f_{j+1} - β_{j-1}
f_{j-1}` and integration by parts, the integral of :math:`f_i` against :math:`(u f_j)'` over u < v
is −2δ_ij, hence the inverse is tridiagonal:

.. math:: (A^{-1})_{j,j+1} = -(A^{-1})_{j+1,j} = β_j / 2 .

The integrals :math:`t_j = \int_0^\infty f_j` vanish for odd j, because :math:`\int (u f_j)' = 0`;
for even j, :math:`t_j^2 = B(\tfrac{j+1}2, \tfrac12)\,B(\tfrac{j+a+1}2, \tfrac12)/π` with the beta
function B. Only the last row of :math:`A^{-1} t` is not zero. An odd q has the border t, and the
last coupling of the tridiagonal inverse becomes :math:`1/t_{q-1}`.

Source: the Laguerre case of the pre-kernel in M. Adler, P. J. Forrester, T. Nagao and P. van
Moerbeke, J. Stat. Phys. 99 (2000), here in the variable u.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import special

from loca_theory._types import Array

# Rows between two changes of the scale; a function grows by less than 1e15 per row.
_ROWS = 16


def pre_kernel(p: int, q: int, u: Array, weights: Array) -> tuple[Array, Array]:
    r"""The pre-kernel, projected onto functions on a grid.

    Returns:
        The n×n matrix G of :math:`D(u, v) = \sum_{ij} f_i(u) (A^{-1})_{ij} f_j(v)`, and the vector
        g of :math:`\sum_{ij} f_i (A^{-1})_{ij} t_j`. For odd q, A is the bordered matrix and t has
        −1 in the place of the border.
    """
    kernel = np.zeros((len(u), len(u)))
    last = u
    for values, couplings in laguerre_functions(p, q, u):
        kernel += values[:-1].T @ (0.5 * couplings[:, None] * values[1:])
        last = values[-1]
    return weights.T @ (kernel - kernel.T) @ weights, _last_coefficient(p, q) * (last @ weights)


def _last_coefficient(p: int, q: int) -> float:
    r"""The last entry of A^{-1} t: 1/t_{q−1} for odd q, −β_{q−2} t_{q−2}/2 for even q."""
    if q % 2:
        return float(np.sqrt(np.pi / (_beta_half(q / 2) * _beta_half(p / 2))))
    square = _beta_half((q - 1) / 2) * _beta_half((p - 1) / 2) / np.pi
    return float(-0.5 * np.sqrt((q - 1.0) * (p - 1.0) * square))


def _beta_half(x: float) -> float:
    """B(x, 1/2), by Stirling's series for large x, where logarithms of Γ lose digits."""
    if x < 50:
        return float(special.beta(x, 0.5))
    return np.sqrt(np.pi / x) * np.exp(1 / (8 * x) - 1 / (192 * x**3) + 1 / (640 * x**5))


def laguerre_functions(p: int, q: int, u: Array) -> Iterator[tuple[Array, Array]]:
    """The functions f_j, j < q, and the couplings β_j, block by block.

    The three-term recurrence carries a scale per point, because the first functions underflow.

    Yields:
        Values of consecutive functions, shape (rows, points), and the couplings of neighbouring
        rows; the first row of a block repeats the last row of the block before.
    """
    a, x = p - q, u * u
    log_scale = 0.5 * np.log(2) + _log_weight(a, x)
    before, now, coupling = np.zeros_like(x), np.ones_like(x), 0.0
    for first in range(0, max(q - 1, 1), _ROWS):
        j = np.arange(first, min(first + _ROWS, q - 1), dtype=np.float64)
        couplings = np.sqrt((j + 1) * (j + 1 + a))
        values = np.empty((len(j) + 1, len(x)))
        values[0] = now
        for row in range(len(j)):
            step = (2 * j[row] + 1 + a - x) * now - coupling * before
            before, now, coupling = now, step / couplings[row], couplings[row]
            values[row + 1] = now
        yield values * np.exp(log_scale), couplings
        size = np.maximum(np.abs(now), np.abs(before))
        before, now, log_scale = before / size, now / size, log_scale + np.log(size)


def _log_weight(a: int, x: Array) -> Array:
    r"""Ln of x^{a/2} e^{−x/2} / √Γ(a+1), without cancellation for large a."""
    if a == 0:
        return -0.5 * x
    if a < 100:
        return 0.5 * (special.xlogy(a, x) - x - special.gammaln(a + 1))
    # x^a e^{−x} relative to its largest value, and Stirling's series for that value over Γ(a+1).
    excess = (x - a) / a
    with np.errstate(divide="ignore"):
        relative = a * (np.log1p(excess) - excess)
    return 0.5 * (relative - 0.5 * np.log(2 * np.pi * a) - 1 / (12 * a) + 1 / (360.0 * a**3))
