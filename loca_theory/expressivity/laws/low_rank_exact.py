r"""Exact expected energy of the leading singular values of a Gaussian matrix of any size.

Let N(τ) be the number of singular values of a p×q Gaussian matrix above τ. Then

.. math:: \sum_{i\le r} σ_i^2 = \int_0^\infty 2τ \min(r, N(τ))\,dτ, \qquad
          \min(r, N) = \min(\lceil r/2\rceil, N_+) + \min(\lfloor r/2\rfloor, N_-),

with :math:`N_+ = \lceil N/2\rceil` and :math:`N_- = \lfloor N/2\rfloor`. Each of the two is a sum
of independent indicators. Their probabilities are the eigenvalues, all of which are double, of

.. math:: W_- = C G, \qquad
          W_+ = \begin{pmatrix} C & -o\\ o^\top & 0\end{pmatrix}
                \begin{pmatrix} G & g\\ -g^\top & 0\end{pmatrix} .

Here G and g are the pre-kernel of :mod:`~loca_theory.expressivity.laws.wishart_kernel` in a basis
P_k of the functions on [τ, ∞), o holds the integrals of the P_k over [τ, ∞), and
:math:`C_{kl} = \iint_{τ<u<v} (P_k(u) P_l(v) - P_l(u) P_k(v))`. Nothing is sampled. The cost grows
with r, and with q only through the evaluation of the pre-kernel. The page "The exact law of a
truncated SVD" has the derivation.

Source: the integral for L_R in the paper's proof of Theorem 1, which the paper estimates
numerically; N. G. de Bruijn, J. Indian Math. Soc. 19 (1955) for the Pfaffian; K. Purbhoo,
arXiv:1611.07548, for the real zeros that make N a sum of independent indicators.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from loca_theory._types import Array
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.laws.order_statistics import expected_minimum
from loca_theory.expressivity.laws.wishart_kernel import pre_kernel
from loca_theory.increments import MarchenkoPastur
from loca_theory.sweeps.threads import one_thread

# Beyond this rank the cost, about r⁴, exceeds ten seconds; beyond this min(p, q), the number of
# Laguerre functions, it exceeds that of many draws. Simulation is better there.
LARGEST_EXACT_RANK, LARGEST_EXACT_SIZE = 256, 1 << 17


# The level that ten more singular values than r exceed on average is exceeded by fewer than r with
# probability below 1e-16: the variance of the number is about 1.
_MORE_VALUES = 10
# Extreme singular values stay within 9 of the bulk (Gaussian concentration), and within 16 units of
# the Tracy–Widom law.
_LARGEST_DISTANCE, _LARGEST_UNITS = 9.0, 16.0
# Functions whose contribution to the pre-kernel is smaller, relative to the largest, are dropped.
_NEGLIGIBLE = 1e-14
# Nodes between two levels; the integrand is smooth there.
_NODES_BETWEEN = 8
# Levels whose matrices are held at a time, and share a reduction.
_LEVELS = 24


def expected_leading_energy(
    p: int, q: int, r: int | None = None, *, refinement: float = 1.0
) -> Array:
    r"""E Σ_{i≤k} σ_i² of a p×q matrix of independent N(0, 1), for k = 0, …, r.

    Returns:
        Array of length r + 1; relative error below 1e-12.

    >>> from loca_theory.expressivity.laws.low_rank_exact import expected_leading_energy
    >>> float(expected_leading_energy(2, 2, 1)[1])  # 2 + π/2
    3.57079632679...
    """
    if min(p, q) < 1:
        raise InvalidArgumentError(f"a matrix needs at least one row and one column, not {p}x{q}")
    largest, r = min(p, q, LARGEST_EXACT_RANK), min(p, q) if r is None else r
    if min(p, q) > LARGEST_EXACT_SIZE:
        raise InvalidArgumentError(
            f"exact low-rank energies need min(p, q) <= {LARGEST_EXACT_SIZE}, not {p}x{q}; "
            "use the Monte Carlo or the asymptotic engine"
        )
    if not 1 <= r <= largest:
        raise InvalidArgumentError(
            f"exact low-rank energies of a {p}x{q} matrix need 1 <= r <= {largest}, not {r}; "
            "use the Monte Carlo or the asymptotic engine"
        )
    return _leading_energy(max(p, q), min(p, q), r, refinement).copy()


# The matrices are small: more threads would wait for one another, and while other processes are
# busy that takes longer than the computation.
@lru_cache(maxsize=128)
@one_thread()
def _leading_energy(p: int, q: int, r: int, refinement: float) -> Array:
    low, levels, measure, minus, plus = _indicators(p, q, r, refinement)
    k = np.arange(r + 1)
    expected = expected_minimum(plus, (r + 1) // 2)[:, (k + 1) // 2]
    expected += expected_minimum(minus, r // 2)[:, k // 2]
    # Up to the lowest level, more than r singular values lie above τ: min(r, N) = r.
    return low**2 * k + (2 * levels * measure) @ expected


def _indicators(
    p: int, q: int, r: int, refinement: float
) -> tuple[float, Array, Array, Array, Array]:
    """The lowest level; levels τ, their weights, and the probabilities of N₋ and N₊ at each."""
    low, high = _range(p, q, r)
    half = 0.5 * (high - low)
    waves = refinement * _largest_density(p, q, low, high) * (high - low)
    basis = _Basis(low, high, int(1.75 * waves + 90 * refinement))
    rows, columns = basis.factors(p, q)

    nodes, weights = np.polynomial.legendre.leggauss(int(1.7 * waves + 65 * refinement))
    nodes, measure = nodes[::-1], half * weights
    inner, inner_weights = np.polynomial.legendre.leggauss(_NODES_BETWEEN)
    gaps = -0.5 * np.diff(nodes, prepend=1.0)[:, None]

    ordered = np.zeros((rows.shape[1], rows.shape[1]))
    minus, plus = [], []
    for start in range(0, len(nodes), _LEVELS):
        part = slice(start, start + _LEVELS)
        between = nodes[part, None] + gaps[part] * (1 + inner)
        values, integrals = basis.evaluate(between)
        values *= (half * gaps[part] * inner_weights)[..., None]
        doubles = (values @ rows[:-1]).swapaxes(1, 2) @ (integrals @ columns[:-1])
        doubles -= (integrals @ rows[:-1]).swapaxes(1, 2) @ (values @ columns[:-1])
        doubles[0] += ordered
        np.cumsum(doubles, axis=0, out=doubles)
        ordered = doubles[-1]
        _, integrals = basis.evaluate(nodes[part])
        border = (integrals @ columns[:-1])[:, None, :] * rows[-1][:, None]
        border -= (integrals @ rows[:-1])[:, :, None] * columns[-1]
        left, right = basis.reduction(rows, columns, nodes[part][-1])
        doubles, border = left.T @ doubles @ right, left.T @ border @ right
        minus.append(_double_eigenvalues(doubles, q // 2))
        plus.append(_double_eigenvalues(doubles + border, (q + 1) // 2))
    levels = low + half * (1 + nodes)
    return low, levels, measure, np.concatenate(minus), np.concatenate(plus)


class _Basis:
    """The orthonormal Legendre polynomials P_k on [low, high], in the variable x in [−1, 1]."""

    def __init__(self, low: float, high: float, order: int) -> None:
        self.centre, self.half, self.order = 0.5 * (low + high), 0.5 * (high - low), order
        self.scale = np.sqrt((np.arange(order) + 0.5) / self.half)
        self.nodes, self.weights = np.polynomial.legendre.leggauss(order)

    def evaluate(self, x: Array) -> tuple[Array, Array]:
        """P_k(x), and the integrals of P_k from x to the upper end; shape (..., order)."""
        values = np.asarray(np.polynomial.legendre.legvander(x, self.order), dtype=np.float64)
        integrals = np.empty((*x.shape, self.order))
        integrals[..., 0] = 1 - x
        integrals[..., 1:] = values[..., :-2] - values[..., 2:]
        integrals[..., 1:] /= 2 * np.arange(1, self.order) + 1
        return values[..., :-1] * self.scale, integrals * (self.half * self.scale)

    def factors(self, p: int, q: int) -> tuple[Array, Array]:
        """Matrices Z and Y of small rank with Y Zᵀ = [[G, g], [−gᵀ, 0]]."""
        values, _ = self.evaluate(self.nodes)
        points = self.centre + self.half * self.nodes
        kernel, border = pre_kernel(p, q, points, (self.half * self.weights)[:, None] * values)
        left, singular, right = np.linalg.svd(np.block([[kernel, border[:, None]], [-border, 0.0]]))
        is_significant = singular > _NEGLIGIBLE * singular[0]
        # Both are graded like the roots of the spectrum.
        root = np.sqrt(singular[is_significant])
        return right[is_significant].T * root, left[:, is_significant] * root

    def reduction(self, rows: Array, columns: Array, x: float) -> tuple[Array, Array]:
        """Maps of Z and Y to factors of smaller rank, for functions on [x, 1] only."""
        length = 0.5 * (1 - x)
        values, _ = self.evaluate(1 - length * (1 + self.nodes))
        values *= np.sqrt(self.half * length * self.weights)[:, None]
        _, left = np.linalg.qr(np.vstack([values @ rows[:-1], rows[-1]]))
        _, right = np.linalg.qr(np.vstack([values @ columns[:-1], columns[-1]]))
        u, singular, vt = np.linalg.svd(right @ left.T)
        is_significant = singular > _NEGLIGIBLE * singular[0]
        root = np.sqrt(singular[is_significant])
        return right.T @ (u[:, is_significant] / root), left.T @ (vt[is_significant].T / root)


def _double_eigenvalues(matrices: Array, count: int) -> Array:
    """The ``count`` largest of the double eigenvalues of each matrix, all in [0, 1]."""
    values = -np.sort(-np.linalg.eigvals(matrices).real, axis=1)
    padded = np.zeros((len(values), 2 * count))
    length = min(2 * count, values.shape[1])
    padded[:, :length] = values[:, :length]
    return np.clip(0.5 * (padded[:, ::2] + padded[:, 1::2]), 0.0, 1.0)


def _range(p: int, q: int, r: int) -> tuple[float, float]:
    """Levels above which more than r, and none, of the singular values lie."""
    top, unit = np.sqrt(p) + np.sqrt(q), 0.5 * (1 / np.sqrt(p) + 1 / np.sqrt(q)) ** (1 / 3)
    low = max(0.0, np.sqrt(p) - np.sqrt(q) - _LARGEST_DISTANCE)
    if r + _MORE_VALUES < q:
        low = max(low, np.sqrt(p * MarchenkoPastur(q / p).isf((r + _MORE_VALUES) / q)))
    return float(low), float(top + min(_LARGEST_DISTANCE, _LARGEST_UNITS * unit))


def _largest_density(p: int, q: int, low: float, high: float) -> float:
    """Largest number of singular values per unit length between two levels."""
    u = np.linspace(low, min(high, np.sqrt(p) + np.sqrt(q)), 200, endpoint=False)[1:]
    return float((q * MarchenkoPastur(q / p).pdf(u * u / p) * 2 * u / p).max())
