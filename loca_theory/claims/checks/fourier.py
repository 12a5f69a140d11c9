r"""The appendix's lemmas on the Fourier matrix, in its own notation.

:math:`H_{uv} = K^{-1/2}(\cos(2\pi uv/K) - i\sin(2\pi uv/K))`, R = Re H, I = Im H, F = HWH.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from loca_theory.claims.measurement import Measurement, Setting
from loca_theory.transforms.dft import dft2
from loca_theory.transforms.half_spectrum import HalfSpectrum

_Array = NDArray[np.float64]
_SIZES = range(2, 17)


def _parts(size: int, detuning: float = 0) -> tuple[_Array, _Array]:
    """R and I, entry by entry from the printed definition, with the period K + detuning."""
    u = np.arange(size)
    angle = 2 * np.pi * np.outer(u, u) / (size + detuning)
    return np.cos(angle) / np.sqrt(size), -np.sin(angle) / np.sqrt(size)


def parseval(setting: Setting, *, factor: str, transform: str) -> Measurement:
    r"""Largest :math:`|c\,\|F\|^2 / \|X\|^2 - 1|` over random matrices of sizes 2 to 16.

    Args:
        setting: Random generator of the matrices; the identity holds for all or for none.
        factor: c: ``1/K`` as printed, or ``1``.
        transform: ``unitary`` (the appendix's H) or ``unnormalised``.

    Source: the lemma "Discrete Parseval Theorem".
    """
    worst = 0.0
    for size in _SIZES:
        x = setting.rng.standard_normal((size, size))
        f = dft2(torch.from_numpy(x)).numpy()
        f = f * size if transform == "unnormalised" else f
        scale = 1 / size if factor == "1/K" else 1.0
        ratio = scale * float((np.abs(f) ** 2).sum() / (x**2).sum())
        worst = max(worst, abs(ratio - 1))
    return Measurement.exact(worst, f"Sizes {_SIZES[0]} to {_SIZES[-1]}.")


def real_times_imaginary(setting: Setting, *, detuning: float = 0) -> Measurement:
    """Largest entry of Re(H) Im(H), sizes 2 to 16.

    Args:
        setting: Not used.
        detuning: Added to the period K of H; 0 for the printed H.

    Source: the lemma "Re(H)Im(H) = 0".
    """
    del setting
    worst = 0.0
    for size in _SIZES:
        real, imaginary = _parts(size, detuning)
        worst = max(worst, float(np.abs(real @ imaginary).max()))
    return Measurement.exact(worst)


def gram_matrices(setting: Setting, *, parity: str, detuning: float = 0) -> Measurement:
    """Largest deviation of RRᵀ and IIᵀ from the printed ones, sizes up to 17.

    Args:
        setting: Not used.
        parity: ``even`` sizes, as printed, or ``odd`` ones, where K/2 is not an index.
        detuning: Added to the period K of H; 0 for the printed H.

    Source: the lemma on Re(H)Re(H)ᵀ and Im(H)Im(H)ᵀ, and "the odd case can be proved similarly".
    """
    del setting
    worst = 0.0
    for size in range(2 if parity == "even" else 3, 18, 2):
        real, imaginary = _parts(size, detuning)
        printed_real, printed_imaginary = _printed_grams(size)
        worst = max(
            worst,
            float(np.abs(real @ real.T - printed_real).max()),
            float(np.abs(imaginary @ imaginary.T - printed_imaginary).max()),
        )
    return Measurement.exact(worst)


def _printed_grams(size: int) -> tuple[_Array, _Array]:
    real, imaginary = np.zeros((size, size)), np.zeros((size, size))
    for u in range(size):
        for w in range(size):
            if u == w:
                is_own = 2 * u % size == 0  # 0, and K/2 where it is an index
                real[u, w], imaginary[u, w] = (1.0, 0.0) if is_own else (0.5, 0.5)
            elif u + w == size:
                real[u, w], imaginary[u, w] = 0.5, -0.5
    return real, imaginary


def maps(size: int, detuning: float = 0) -> tuple[_Array, _Array]:
    """The matrices that take vec W to vec Re F and to vec Im F, from the printed products.

    Args:
        size: K.
        detuning: Added to the period K of H; 0 for the printed H.
    """
    real, imaginary = _parts(size, detuning)
    to_real = np.kron(real, real) - np.kron(imaginary, imaginary)
    return to_real, np.kron(real, imaginary) + np.kron(imaginary, real)


def _covariances(size: int, detuning: float = 0) -> tuple[_Array, _Array]:
    """Σ_R and Σ_I."""
    to_real, to_imaginary = maps(size, detuning)
    return to_real @ to_real.T, to_imaginary @ to_imaginary.T


def independence(setting: Setting, *, product: str, detuning: float = 0) -> Measurement:
    """Largest entry of a product that vanishes if Re F and Im F are independent, sizes 2 to 8.

    A and B are the maps to vec Re F and vec Im F; Σ_R = AAᵀ and Σ_I = BBᵀ.

    Args:
        setting: Not used.
        product: ``A B'``, the cross-covariance; ``A B``, which the proof displays, and its
            difference from A Bᵀ; or ``covariances``, Σ_R Σ_I.
        detuning: Added to the period K of H; 0 for the printed H.

    Source: the independence of Re F and Im F in the proof of Theorem 1.
    """
    del setting
    worst = 0.0
    for size in range(2, 9):
        a, b = maps(size, detuning)
        found = {
            "A B'": (a @ b.T,),
            "A B": (a @ b, a @ b - a @ b.T),
            "covariances": (a @ a.T @ b @ b.T,),
        }[product]
        worst = max(worst, *(float(np.abs(one).max()) for one in found))
    return Measurement.exact(worst)


def covariance_identity(setting: Setting, *, form: str, detuning: float = 0) -> Measurement:
    """Largest deviation of Σ_R and Σ_I from the printed formulas, even and odd sizes 2 to 8.

    Args:
        setting: Not used.
        form: ``sum``, Σ_R + Σ_I = I, or ``kronecker``, RRᵀ⊗RRᵀ + IIᵀ⊗IIᵀ and RRᵀ⊗IIᵀ + IIᵀ⊗RRᵀ.
        detuning: Added to the period K of H; 0 for the printed H.

    Source: the displayed formulas for Σ_R, Σ_I and their sum in the proof of Theorem 1.
    """
    del setting
    worst = 0.0
    for size in range(2, 9):
        real, imaginary = _covariances(size, detuning)
        if form == "sum":
            gaps = [real + imaginary - np.eye(size**2)]
        else:
            rr, ii = (part @ part.T for part in _parts(size, detuning))
            gaps = [
                real - np.kron(rr, rr) - np.kron(ii, ii),
                imaginary - np.kron(rr, ii) - np.kron(ii, rr),
            ]
        worst = max(worst, *(float(np.abs(gap).max()) for gap in gaps))
    return Measurement.exact(worst)


def locations_of_one(setting: Setting, *, detuning: float = 0) -> Measurement:
    """Number of differences between the diagonal positions where Σ_R is 1 and the printed ones.

    The sizes are even, 4 to 8. The printed positions are (0,0), (K/2,K/2), (K²/2,K²/2) and
    ((K²+K)/2,(K²+K)/2).

    Args:
        setting: Not used.
        detuning: Added to the period K of H; 0 for the printed H.
    """
    del setting
    wrong = 0
    for size in (4, 6, 8):
        diagonal = np.diag(_covariances(size, detuning)[0])
        found = set(np.flatnonzero(np.abs(diagonal - 1) < 1e-9).tolist())
        printed = {0, size // 2, size**2 // 2, (size**2 + size) // 2}
        wrong += len(found ^ printed)
    return Measurement.exact(wrong)


def block_form(setting: Setting, *, detuning: float = 0) -> Measurement:
    """Deviation of Σ_R and Σ_I from the printed blocks, in the order of the conjugate pairs.

    The blocks are I₄ and 0₄, then Δ₂ with entries 0.5, and Δ₂⁻ with 0.5 and −0.5. The sizes are
    even, 4 to 8.

    Args:
        setting: Not used.
        detuning: Added to the period K of H; 0 for the printed H.

    Source: equations (sigmar) and (sigmai).
    """
    del setting
    worst = 0.0
    for size in (4, 6, 8):
        real, imaginary = _covariances(size, detuning)
        half = HalfSpectrum(size, size)
        own = [int(i * size + j) for i, j in half.self_conjugate]
        order = list(own)
        for i, j in half.representatives:
            order += [int(i * size + j), int(-i % size * size + -j % size)]
        pairs = half.pair_count
        for found, corner, sign in ((real, 1.0, 1.0), (imaginary, 0.0, -1.0)):
            block = np.array([[0.5, sign * 0.5], [sign * 0.5, 0.5]])
            printed = np.zeros_like(found)
            printed[:4, :4] = corner * np.eye(4)
            printed[4:, 4:] = np.kron(np.eye(pairs), block)
            worst = max(worst, float(np.abs(found[np.ix_(order, order)] - printed).max()))
    return Measurement.exact(worst)


def permutation_order(setting: Setting, *, size: int) -> Measurement:
    """Number of rows of Σ_R over that of the printed permutation U ∈ ℝ^{K×K}.

    Source: the sentence before equation (sigmar).
    """
    del setting
    return Measurement.exact(_covariances(size)[0].shape[0] / size)


def is_marked(i: int, j: int, size: int) -> bool:
    """Whether condition U as printed marks an entry; its n is taken to be K.

    Args:
        i: Row.
        j: Column.
        size: K.
    """
    return (
        (i == 0 and j > size - j)
        or (j == 0 and i > size - i)
        or (j > 0 and j > size - j)
        or (j == size - j and i > size - i)
    )


def condition_u(setting: Setting, *, first: int) -> Measurement:
    """Number of conjugate pairs of which condition U does not mark exactly one, sizes 3 to 12.

    Args:
        setting: Not used.
        first: The first index: 0, or 1 as in "1 ≤ i, j ≤ K". Indices are frequencies modulo K.

    Source: condition U and the reference matrix of the appendix.
    """
    del setting
    wrong, pairs = 0, 0
    for size in range(3, 13):
        numbers = range(first, first + size)
        marked = {(i % size, j % size): is_marked(i, j, size) for i in numbers for j in numbers}
        for i, j in HalfSpectrum(size, size).representatives.tolist():
            pairs += 1
            wrong += marked[i, j] + marked[-i % size, -j % size] != 1
    return Measurement.exact(wrong, f"Of {pairs} pairs.")
