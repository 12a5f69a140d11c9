"""The non-redundant half of the spectrum: the weighted matrices F^H and F^S, and its size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loca_theory.claims.checks.fourier import is_marked, maps
from loca_theory.claims.estimates import Returned, Rng, largest_entry
from loca_theory.transforms.half_spectrum import HalfSpectrum


def _weights(size: int, pair: float = 2.0) -> NDArray[np.float64]:
    """Weights: 1 if an entry is its own counterpart, else 0 if condition U holds, ``pair`` if not.

    The printed weight of a pair is 2.
    """
    weights = np.empty((size, size))
    for i, j in np.ndindex(size, size):
        is_own = (-i % size, -j % size) == (i, j)
        weights[i, j] = 1.0 if is_own else 0.0 if is_marked(i, j, size) else pair
    return weights


def energy(*, rng: Rng, matrix: str, pair_weight: float = 2.0) -> Returned:
    """Largest relative deviation of a weighted sum from ‖W‖², sizes 3 to 12.

    Args:
        matrix: ``F^H``, weighted |F|², or ``F^S``, weighted Re(F)² beside weighted Im(F)².
        pair_weight: Weight of the entries that stand for a conjugate pair, 2 as printed.

    Source: the matrices F^H and F^S and their sums in the appendix's proposition.
    """
    gaps = []
    for size in range(3, 13):
        w = rng.standard_normal((size, size))
        f, weights = np.fft.fft2(w, norm="ortho"), _weights(size, pair_weight)
        parts = [np.abs(f)] if matrix == "F^H" else [np.real(f), np.imag(f)]
        total = float(np.concatenate([weights * one**2 for one in parts], axis=1).sum())
        gaps.append(total / float((w**2).sum()) - 1)
    return largest_entry(gaps)


def coordinates(*, pair_weight: float = 2.0) -> Returned:
    """Deviation from the identity of the covariance of the variables whose squares are F^R and F^I.

    These are √weight·Re F and √weight·Im F, for all entries of weight 1 or 2. They are jointly
    normal. If their covariance is the identity they are independent N(0, 1), so their squares are
    independent χ²₁. Im F of an entry that is its own counterpart must be 0. Sizes 3 to 8.

    Args:
        pair_weight: Weight of the entries that stand for a conjugate pair, 2 as printed.

    Source: the laws of F^R and F^I for R = 0, 1 and −1 in the proof of Theorem 1.
    """
    gaps = []
    for size in range(3, 9):
        to_real, to_imaginary = maps(size)
        printed = _weights(size).ravel()
        own, both = printed == 1, printed == 2
        scale = np.sqrt(_weights(size, pair_weight).ravel())[:, None]
        retained = np.concatenate([(scale * to_real)[own | both], (scale * to_imaginary)[both]])
        gaps += [retained @ retained.T - np.eye(len(retained)), to_imaginary[own]]
    return largest_entry(gaps)


def squared_twice(*, rng: Rng, power: int) -> Returned:
    """Largest deviation of |F^H|^power from Re(F)² over entries with R = 0, relative to the latter.

    Args:
        power: 2 as printed, or 1.

    Source: "When R = 0, |F^H|² = Re(F)²" in the proof of Theorem 1.
    """
    gaps = []
    for size in (4, 5, 8):
        f = np.fft.fft2(rng.standard_normal((size, size)), norm="ortho")
        f = f[_weights(size) == 1]
        gaps.append((np.abs(f) ** 2) ** power / np.real(f) ** 2 - 1)
    return largest_entry(gaps)


def fourierft_span(*, size: int, learned: str = "real") -> Returned:
    """Dimension of the matrices that FourierFT reaches with every location, over K².

    FourierFT learns a real spectrum and takes the real part of the inverse FFT. The dimension is
    the rank of this linear map, which is built column by column.

    Args:
        size: K.
        learned: ``real`` parts of the spectrum, as in FourierFT, or ``both`` parts.

    Source: "FourierFT only considers learning the real part" in section 3.
    """
    units = np.eye(size**2).reshape(-1, size, size)
    reached = np.fft.ifft2(units, norm="ortho").real.reshape(size**2, -1)
    if learned == "both":
        imaginary = np.fft.ifft2(1j * units, norm="ortho").real.reshape(size**2, -1)
        reached = np.concatenate([reached, imaginary])
    return float(np.linalg.matrix_rank(reached)) / size**2


def search_space(*, size: int) -> Returned:
    """Number of independent locations of the half spectrum, less the pq/2 of [p]×[q/2].

    Source: the search space Ω₁ of the main text.
    """
    return HalfSpectrum(size, size).location_count - size**2 / 2
