r"""The appendix's lemmas on the Fourier matrix, in its own notation, and the half spectrum.

:math:`H_{uv} = K^{-1/2}(\cos(2\pi uv/K) - i\sin(2\pi uv/K))`, R = Re H, I = Im H, F = HWH. Of F
conjugate pairs are redundant; what is left are the weighted matrices F^H and F^S. ``detuning`` is
added to the period K of H, which is then not the printed one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loca_theory.claims.estimates import Deviations, Returned, Rng, largest_entry
from loca_theory.transforms.half_spectrum import HalfSpectrum

_Array = NDArray[np.float64]
_SIZES = range(2, 17)


def _parts(size: int, detuning: float = 0) -> tuple[_Array, _Array]:
    """R and I, entry by entry from the printed definition, with the period K + detuning."""
    u = np.arange(size)
    angle = 2 * np.pi * np.outer(u, u) / (size + detuning)
    return np.cos(angle) / np.sqrt(size), -np.sin(angle) / np.sqrt(size)


def parseval(*, rng: Rng, factor: str, transform: str) -> Returned:
    r"""Largest :math:`|c\,\|F\|^2 / \|X\|^2 - 1|` over random matrices of sizes 2 to 16.

    Args:
        factor: c: ``1/K`` as printed, or ``1``.
        transform: ``unitary`` (the appendix's H) or ``unnormalised``.
    """
    gaps = []
    for size in _SIZES:
        x = rng.standard_normal((size, size))
        f = np.fft.fft2(x, norm="ortho")
        f = f * size if transform == "unnormalised" else f
        scale = 1 / size if factor == "1/K" else 1.0
        gaps.append(scale * float((np.abs(f) ** 2).sum() / (x**2).sum()) - 1)
    return largest_entry(gaps), f"Sizes {_SIZES[0]} to {_SIZES[-1]}."


def maps(size: int, detuning: float = 0) -> tuple[_Array, _Array]:
    """The matrices that take vec W to vec Re F and to vec Im F, from the printed products."""
    real, imaginary = _parts(size, detuning)
    to_real = np.kron(real, real) - np.kron(imaginary, imaginary)
    return to_real, np.kron(real, imaginary) + np.kron(imaginary, real)


def _covariances(size: int, detuning: float = 0) -> tuple[_Array, _Array]:
    """Σ_R and Σ_I."""
    to_real, to_imaginary = maps(size, detuning)
    return to_real @ to_real.T, to_imaginary @ to_imaginary.T


def independence(*, product: str, detuning: float = 0) -> Deviations:
    """Largest entry of a product that vanishes if Re F and Im F are independent, sizes 2 to 8.

    A and B are the maps to vec Re F and vec Im F.

    Args:
        product: ``A B'``, the cross-covariance, or ``A B``, which the proof displays, and its
            difference from A Bᵀ.
    """
    for size in range(2, 9):
        a, b = maps(size, detuning)
        yield from [a @ b.T] if product == "A B'" else [a @ b, a @ b - a @ b.T]


def block_form(*, detuning: float = 0) -> Deviations:
    """Deviation of Σ_R and Σ_I from the printed blocks, in the order of the conjugate pairs.

    The blocks are I₄ and 0₄, then Δ₂ with entries 0.5, and Δ₂⁻ with 0.5 and −0.5. The sizes are
    even, 4 to 8.
    """
    for size in (4, 6, 8):
        half = HalfSpectrum(size, size)
        order = [int(i * size + j) for i, j in half.self_conjugate]
        for i, j in half.representatives:
            order += [int(i * size + j), int(-i % size * size + -j % size)]
        for covariance, sign in zip(_covariances(size, detuning), (1.0, -1.0), strict=True):
            printed = np.zeros_like(covariance)
            printed[:4, :4] = (1 + sign) / 2 * np.eye(4)
            pair = np.array([[0.5, sign * 0.5], [sign * 0.5, 0.5]])
            printed[4:, 4:] = np.kron(np.eye(half.pair_count), pair)
            yield covariance[np.ix_(order, order)] - printed


def permutation_order(*, size: int) -> Returned:
    """Number of rows of Σ_R over that of the printed permutation U ∈ ℝ^{K×K}."""
    return _covariances(size)[0].shape[0] / size


def _marked(size: int, first: int = 0) -> NDArray[np.bool_]:
    """The entries that condition U as printed marks, by frequency; its n is taken to be K."""
    i, j = np.indices((size, size)) + first
    marked = (
        (i == 0) & (j > size - j)
        | (j == 0) & (i > size - i)
        | (j > 0) & (j > size - j)
        | (j == size - j) & (i > size - i)
    )
    return np.roll(marked, first, axis=(0, 1))


def condition_u(*, first: int) -> Returned:
    """Number of conjugate pairs of which condition U does not mark exactly one, sizes 3 to 12.

    Args:
        first: The first index: 0, or 1 as in "1 ≤ i, j ≤ K". Indices are frequencies modulo K.
    """
    wrong, pairs = 0, 0
    for size in range(3, 13):
        marked, (i, j) = _marked(size, first), HalfSpectrum(size, size).representatives.T
        pairs += len(i)
        wrong += int((marked[i, j] == marked[-i, -j]).sum())
    return wrong, f"Of {pairs} pairs."


def _weights(size: int, pair: float = 2.0) -> _Array:
    """1 for an entry that is its own counterpart, else 0 if condition U holds, ``pair`` if not."""
    weights = np.where(_marked(size), 0.0, pair)
    weights[*HalfSpectrum(size, size).self_conjugate.T] = 1.0
    return weights


def energy(*, rng: Rng, matrix: str, pair_weight: float = 2.0) -> Deviations:
    """Largest relative deviation of a weighted sum from ‖W‖², sizes 3 to 12.

    Args:
        matrix: ``F^H``, weighted |F|², or ``F^S``, weighted Re(F)² beside weighted Im(F)².
        pair_weight: Weight of the entries that stand for a conjugate pair, 2 as printed.
    """
    for size in range(3, 13):
        w = rng.standard_normal((size, size))
        f, weights = np.fft.fft2(w, norm="ortho"), _weights(size, pair_weight)
        parts = [np.abs(f)] if matrix == "F^H" else [np.real(f), np.imag(f)]
        total = float(np.concatenate([weights * part**2 for part in parts], axis=1).sum())
        yield total / float((w**2).sum()) - 1


def coordinates(*, pair_weight: float = 2.0) -> Deviations:
    """Deviation from the identity of the covariance of the variables whose squares are F^R and F^I.

    These are √weight·Re F and √weight·Im F, for all entries of weight 1 or 2. They are jointly
    normal. If their covariance is the identity they are independent N(0, 1), so their squares are
    independent χ²₁. Im F of an entry that is its own counterpart must be 0. Sizes 3 to 8.

    Args:
        pair_weight: Weight of the entries that stand for a conjugate pair, 2 as printed.
    """
    for size in range(3, 9):
        to_real, to_imaginary = maps(size)
        printed = _weights(size).ravel()
        single, paired = printed == 1, printed == 2
        scale = np.sqrt(_weights(size, pair_weight).ravel())[:, None]
        rows = np.concatenate([(scale * to_real)[single | paired], (scale * to_imaginary)[paired]])
        yield from (rows @ rows.T - np.eye(len(rows)), to_imaginary[single])


def squared_twice(*, rng: Rng, power: int) -> Deviations:
    """Largest deviation of |F^H|^power from Re(F)² over entries with R = 0, relative to the latter.

    Args:
        power: 2 as printed, or 1.
    """
    for size in (4, 5, 8):
        f = np.fft.fft2(rng.standard_normal((size, size)), norm="ortho")
        f = f[_weights(size) == 1]
        yield (np.abs(f) ** 2) ** power / np.real(f) ** 2 - 1


def fourierft_span(*, size: int, learned: str = "real") -> Returned:
    """Dimension of the matrices that FourierFT reaches with every location, over K².

    FourierFT learns a real spectrum and takes the real part of the inverse FFT. The dimension is
    the rank of this linear map, which is built column by column.

    Args:
        size: K.
        learned: ``real`` parts of the spectrum, as in FourierFT, or ``both`` parts.
    """
    units = np.eye(size**2).reshape(-1, size, size)
    spectra = np.concatenate([units, 1j * units]) if learned == "both" else units
    reached = np.fft.ifft2(spectra, norm="ortho").real.reshape(len(spectra), -1)
    return float(np.linalg.matrix_rank(reached)) / size**2


def search_space(*, size: int) -> Returned:
    """Number of independent locations of the half spectrum, less the pq/2 of [p]×[q/2]."""
    return HalfSpectrum(size, size).location_count - size**2 / 2
