r"""The appendix's lemmas on the Fourier matrix, in its own notation.

:math:`H_{uv} = K^{-1/2}(\cos(2\pi uv/K) - i\sin(2\pi uv/K))`, R = Re H, I = Im H, F = HWH.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from loca_theory.claims.measurement import Measurement, Part, Setting
from loca_theory.expressivity import Budget, kept_energies
from loca_theory.transforms import HalfSpectrum, dft2

_Array = NDArray[np.float64]
_SIZES = range(2, 17)


def _parts(size: int) -> tuple[_Array, _Array]:
    """R and I, entry by entry from the printed definition."""
    u = np.arange(size)
    angle = 2 * np.pi * np.outer(u, u) / size
    return np.cos(angle) / np.sqrt(size), -np.sin(angle) / np.sqrt(size)


def parseval(setting: Setting, *, factor: str, transform: str) -> Measurement:
    r"""Largest :math:`|c\,\|F\|^2 / \|X\|^2 - 1|` over random matrices of sizes 2 to 16.

    Args:
        setting: The source of matrices; the identity holds for each or for none.
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


def real_times_imaginary(setting: Setting) -> Measurement:
    """Largest entry of Re(H) Im(H), sizes 2 to 16.

    Source: the lemma "Re(H)Im(H) = 0".
    """
    del setting
    worst = 0.0
    for size in _SIZES:
        real, imaginary = _parts(size)
        worst = max(worst, float(np.abs(real @ imaginary).max()))
    return Measurement.exact(worst)


