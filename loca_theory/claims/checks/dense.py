"""Simulated dense matrices: the laws behind the errors, and Theorem 2."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from loca_theory.claims.estimates import Estimate, Returned, Rng, Tier, draw_seed
from loca_theory.expressivity import Budget, exact_error
from loca_theory.expressivity.methods.registry import find_method
from loca_theory.expressivity.monte_carlo import ErrorCell, Sampler, estimate
from loca_theory.sweeps import Runner
from loca_theory.transforms.half_spectrum import HalfSpectrum
from loca_theory.transforms.matrices import dct_matrix

_Array = NDArray[np.float64]
_ENTRIES = 2**20  # number of entries drawn at a time


def _cosine(draws: _Array, count: int) -> _Array:
    c = dct_matrix(draws.shape[-1]).numpy()
    energies = np.square(c @ draws @ c.T).reshape(len(draws), -1)
    return np.partition(energies, -count)[:, -count:].sum(axis=1)


def _fourier(draws: _Array, count: int, *, is_weighted: bool) -> _Array:
    """Energy of the ``count`` largest real or imaginary parts; those of pairs count twice."""
    half = HalfSpectrum(*draws.shape[1:])
    spectra = np.fft.fft2(draws, norm="ortho")
    single, pairs = (spectra[:, *where.T] for where in (half.self_conjugate, half.representatives))
    energies = np.square(np.concatenate([single.real, pairs.real, pairs.imag], axis=1))
    weights = np.repeat([1.0, 2.0], [single.shape[1], 2 * pairs.shape[1]])
    ranked = energies * weights if is_weighted else energies
    chosen = np.argpartition(ranked, -count, axis=1)[:, -count:]
    return np.take_along_axis(energies * weights, chosen, axis=1).sum(axis=1)


_RETAINED: dict[str, Callable[[_Array, int], _Array]] = {
    "D": _cosine,
    "F3": lambda draws, count: _fourier(draws, count, is_weighted=True),
    "F3 raw": lambda draws, count: _fourier(draws, count, is_weighted=False),
}


def difference(
    *, tier: Tier, rng: Rng, methods: Sequence[str], sizes: Sequence[int], r: int
) -> Returned:
    """Mean difference of two methods' relative errors on the same dense draws, for each size.

    Args:
        methods: The two methods: ``D``, the Kr largest cosine coefficients; ``F3``, the Kr largest
            real or imaginary parts of the half spectrum, those of conjugate pairs weighted by √2;
            ``F3 raw``, the same chosen by unweighted absolute values.
        sizes: Values of K.
        r: LoRA's rank, which sets the budget.

    Source: Theorem 2; the choice of the top N3 coefficients in the main text, and the weight 2 of
    F^R and F^I in the appendix.
    """
    entries = tier.scaled(6, 24, 96) * _ENTRIES
    first, second = (_RETAINED[method] for method in methods)
    parts = {}
    for size in sizes:
        gaps, block = [], _ENTRIES // size**2
        for _ in range(entries // _ENTRIES):
            draws = rng.standard_normal((block, size, size))
            gaps.append((second(draws, size * r) - first(draws, size * r)) / size**2)
        parts[f"K = {size}"] = Estimate.mean(np.concatenate(gaps))
    return parts


def value(
    *, tier: Tier, rng: Rng, method: str, sizes: Sequence[int], r: int, law: str = ""
) -> Returned:
    """Mean relative error on dense draws less the exact expectation, one estimate per size.

    Args:
        method: The method.
        sizes: Values of K.
        r: LoRA's rank, which sets the budget.
        law: The method whose exact expectation is compared; empty for ``method``.

    Source: the expectations of order statistics in the proof of Theorem 1.
    """
    draws = tier.scaled(8000, 24_000, 96_000)
    parts = {}
    for size in sizes:
        what = (find_method(method), size, size, (r,), Sampler.DENSE, (0, draws))
        found = estimate([ErrorCell(*what, seed=draw_seed(rng))], Runner(jobs=1))[0][0]
        gap = found.error - exact_error(law or method, Budget(size, size, r))
        parts[f"K = {size}"] = Estimate(gap, found.standard_error or 0.0, draws)
    return parts
