"""Errors on simulated dense matrices: F2, F3 and D, and the appendix's DoRA and VeRA."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from loca_theory.claims.estimates import Estimate, Named, Returned, Rng, Tier
from loca_theory.expressivity import Budget, exact_error, retained_energies
from loca_theory.expressivity.methods.coordinates.coordinate_method import CoordinateMethod
from loca_theory.expressivity.methods.fitted import best_round
from loca_theory.expressivity.methods.gradient_fits import fit_diagonals
from loca_theory.expressivity.methods.names import known_name
from loca_theory.expressivity.methods.registry import find_method
from loca_theory.expressivity.random_choices import random_factors
from loca_theory.transforms.half_spectrum import HalfSpectrum
from loca_theory.transforms.matrices import dct_matrix

_Array = NDArray[np.float64]
_ENTRIES = 2**20  # number of entries drawn at a time


def _retained(method: str, draws: _Array, count: int) -> _Array:
    """Energy of the ``count`` coordinates, or pairs of them, that a method chooses in each draw."""
    if known_name(method) == "LoCA":
        c = dct_matrix(draws.shape[-1]).numpy()
        energies = np.square(c @ draws @ c.T).reshape(len(draws), -1)
        return np.partition(energies, -count)[:, -count:].sum(axis=1)
    half = HalfSpectrum(*draws.shape[1:])
    spectra = np.fft.fft2(draws, norm="ortho")
    single, pairs = (spectra[:, *where.T] for where in (half.self_conjugate, half.representatives))
    if known_name(method) == "Fourier pairs":
        located = np.concatenate([single.real**2, 2 * np.abs(pairs) ** 2], axis=1)
        return np.partition(located, -count)[:, -count:].sum(axis=1)
    energies = np.square(np.concatenate([single.real, pairs.real, pairs.imag], axis=1))
    weights = np.repeat([1.0, 2.0], [single.shape[1], 2 * pairs.shape[1]])
    ranked = energies if method == "F3 raw" else energies * weights
    chosen = np.argpartition(ranked, -count, axis=1)[:, -count:]
    return np.take_along_axis(energies * weights, chosen, axis=1).sum(axis=1)


def difference(
    *, tier: Tier, rng: Rng, methods: Sequence[str], sizes: Sequence[int], r: int
) -> Named:
    """Mean difference of two methods' relative errors on the same dense draws, for each size.

    Args:
        methods: The two methods: ``LoCA``, the Kr largest cosine coefficients; ``Fourier``, the Kr
            largest real or imaginary parts of the half spectrum, those of conjugate pairs weighted
            by √2; ``F3 raw``, the same chosen by unweighted absolute values.
        sizes: Values of K.
        r: LoRA's rank, which sets the budget.
    """
    for size in sizes:
        gaps, block = [], _ENTRIES // size**2
        for _ in range(tier.scaled(6, 24, 96)):
            draws = rng.standard_normal((block, size, size))
            first, second = (_retained(method, draws, size * r) for method in methods)
            gaps.append((second - first) / size**2)
        yield f"K = {size}", Estimate.mean(np.concatenate(gaps))


def value(
    *, tier: Tier, rng: Rng, method: str, sizes: Sequence[int], r: int, law: str = ""
) -> Named:
    """Mean relative error on dense draws less the exact expectation, one estimate per size.

    Args:
        method: ``Fourier pairs``, the locations of the half spectrum with the most energy, or a
            method of :func:`difference`.
        sizes: Values of K.
        r: LoRA's rank, which sets the budget.
        law: The method whose exact expectation is compared; empty for ``method``.
    """
    for size in sizes:
        budget = Budget(size, size, r)
        count = cast("CoordinateMethod", find_method(method)).count(budget)
        draws = rng.standard_normal((tier.scaled(8000, 24_000, 96_000), size, size))
        retained = _retained(method, draws, count)
        errors = 1 - retained / np.square(draws).sum(axis=(1, 2))
        yield f"K = {size}", Estimate.mean(errors - exact_error(law or method, budget))


def dora_expectation(*, tier: Tier, rng: Rng, factor: str, size: int, r: int) -> Returned:
    r"""E‖(A − A_r)Λ‖² over c·E‖A − A_r‖², less 1.

    It is computed as the mean over draws of ‖(A − A_r)Λ‖² − c‖A − A_r‖², divided by the mean of the
    second term.

    Args:
        factor: c: ``printed``, √2 Γ((n+1)/2)/Γ(n/2), the mean of χ_n, or ``second-moment``, n.
        size: n.
        r: Rank.
    """
    draws = tier.scaled(400, 2000, 20_000)
    log_mean = math.lgamma((size + 1) / 2) - math.lgamma(size / 2)
    c = math.sqrt(2) * math.exp(log_mean) if factor == "printed" else float(size)
    left, right = np.empty((2, draws))
    for draw in range(draws):
        w = torch.from_numpy(rng.standard_normal((size, size)))
        lengths = torch.linalg.vector_norm(w, dim=0)
        u, s, vh = torch.linalg.svd(w / lengths)
        residual = (u[:, r:] * s[r:]) @ vh[r:]
        left[draw], right[draw] = (residual * lengths).square().sum(), residual.square().sum()
    return Estimate.mean((left - c * right) / (c * right.mean())), f"n = {size}, r = {r}."


def dora_like_low_rank(
    *, tier: Tier, rng: Rng, size: int, r: int, method: str = "DoRA"
) -> Returned:
    """Mean loss of DoRA less that of LoRA on the same draws, relative to LoRA's.

    Args:
        size: n.
        r: Rank.
        method: The method that takes DoRA's place.
    """
    draws, budget = tier.scaled(100, 500, 5000), [Budget(size, size, r)]
    gaps, losses = [], []
    for _ in range(draws):
        w = torch.from_numpy(rng.standard_normal((size, size)))
        total = float(w.square().sum())
        low_rank = total - retained_energies(w, "LoRA", budget)[0]
        gaps.append(total - retained_energies(w, method, budget, rng)[0] - low_rank)
        losses.append(low_rank)
    return Estimate.mean(np.array(gaps) / np.mean(losses)), f"n = {size}, r = {r}."


def dora_eigenvalues(*, rng: Rng, source: str) -> Returned:
    """Largest relative deviation of ‖A‖² less r squared values from the loss of the best A_r.

    The two agree if the best A_r is made of these values. n = 12, r = 1 to 4.

    Args:
        source: ``eigenvalues`` in absolute value, as printed, or ``singular values``.
    """
    size, worst = 12, 0.0
    for r in (1, 2, 3, 4):
        w = rng.standard_normal((size, size))
        a = w / np.linalg.norm(w, axis=0)
        u, s, vh = np.linalg.svd(a)
        loss = float(np.square(a - (u[:, :r] * s[:r]) @ vh[:r]).sum())
        values = np.sort(np.abs(np.linalg.eigvals(a)))[::-1] if source == "eigenvalues" else s
        worst = max(worst, abs((size - float(np.square(values[:r]).sum())) / loss - 1))
    return worst, f"n = {size}, r = 1 to 4."


def vera_like_noise(*, tier: Tier, rng: Rng, size: int, ranks: Sequence[int]) -> Returned:
    """Mean energy that VeRA retains over that of as many random coordinates, less 1, by rank.

    n + r of n² orthonormal coordinates retain the fraction (n + r)/n² of the energy. VeRA's
    diagonals are fitted from a start, which finds a local optimum; the best fit is at least as
    good. Errors are not compared: both leave nearly all of the energy, so that even a
    method that retains nothing would have about the same error.

    Args:
        size: n.
        ranks: Values of r.
    """
    draws, parts = tier.scaled(8, 40, 200), {}
    for r in ranks:
        retained = np.empty(draws)
        for draw in range(draws):
            w = torch.from_numpy(rng.standard_normal((size, size)))
            residual = w - best_round(w, fit_diagonals(w, *random_factors(w, r, rng)))
            # Divided by E‖W‖² = n², since ‖W‖² itself varies more than the retained energy.
            retained[draw] = float(w.square().sum() - residual.square().sum()) / (size + r)
        parts[f"r = {r}"] = Estimate.mean(retained - 1)
    fractions = ", ".join(f"{(size + r) / size**2:.3f}" for r in ranks)
    return parts, f"n = {size}; noise retains {fractions} of the energy."
