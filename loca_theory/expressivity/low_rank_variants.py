r"""LoRA, DoRA and VeRA as approximations of a given matrix.

- **R** (LoRA): the truncated singular value decomposition (Eckart–Young).
- **DoRA**: W = AΛ with unit columns of A and their lengths in Λ; Ŵ = A_r Λ, A_r the best rank-r
  approximation of A. Its loss is :math:`\|(A-A_r)Λ\|^2`. For Gaussian W, A and Λ are independent
  and the expected loss is :math:`p\,E\|A-A_r\|^2`, because :math:`E\,Λ_{jj}^2 = p`; the outline in
  the paper prints the mean of χ in that place.
- **VeRA**: Ŵ = diag(b) B diag(d) A with frozen random B (p×r) and A (r×q) and trained b, d:
  p + r numbers, far fewer than LoRA's (p+q)r. For fixed d, each b_i is the least-squares
  coefficient of row i on row i of B diag(d) A; for fixed b, d solves an r×r system. The two are
  alternated from d = 1 until the kept energy stops growing, which gives a local optimum: the true
  optimum keeps at least as much.

Source: the paper's appendix "Extended Analysis on other LoRA Variants".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.random_choices import required

_VERA_ROUNDS = 2000
_VERA_TOLERANCE = 1e-8


def approximate(
    matrix: torch.Tensor, curve: str, budget: Budget, rng: np.random.Generator | None
) -> torch.Tensor:
    """Ŵ for the curves ``R``, ``DoRA`` and ``VeRA``; see the module's text."""
    match curve:
        case "R":
            return _truncated(matrix, budget.r)
        case "DoRA":
            lengths = _column_lengths(matrix)
            return _truncated(matrix / lengths, budget.dora_rank) * lengths
        case _:
            return _vera(matrix, *_frozen_factors(matrix, budget.r, rng))


def kept_energies(
    matrix: torch.Tensor,
    curve: str,
    budgets: Sequence[Budget],
    rng: np.random.Generator | None,
) -> NDArray[np.float64]:
    """‖W‖² − ‖W − Ŵ‖² for every budget; one decomposition serves all ranks."""
    match curve:
        case "R":
            energies = torch.linalg.svdvals(matrix).square()
            sums = torch.cat([energies.new_zeros(1), energies.cumsum(0)]).double().cpu().numpy()
            return sums[[budget.r for budget in budgets]]
        case "DoRA":
            return _dora_energies(matrix, [budget.dora_rank for budget in budgets])
        case _:
            left, right = _frozen_factors(matrix, max(budget.r for budget in budgets), rng)
            total = float(matrix.double().square().sum())
            # Each rank uses the leading part of the same frozen factors.
            losses = [
                matrix - _vera(matrix, left[:, : budget.r], right[: budget.r]) for budget in budgets
            ]
            return np.array([total - float(loss.double().square().sum()) for loss in losses])


def _truncated(matrix: torch.Tensor, rank: int) -> torch.Tensor:
    u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
    return (u[:, :rank] * s[:rank]) @ vh[:rank]


def _column_lengths(matrix: torch.Tensor) -> torch.Tensor:
    lengths = torch.linalg.vector_norm(matrix, dim=0)
    return torch.where(lengths > 0, lengths, torch.ones_like(lengths))


def _dora_energies(matrix: torch.Tensor, ranks: Sequence[int]) -> NDArray[np.float64]:
    lengths = _column_lengths(matrix)
    directions = matrix / lengths
    # A_r = U_r U_rᵀ A = A V_r V_rᵀ: column j keeps Σ_{i≤r} (u_iᵀ a_j)² = Σ_{i≤r} σ_i² V_ji² of its
    # direction's unit energy. The smaller of the two Gram matrices gives either.
    wide = matrix.shape[0] < matrix.shape[1]
    gram = directions @ directions.T if wide else directions.T @ directions
    values, vectors = torch.linalg.eigh(gram)
    leading = torch.arange(len(values) - 1, -1, -1, device=matrix.device)[: max(ranks)]
    chosen = vectors[:, leading]
    columns = (directions.T @ chosen).square() if wide else chosen.square() * values[leading]
    energies = lengths.square() @ columns.cumsum(dim=1)
    sums = torch.cat([energies.new_zeros(1), energies]).double().cpu().numpy()
    return sums[list(ranks)]


def _frozen_factors(
    matrix: torch.Tensor, rank: int, rng: np.random.Generator | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """VeRA's B (p×r) and A (r×q), drawn so that a smaller rank sees the leading part."""
    p, q = matrix.shape
    factors = torch.from_numpy(required(rng).standard_normal((rank, p + q))).to(matrix)
    return factors[:, :p].T, factors[:, p:]


def _vera(matrix: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Alternating least squares for the two diagonals."""
    seen, gram = matrix @ right.T, right @ right.T
    b, d = torch.zeros_like(left[:, 0]), torch.ones_like(left[0])
    kept = matrix.new_zeros(())
    for _ in range(_VERA_ROUNDS):
        rows = left * d
        gains = (seen * rows).sum(dim=1)
        lengths = ((rows @ gram) * rows).sum(dim=1)
        b = gains / lengths.clamp_min(torch.finfo(matrix.dtype).tiny)
        before, kept = kept, (b * gains).sum()
        if kept - before <= _VERA_TOLERANCE * kept:
            break
        weighted = left * b[:, None]
        normal = (weighted.T @ weighted) * gram
        d = torch.linalg.pinv(normal, hermitian=True) @ (weighted * seen).sum(dim=0)
    return (b[:, None] * left * d) @ right
