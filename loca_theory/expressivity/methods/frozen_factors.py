r"""VeRA: Ŵ = diag(b) B diag(d) A with frozen random B (p×r) and A (r×q), and trained b and d.

That is p + r numbers, far fewer than LoRA's (p+q)r. For fixed d each b_i is the least-squares
coefficient of row i on row i of B diag(d) A; for fixed b, d solves an r×r system. The two steps
alternate, starting at d = 1, until the retained energy stops growing. The result is a local
optimum; the global optimum retains at least as much.

Source: the paper's appendix "Extended Analysis on other LoRA Variants".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from loca_theory._types import Array
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.methods.method import Budgets, NamedMethod, Rng, squared_norm
from loca_theory.expressivity.random_choices import random_factors

if TYPE_CHECKING:
    from torch import Tensor

_ROUNDS = 2000
_TOLERANCE = 1e-8


@dataclass(frozen=True)
class FrozenFactors(NamedMethod):
    """VeRA: two diagonals with frozen random factors, fitted by alternating least squares."""

    def parameters(self, budget: Budget) -> int:
        """The two diagonals, p + r numbers."""
        return budget.p + budget.r

    def approximate(self, matrix: Tensor, budget: Budget, rng: Rng = None) -> Tensor:
        """The fitted diag(b) B diag(d) A."""
        return fit_diagonals(matrix, *random_factors(matrix, budget.r, rng))

    def retained_energies(self, matrix: Tensor, budgets: Budgets, rng: Rng = None) -> Array:
        """Each rank uses the leading part of the same frozen factors."""
        left, right = random_factors(matrix, max(budget.r for budget in budgets), rng)
        energy, ranks = squared_norm(matrix), [budget.r for budget in budgets]
        fits = (fit_diagonals(matrix, left[:, :r], right[:r]) for r in ranks)
        return np.array([energy - squared_norm(matrix - found) for found in fits])


def fit_diagonals(matrix: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Fit the two diagonals by alternating least squares, and return diag(b) B diag(d) A."""
    import torch

    projected, gram = matrix @ right.T, right @ right.T
    b, d = torch.zeros_like(left[:, 0]), torch.ones_like(left[0])
    retained = matrix.new_zeros(())
    for _ in range(_ROUNDS):
        rows = left * d
        products = (projected * rows).sum(dim=1)
        lengths = ((rows @ gram) * rows).sum(dim=1)
        b = products / lengths.clamp_min(torch.finfo(matrix.dtype).tiny)
        before, retained = retained, (b * products).sum()
        if retained - before <= _TOLERANCE * retained:
            break
        weighted = left * b[:, None]
        normal = (weighted.T @ weighted) * gram
        d = torch.linalg.pinv(normal, hermitian=True) @ (weighted * projected).sum(dim=0)
    return (b[:, None] * left * d) @ right
