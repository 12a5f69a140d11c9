"""DoRA and VeRA: the appendix's extension to other low-rank methods."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from loca_theory.claims.estimates import Estimate, Returned, Rng, Tier
from loca_theory.expressivity import Budget, retained_energies
from loca_theory.expressivity.methods.frozen_factors import fit_diagonals
from loca_theory.expressivity.random_choices import random_factors


def dora_expectation(*, tier: Tier, rng: Rng, factor: str, size: int, r: int) -> Returned:
    r"""E‖(A − A_r)Λ‖² over c·E‖A − A_r‖², less 1.

    It is computed as the mean over draws of ‖(A − A_r)Λ‖² − c‖A − A_r‖², divided by the mean of the
    second term.

    Args:
        factor: c: ``printed``, √2 Γ((n+1)/2)/Γ(n/2), the mean of χ_n, or ``second-moment``, n.
        size: n.
        r: Rank.

    Source: the displayed expectation in "Extended Analysis on other LoRA Variants".
    """
    draws = tier.scaled(400, 2000, 20_000)
    log_mean = math.lgamma((size + 1) / 2) - math.lgamma(size / 2)
    c = math.sqrt(2) * math.exp(log_mean) if factor == "printed" else float(size)
    left, right = [], []
    for _ in range(draws):
        w = torch.from_numpy(rng.standard_normal((size, size)))
        lengths = torch.linalg.vector_norm(w, dim=0)
        u, s, vh = torch.linalg.svd(w / lengths)
        rest = (u[:, r:] * s[r:]) @ vh[r:]
        left.append(float((rest * lengths).square().sum()))
        right.append(float(rest.square().sum()))
    scale = c * float(np.mean(right))
    gaps = (np.array(left) - c * np.array(right)) / scale
    return Estimate.mean(gaps), f"n = {size}, r = {r}."


def dora_like_low_rank(
    *, tier: Tier, rng: Rng, size: int, r: int, method: str = "DoRA"
) -> Returned:
    """Mean loss of DoRA less that of LoRA on the same draws, relative to LoRA's.

    Args:
        size: n.
        r: Rank.
        method: The method that takes DoRA's place.

    Source: the closing sentence of the outline on DoRA.
    """
    draws, budget = tier.scaled(100, 500, 5000), [Budget(size, size, r)]
    gaps, losses = [], []
    for _ in range(draws):
        w = torch.from_numpy(rng.standard_normal((size, size)))
        total = float(w.square().sum())
        low_rank = total - retained_energies(w, "R", budget)[0]
        gaps.append(total - retained_energies(w, method, budget, rng)[0] - low_rank)
        losses.append(low_rank)
    return Estimate.mean(np.array(gaps) / np.mean(losses)), f"n = {size}, r = {r}."


def dora_eigenvalues(*, rng: Rng, source: str) -> Returned:
    """Largest relative deviation of ‖A‖² less r squared values from the loss of the best A_r.

    The two agree if the best A_r is made of these values. n = 12, r = 1 to 4.

    Args:
        source: ``eigenvalues`` in absolute value, as printed, or ``singular values``.

    Source: "Λ_r contains r largest eigenvalues of A" in the outline on DoRA.
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


def vera_like_noise(
    *, tier: Tier, rng: Rng, size: int, ranks: Sequence[int], method: str = "VeRA"
) -> Returned:
    """Mean energy that VeRA retains over that of as many random coordinates, less 1, by rank.

    n + r of n² orthonormal coordinates retain the fraction (n + r)/n² of the energy. VeRA's
    diagonals are fitted by alternating least squares, which finds a local optimum; the best fit is
    at least as good. Errors are not compared: both leave nearly all of the energy, so that even a
    method that retains nothing would have about the same error.

    Args:
        size: n.
        ranks: Values of r.
        method: ``VeRA``, or ``noise``, the first n + r entries of the matrix, in its place.

    Source: the paragraph on VeRA, whose error is said to be about that of white noise.
    """
    draws, parts = tier.scaled(8, 40, 200), {}
    for r in ranks:
        found = np.empty(draws)
        for draw in range(draws):
            w = torch.from_numpy(rng.standard_normal((size, size)))
            if method == "noise":
                retained = w.flatten()[: size + r].square().sum()
            else:
                rest = w - fit_diagonals(w, *random_factors(w, r, rng))
                retained = w.square().sum() - rest.square().sum()
            # Divided by E‖W‖² = n², since ‖W‖² itself varies more than the retained energy.
            found[draw] = float(retained) / (size + r)
        parts[f"r = {r}"] = Estimate.mean(found - 1)
    fractions = ", ".join(f"{(size + r) / size**2:.3f}" for r in ranks)
    return parts, f"n = {size}; noise retains {fractions} of the energy."


def vera_least_squares(*, rng: Rng, intercept: bool = False) -> Returned:
    """Largest difference of the best diagonal Λ_b from slopes of regressions, row by row.

    The best Λ_b for ‖W − Λ_b M‖, with M = B Λ_d A, is found from all entries at once. The i-th
    regression has row i of W as the response and row i of M as the covariate. n = 12, r = 5.

    Args:
        intercept: Whether the regressions have an intercept.

    Source: the paragraph on VeRA in "Extended Analysis on other LoRA Variants".
    """
    n, r = 12, 5
    w, b, a = (rng.standard_normal(shape) for shape in ((n, n), (n, r), (r, n)))
    m = (b * rng.standard_normal(r)) @ a
    design = np.zeros((n * n, n))  # of the entries of W, row after row, on the diagonal of Λ_b
    design[np.arange(n * n), np.repeat(np.arange(n), n)] = m.ravel()
    best = np.linalg.lstsq(design, w.ravel())[0]
    if intercept:
        w, m = (one - one.mean(axis=1, keepdims=True) for one in (w, m))
    slopes = (w * m).sum(axis=1) / np.square(m).sum(axis=1)
    return np.abs(best - slopes).max(), f"n = {n}, r = {r}."
