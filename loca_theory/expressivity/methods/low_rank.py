r"""Low rank: LoRA's best approximation, and DoRA's column magnitudes times a low-rank direction.

- **LoRA** (R): the truncated singular value decomposition (Eckart–Young).
- **DoRA**: W = AΛ, where A has unit columns and the diagonal Λ holds the column lengths of W;
  Ŵ = A_r Λ, where A_r is the best rank-r approximation of A. The loss is
  :math:`\|(A-A_r)Λ\|^2`. For Gaussian W, A and Λ are independent and the expected loss is
  :math:`p\,E\|A-A_r\|^2`, because :math:`E\,Λ_{jj}^2 = p`; the paper's outline prints the mean of χ
  instead.

Source: the paper's proof of Theorem 1 and its appendix "Extended Analysis on other LoRA Variants".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loca_theory._types import Array
from loca_theory.expressivity.budgets import Accounting, Budget
from loca_theory.expressivity.laws.bidiagonal import sample_leading_eigenvalues
from loca_theory.expressivity.laws.first_step import LORA_SCALING, StepSize, of_low_rank
from loca_theory.expressivity.laws.low_rank_exact import (
    LARGEST_EXACT_RANK,
    LARGEST_EXACT_SIZE,
    expected_leading_energy,
)
from loca_theory.expressivity.limits import low_rank_fraction
from loca_theory.expressivity.methods.coordinates.coordinate_method import prefix_sums
from loca_theory.expressivity.methods.engine import Engine
from loca_theory.expressivity.methods.method import Budgets, NamedMethod, OptionalRng

if TYPE_CHECKING:
    from torch import Tensor


class LowRank(NamedMethod):
    """The best approximation of rank r."""

    def parameters(self, budget: Budget) -> int:
        """Two factors, (p+q)·r numbers."""
        return (budget.p + budget.q) * budget.r

    def first_step(self, budget: Budget) -> StepSize:
        """Of two factors with α = 2r, one of which starts at 0."""
        return of_low_rank(budget.p, budget.q, budget.r, LORA_SCALING)

    def approximate(self, matrix: Tensor, budget: Budget, rng: OptionalRng = None) -> Tensor:
        """The truncated singular value decomposition."""
        return _truncated(matrix, budget.r)

    def retained_energies(self, matrix: Tensor, budgets: Budgets, rng: OptionalRng = None) -> Array:
        """Sums of the largest squared singular values; one decomposition serves all ranks."""
        import torch

        energies = torch.linalg.svdvals(matrix).square()
        return prefix_sums(energies.double().cpu().numpy(), [budget.r for budget in budgets])

    def expected_errors(self, budgets: Budgets) -> Array:
        """See :func:`~loca_theory.expressivity.laws.low_rank_exact.expected_leading_energy`."""
        p, q = budgets[0].p, budgets[0].q
        largest = max(budgets, key=lambda budget: budget.r)
        if Engine.EXACT not in self.engines(largest):
            raise self._engine_error(Engine.EXACT, largest)
        energies = expected_leading_energy(p, q, largest.r)
        return 1 - energies[[budget.r for budget in budgets]] / (p * q)

    def engines(self, budget: Budget) -> frozenset[Engine]:
        """See :class:`~loca_theory.expressivity.Method`; exact up to a very large rank and size."""
        is_small = min(budget.p, budget.q) <= LARGEST_EXACT_SIZE
        is_exact = is_small and budget.r <= LARGEST_EXACT_RANK
        return super().engines(budget) - (set() if is_exact else {Engine.EXACT})

    def limit(self, budget: Budget) -> float:
        """See :func:`~loca_theory.expressivity.limits.low_rank_fraction`."""
        small, large = sorted((budget.p, budget.q))
        return 1 - low_rank_fraction(budget.r / small, small / large)

    def sample(self, budgets: Budgets, rng: np.random.Generator) -> Array:
        """From the bidiagonal model, relative to the draw's own ‖W‖².

        This ratio is independent of ‖W‖², so it has the same mean and a smaller variance.
        """
        ranks = [budget.r for budget in budgets]
        values, energy = sample_leading_eigenvalues(budgets[0].p, budgets[0].q, max(ranks), rng)
        return 1 - prefix_sums(values, ranks) / energy


class ColumnNormalised(NamedMethod):
    """Column magnitudes times the best low-rank approximation of the unit columns: DoRA."""

    def rank(self, budget: Budget) -> int:
        """Rank of the direction.

        The paper's outline gives DoRA the rank of LoRA and does not charge for the q magnitudes.
        The accountings ``paper`` and ``main-text`` follow it; the others charge for them.
        """
        if budget.accounting in (Accounting.PAPER, Accounting.MAIN_TEXT):
            return budget.r
        sides = budget.p + budget.q
        return max(0, (sides * budget.r - budget.q) // sides)

    def parameters(self, budget: Budget) -> int:
        """Two factors and the q magnitudes; PEFT has p, one for each output."""
        return (budget.p + budget.q) * self.rank(budget) + budget.q

    def approximate(self, matrix: Tensor, budget: Budget, rng: OptionalRng = None) -> Tensor:
        """The product A_r Λ."""
        lengths = _column_lengths(matrix)
        return _truncated(matrix / lengths, self.rank(budget)) * lengths

    def retained_energies(self, matrix: Tensor, budgets: Budgets, rng: OptionalRng = None) -> Array:
        """One eigendecomposition serves all ranks."""
        import torch

        ranks = [self.rank(budget) for budget in budgets]
        lengths = _column_lengths(matrix)
        directions = matrix / lengths
        # A_r = U_r U_rᵀ A = A V_r V_rᵀ: column j retains Σ_{i≤r} (u_iᵀ a_j)² = Σ_{i≤r} σ_i² V_ji²
        # of its direction's unit energy. The smaller of the two Gram matrices gives the sum.
        is_wide = matrix.shape[0] < matrix.shape[1]
        gram = directions @ directions.T if is_wide else directions.T @ directions
        values, vectors = torch.linalg.eigh(gram)
        leading = torch.arange(len(values) - 1, -1, -1, device=matrix.device)[: max(ranks)]
        chosen = vectors[:, leading]
        columns = (directions.T @ chosen).square() if is_wide else chosen.square() * values[leading]
        energies = lengths.square() @ columns
        return prefix_sums(energies.double().cpu().numpy(), ranks)


def _truncated(matrix: Tensor, rank: int) -> Tensor:
    import torch

    u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
    return (u[:, :rank] * s[:rank]) @ vh[:rank]


def _column_lengths(matrix: Tensor) -> Tensor:
    lengths = matrix.norm(dim=0)
    return lengths.where(lengths > 0, lengths.new_ones(()))
