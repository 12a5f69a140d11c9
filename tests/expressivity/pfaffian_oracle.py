"""The law of N(τ) of a small Gaussian matrix by q×q Pfaffians, as an oracle.

Nothing here uses the closed form of the inverse or sums of indicators: the moments are integrated
by quadrature, and the generating function E w^N(τ) = Pf A(w)/Pf A(1) is inverted by a discrete
Fourier transform over the roots of unity. A_ij(w) = P_ij + w (I_i O_j − I_j O_i) + w² Q_ij, where
I, O are the integrals of the basis functions below and above τ, and P, Q their ordered double
integrals over each part; an odd q adds a border I + wO.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

_Array = NDArray[np.float64]
_PANEL_NODES = 16


def expected_leading_energy(p: int, q: int) -> _Array:
    """E Σ_{i≤r} σ_i², r = 0, …, q, of a p×q matrix, p ≥ q."""
    first, tau, weights, below, ordered = ordered_integrals(p, q)
    total, total_ordered = below[-1], ordered[-1]
    # Below the first node all q singular values lie above: min(r, q) = r.
    energies = first**2 * np.arange(q + 1.0)
    # The last node is at infinity: no singular value lies above it.
    chunk = max(1, 1_500_000 // ((q + 1) ** 2 * (q + 2)))
    for start in range(0, len(tau) - 1, chunk):
        part = slice(start, min(start + chunk, len(tau) - 1))
        law = count_law(below[part], ordered[part], total, total_ordered)
        # E min(r, N) = Σ_{k<r} P(N > k).
        exceed = 1.0 - np.cumsum(law, axis=1)[:, :q]
        measure = 2.0 * tau[part] * weights[part]
        energies[1:] += measure @ np.cumsum(exceed, axis=1)
    return energies


def _basis(u: _Array, p: int, q: int) -> _Array:
    """Orthonormal Laguerre functions u^a e^{-u²/2} L_i^{(a-1/2)}(u²), a = p − q, i < q."""
    a = p - q
    i = np.arange(q)[:, None]
    log_norm = 0.5 * (np.log(2.0) + special.gammaln(i + 1) - special.gammaln(i + a + 0.5))
    envelope = np.exp(special.xlogy(a, u) - 0.5 * u * u + log_norm)
    return envelope * special.eval_genlaguerre(i, a - 0.5, u * u)


def ordered_integrals(p: int, q: int) -> tuple[float, _Array, _Array, _Array, _Array]:
    """Start of the grid, nodes τ, weights, I_i(τ), P_ij(τ); the last node is at infinity.

    I' = a and P'_ij = I_i a_j − I_j a_i are integrated by collocation on Gauss–Legendre panels.
    """
    # Extreme singular values stay within 9 of their standard deviations of the bulk.
    start, end = max(0.0, np.sqrt(p) - np.sqrt(q) - 9.0), np.sqrt(p) + np.sqrt(q) + 9.0
    # Singular values are about 2/√q apart: about ten nodes per singular value resolve each step.
    panels = int(np.ceil((end - start) / min(1.2, 3.0 / np.sqrt(q))))
    x, w = np.polynomial.legendre.leggauss(_PANEL_NODES)
    integrate = _integration_matrix(x)
    edges = np.linspace(start, end, panels + 1)
    half = 0.5 * np.diff(edges)
    tau = (edges[:-1, None] + half[:, None] * (1 + x)).ravel()
    a = _basis(tau, p, q).reshape(q, panels, _PANEL_NODES)

    below, ordered = [], []
    at_edge, ordered_at_edge = np.zeros(q), np.zeros((q, q))
    for k in range(panels):
        inner = at_edge[:, None] + half[k] * a[:, k] @ integrate.T
        product = inner[:, None, :] * a[None, :, k]
        slope = product - product.transpose(1, 0, 2)
        below.append(inner.T)
        ordered.append(
            (ordered_at_edge[:, :, None] + half[k] * slope @ integrate.T).transpose(2, 0, 1)
        )
        at_edge = at_edge + half[k] * a[:, k] @ w
        ordered_at_edge = ordered_at_edge + half[k] * slope @ w
    below.append(at_edge[None])
    ordered.append(ordered_at_edge[None])
    weights = (half[:, None] * w).ravel()
    return (
        start,
        np.append(tau, np.inf),
        np.append(weights, 0.0),
        np.concatenate(below),
        np.concatenate(ordered),
    )


def _integration_matrix(x: _Array) -> _Array:
    """The matrix B with (B f)_a = ∫_{-1}^{x_a} of the polynomial with values f at the nodes x."""
    count = len(x)
    legendre = np.polynomial.legendre
    to_coefficients = np.linalg.inv(legendre.legvander(x, count - 1))
    integrals = [legendre.legval(x, legendre.legint(row, lbnd=-1)) for row in np.eye(count)]
    return np.stack(integrals, axis=1) @ to_coefficients


def count_law(below: _Array, ordered: _Array, total: _Array, total_ordered: _Array) -> _Array:
    """P(N = k), k = 0 .. q, at each node: shape (nodes, q + 1)."""
    q = below.shape[1]
    above = total - below
    crossed = below[:, :, None] * above[:, None, :]
    crossed -= crossed.transpose(0, 2, 1)
    above_ordered = total_ordered - ordered - crossed
    # The coefficients are real, so the values on the lower half of the circle are the conjugates
    # of those on the upper half.
    count = q + 1
    w = np.exp(2j * np.pi * np.arange(count // 2 + 1) / count)[:, None, None]
    matrices = ordered[:, None] + w * crossed[:, None] + w**2 * above_ordered[:, None]
    whole = total_ordered
    if q % 2:
        border = below[:, None, :] + w[..., 0] * above[:, None, :]
        matrices = _bordered(matrices, border)
        whole = _bordered(whole, total)
    generating = pfaffian(matrices) / pfaffian(whole.astype(complex))
    return np.fft.irfft(np.conj(generating), n=count, axis=-1)


def _bordered(matrices: NDArray, border: NDArray) -> NDArray:
    """Append the row −border and the column +border to skew-symmetric matrices."""
    q = matrices.shape[-1]
    out = np.zeros((*matrices.shape[:-2], q + 1, q + 1), dtype=matrices.dtype)
    out[..., :q, :q] = matrices
    out[..., :q, q] = border
    out[..., q, :q] = -border
    return out


def pfaffian(matrices: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Pfaffians of skew-symmetric matrices (..., 2k, 2k), by Parlett–Reid elimination."""
    a = matrices.reshape(-1, *matrices.shape[-2:]).copy()
    size = a.shape[-1]
    index = np.arange(len(a))
    result = np.ones(len(a), dtype=complex)
    for k in range(0, size - 1, 2):
        pivot = k + 1 + np.abs(a[:, k, k + 1 :]).argmax(axis=1)
        swapped = pivot != k + 1
        for axis in (1, 2):
            view = a if axis == 1 else a.transpose(0, 2, 1)
            row, other = view[index, k + 1].copy(), view[index, pivot].copy()
            view[index, k + 1], view[index, pivot] = other, row
        head = a[:, k, k + 1]
        result *= np.where(swapped, -head, head)
        if k + 2 < size:
            safe = np.where(head == 0, 1.0, head)
            tau = a[:, k, k + 2 :] / safe[:, None]
            column = a[:, k + 2 :, k + 1]
            update = tau[:, :, None] * column[:, None, :]
            a[:, k + 2 :, k + 2 :] += update - update.transpose(0, 2, 1)
    return result.reshape(matrices.shape[:-2])
