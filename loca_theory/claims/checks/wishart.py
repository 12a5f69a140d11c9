"""Singular values: the loss of low rank, the Wishart density and the largest eigenvalue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import integrate, special

from loca_theory.claims.estimates import Deviations, Estimate, Named, Returned, Rng, Tier
from loca_theory.expressivity import Budget, approximate
from loca_theory.expressivity.laws.bidiagonal import sample_leading_eigenvalues

_NODES = 80


def low_rank_sum(*, rng: Rng, first: str) -> Returned:
    """Largest relative deviation of Σ|λ_i|² from ‖W − Ŵ_R‖², summed from K−r+1 or from r+1.

    Args:
        first: ``K-r+1``, as printed, or ``r+1``.
    """
    size, worst = 12, 0.0
    for r in (1, 2, 3, 4):
        w = torch.from_numpy(rng.standard_normal((size, size)))
        loss = float((w - approximate(w, "LoRA", Budget(size, size, r))).square().sum())
        energies = torch.linalg.svdvals(w).square().numpy()
        start = size - r if first == "K-r+1" else r
        worst = max(worst, abs(float(energies[start:].sum()) / loss - 1))
    return worst, f"K = {size}, r = 1 to 4."


def constant(*, gamma_power: int = 2) -> Deviations:
    r"""Largest deviation from 1 of ∫ g_L over λ₁ > … > λ_K with the printed C, K = 1, 2, 3.

    :math:`C = (π/2)^{K^2/2} / Γ_K(K/2)^g`, g = 2 as printed. With λ_i = u_i², u₁ = s,
    u_{i+1} = u_i t_i the ordered region becomes a box on which the integrand is smooth, so
    Gauss–Legendre quadrature converges.

    Args:
        gamma_power: g.
    """
    x, w = np.polynomial.legendre.leggauss(_NODES)
    s, ws = 7 * (1 + x), 7 * w  # the integrand is negligible beyond u = 14
    t, wt = (1 + x) / 2, w / 2
    for size in (1, 2, 3):
        log_gamma = special.multigammaln(size / 2, size)
        constant = (np.pi / 2) ** (size**2 / 2) / np.exp(gamma_power * log_gamma)
        grids = np.meshgrid(s, *[t] * (size - 1), indexing="ij")
        u, jacobian = [grids[0]], np.ones_like(grids[0])
        for step in grids[1:]:
            jacobian = jacobian * u[-1]
            u.append(u[-1] * step)
        # dλ = 2u du cancels λ^{-1/2} up to the factor 2.
        value = jacobian * 2.0**size * np.exp(-sum(x**2 for x in u) / 2)
        for larger, smaller in combinations(u, 2):
            value = value * (larger**2 - smaller**2)
        total = value
        for weights in [*[wt] * (size - 1), ws]:
            total = total @ weights
        yield constant * float(total) - 1


def density(*, pi_power: float = 0.25) -> Deviations:
    r"""Largest deviation from 1 of the integral of the displayed g(A), K = 1 to 4.

    With A = LLᵀ and :math:`dA = 2^K \prod_i l_{ii}^{K-i+1} dL`, the integrand is a product over the
    entries of the Cholesky factor L. Each factor of the product is integrated numerically.

    Args:
        pi_power: a in the factor π^{a K(K−1)} of the density, ¼ as printed.
    """
    for size in range(1, 5):
        total = 2.0**size * np.sqrt(2 * np.pi) ** (size * (size - 1) // 2)  # below the diagonal
        for i in range(1, size + 1):
            # |A|^{-1/2} takes one power of each diagonal entry.
            power = size - i
            total *= integrate.quad(lambda x, n=power: x**n * np.exp(-(x**2) / 2), 0, np.inf)[0]
        gammas = np.prod(special.gamma((size - np.arange(size)) / 2))
        printed = 2 ** (size**2 / 2) * np.pi ** (pi_power * size * (size - 1)) * gammas
        yield float(total / printed) - 1


def largest_eigenvalue(
    *, tier: Tier, rng: Rng, sizes: Sequence[int], aspect: float = 1.0
) -> Returned:
    r"""(E λ₁ − 4K + 2)/K^{1/3} for each size, which tends to −3.04 by the expansion with c = 1.

    The limit is 2^{4/3} E χ, with χ from Tracy and Widom's law. The 2 is a term of lower order,
    O(1), of Johnstone's centring :math:`(\sqrt{K-1} + \sqrt K)^2 = 4K - 2 + O(1/K)`.

    Args:
        sizes: Values of K.
        aspect: 1/c, rows over columns of W.
    """
    draws = tier.scaled(4000, 15_000, 60_000)
    largest = {size: _largest(rng, size, draws, aspect) - 4 * size + 2 for size in sizes}
    return {f"K = {size}": Estimate.mean(top / size ** (1 / 3)) for size, top in largest.items()}


def limit(
    *, tier: Tier, rng: Rng, printed: bool, sizes: Sequence[int], aspect: float = 1.0
) -> Named:
    """4 − E(1 − L_R)/K as printed, or 4 − E(K² − L_R)/K, for r = 1, one estimate per size.

    Args:
        printed: Whether 1 stands for K², as printed.
        sizes: Values of K, the number of columns.
        aspect: Rows over columns of W.
    """
    draws = tier.scaled(1000, 4000, 16_000)
    for size in sizes:
        retained = Estimate.mean(_largest(rng, size, draws, aspect) / size)
        shift = size - 1 / size if printed else 0.0
        yield f"K = {size}", replace(retained, value=4 - (retained.value - shift))


def _largest(rng: Rng, size: int, draws: int, aspect: float = 1.0) -> NDArray[np.float64]:
    """λ₁ of draws of WᵀW."""
    rows = round(aspect * size)
    return np.array([sample_leading_eigenvalues(rows, size, 1, rng)[0][0] for _ in range(draws)])