def gram_matrices(setting: Setting) -> Measurement:
    """Largest deviation of RRᵀ and IIᵀ from the printed ones, even sizes 2 to 16.

    Source: the lemma on Re(H)Re(H)ᵀ and Im(H)Im(H)ᵀ.
    """
    del setting
    worst = 0.0
    for size in range(2, 17, 2):
        real, imaginary = _parts(size)
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
                is_own = u in (0, size // 2)
                real[u, w], imaginary[u, w] = (1.0, 0.0) if is_own else (0.5, 0.5)
            elif u + w == size:
                real[u, w], imaginary[u, w] = 0.5, -0.5
    return real, imaginary


def _covariances(size: int) -> tuple[_Array, _Array, _Array]:
    """Σ_R, Σ_I and the cross-covariance of Re F and Im F, vectorised."""
    real, imaginary = _parts(size)
    to_real = np.kron(real, real) - np.kron(imaginary, imaginary)
    to_imaginary = np.kron(real, imaginary) + np.kron(imaginary, real)
    return to_real @ to_real.T, to_imaginary @ to_imaginary.T, to_real @ to_imaginary.T


def cross_covariance(setting: Setting) -> Measurement:
    """Largest covariance between an entry of Re F and one of Im F, sizes 2 to 8.

    Source: the independence of Re F and Im F in the proof of Theorem 1.
    """
    del setting
    return Measurement.exact(max(float(np.abs(_covariances(k)[2]).max()) for k in range(2, 9)))


def product_of_covariances(setting: Setting) -> Measurement:
    """The covariance of x₁ and y₂ for x = (z, 0), y = (0, z), whose Σ_x Σ_y is zero.

    Source: the step from Σ_R Σ_I = 0 to independence in the proof of Theorem 1.
    """
    del setting
    x, y = np.array([[1.0], [0.0]]), np.array([[0.0], [1.0]])  # loadings on one z
    product = (x @ x.T) @ (y @ y.T)
    return Measurement.exact(
        float(np.abs(x @ y.T).max()),
        f"The product of the covariances is {np.abs(product).max():g}; x and y share one z.",
    )


def places_of_one(setting: Setting) -> Measurement:
    """Diagonal places where Σ_R is 1 and the four printed ones: how many are in one list alone.

    Even sizes 4 to 8; printed are (0,0), (K/2,K/2), (K²/2,K²/2), ((K²+K)/2,(K²+K)/2).
    """
    del setting
    wrong = 0
    for size in (4, 6, 8):
        diagonal = np.diag(_covariances(size)[0])
        found = set(np.flatnonzero(np.abs(diagonal - 1) < 1e-9).tolist())
        printed = {0, size // 2, size**2 // 2, (size**2 + size) // 2}
        wrong += len(found ^ printed)
    return Measurement.exact(wrong)


def block_form(setting: Setting) -> Measurement:
    """Deviation of Σ_R and Σ_I from the printed blocks, in the order of the conjugate pairs.

    I₄ and 0₄, then Δ₂ with entries 0.5, and Δ₂⁻ with 0.5 and −0.5; even sizes 4 to 8.

    Source: equations (sigmar) and (sigmai).
    """
    del setting
    worst = 0.0
    for size in (4, 6, 8):
        real, imaginary, _ = _covariances(size)
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
    """Rows of Σ_R over rows of the printed permutation U ∈ ℝ^{K×K}.

    Source: the sentence before equation (sigmar).
    """
    del setting
    return Measurement.exact(_covariances(size)[0].shape[0] / size)


def _is_marked(i: int, j: int, size: int) -> bool:
    """Condition U as printed, n read as K."""
    return (
        (i == 0 and j > size - j)
        or (j == 0 and i > size - i)
        or (j > 0 and j > size - j)
        or (j == size - j and i > size - i)
    )


def condition_u(setting: Setting, *, first: int) -> Measurement:
    """Conjugate pairs of which condition U does not mark exactly one member, sizes 3 to 12.

    Args:
        setting: Not used.
        first: Where indices begin: 0, or 1 as "1 ≤ i, j ≤ K" says; they are frequencies modulo K.

    Source: condition U and the reference matrix of the appendix.
    """
    del setting
    wrong, pairs = 0, 0
    for size in range(3, 13):
        numbers = range(first, first + size)
        marked = {(i % size, j % size): _is_marked(i, j, size) for i in numbers for j in numbers}
        for i, j in HalfSpectrum(size, size).representatives.tolist():
            pairs += 1
            wrong += marked[i, j] + marked[-i % size, -j % size] != 1
    return Measurement.exact(wrong, f"Of {pairs} pairs.")


def half_matrix_energy(setting: Setting) -> Measurement:
    """Largest relative deviation of ΣF^H from ‖W‖², with the weights 2, 1, 0; sizes 3 to 12.

    Source: the matrix F^H and its sum in the appendix's proposition.
    """
    worst = 0.0
    for size in range(3, 13):
        w = setting.rng.standard_normal((size, size))
        energy = np.abs(dft2(torch.from_numpy(w)).numpy()) ** 2
        total = 0.0
        for i in range(size):
            for j in range(size):
                is_own = (-i % size, -j % size) == (i, j)
                weight = 1.0 if is_own else 0.0 if _is_marked(i, j, size) else 2.0
                total += weight * energy[i, j]
        worst = max(worst, abs(total / float((w**2).sum()) - 1))
    return Measurement.exact(worst)


def search_space(setting: Setting, *, size: int) -> Measurement:
    """Independent locations of the half spectrum less the pq/2 places of [p]×[q/2].

    Source: the search space Ω₁ of the main text.
    """
    del setting
    return Measurement.exact(HalfSpectrum(size, size).location_count - size**2 / 2)


def raw_selection(setting: Setting, *, size: int, r: int) -> Measurement:
    """Extra relative loss when single coefficients are chosen by raw ``|Re|``, ``|Im|``.

    The N₃ largest of the non-redundant half by raw absolute value, against the best N₃ (F3, where
    those of a pair count twice); in both cases what is kept of a pair stands for both members.

    Source: the choice of the top N₃ coefficients in the main text; the weight 2 of F^R, F^I.
    """
    draws = setting.scaled(2000, 10_000, 40_000)
    budget, half = Budget(size, size, r), HalfSpectrum(size, size)
    count = budget.chosen_coefficients
    own, pairs = half.self_conjugate, half.representatives
    losses = []
    for _ in range(draws):
        w = torch.from_numpy(setting.rng.standard_normal((size, size)))
        f = dft2(w).numpy()
        single, both = f[tuple(own.T)], f[tuple(pairs.T)]
        raw = np.concatenate([np.real(single), np.real(both), np.imag(both)])
        weight = np.concatenate([np.ones(len(own)), np.full(2 * len(pairs), 2.0)])
        chosen = np.argpartition(np.abs(raw), -count)[-count:]
        kept = float((weight * raw**2)[chosen].sum())
        losses.append((kept_energies(w, "F3", [budget])[0] - kept) / size**2)
    return Measurement.of(Part.mean(losses))
