r"""VeRA: Ŵ = diag(b) B diag(d) A with frozen random B (p×s) and A (s×q), and trained b and d.

That is p + s numbers. The factors cost nothing, so the inner rank s is not LoRA's: it is what the
budget pays for beside b, as far as the fit can be computed. For fixed d each b_i is the
least-squares coefficient of row i on row i of B diag(d) A; for fixed b, d solves the normal
equations :math:`((B_b^\top B_b)\odot(AA^\top))\,d = \mathrm{diag}(B_b^\top WA^\top)` with B_b =
diag(b) B, by conjugate gradients, which need no s×s matrix.

Source: the paper's appendix "Extended Analysis on other LoRA Variants"; M. R. Hestenes and
E. Stiefel, J. Res. Natl. Bur. Stand. 49 (1952), for conjugate gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numpy.random import Generator

from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.methods.fitted import FittedFactors
from loca_theory.expressivity.random_choices import random_factors

if TYPE_CHECKING:
    from torch import Tensor

# The largest p·s·q, which a round takes some dozen of, and the largest s(p + q), which is stored.
_MOST_PRODUCTS, _MOST_ENTRIES = 2**33, 2**25
# Conjugate gradients reduce the squared residual to this fraction in each round.
_REDUCTION = 1e-3


@dataclass(frozen=True)
class FrozenFactors(FittedFactors):
    """VeRA: two diagonals with frozen random factors, fitted by alternating least squares."""

    def rank(self, budget: Budget) -> int:
        """The inner rank s: what the budget pays for, in large matrices less; at least LoRA's r."""
        p, q = budget.p, budget.q
        most = min(_MOST_PRODUCTS // (p * q), _MOST_ENTRIES // (p + q))
        return max(budget.r, min(budget.random_coefficients - p, most))

    def parameters(self, budget: Budget) -> int:
        """The two diagonals, p + s numbers."""
        return budget.p + self.rank(budget)

    def rounds_of(self, matrix: Tensor, budget: Budget, rng: Generator) -> Iterator[Tensor]:
        """A round solves for b and then for d."""
        return fit_diagonals(matrix, *random_factors(matrix, self.rank(budget), rng))


def fit_diagonals(matrix: Tensor, left: Tensor, right: Tensor) -> Iterator[Tensor]:
    """Fit diag(b) B diag(d) A to a matrix from d = 1; yield it after each round."""
    import torch

    tiny = torch.finfo(matrix.dtype).tiny
    projected, lengths = matrix @ right.T, right.square().sum(dim=1)
    d, rows = torch.ones_like(right[:, 0]), left @ right
    while True:
        b = (matrix * rows).sum(dim=1) / rows.square().sum(dim=1).clamp_min(tiny)
        weighted = left * b[:, None]

        def normal(d: Tensor, weighted: Tensor = weighted) -> Tensor:
            return (weighted * (((weighted * d) @ right) @ right.T)).sum(dim=0)

        residual = (weighted * (projected - b[:, None] * rows @ right.T)).sum(dim=0)
        scale = (weighted.square().sum(dim=0) * lengths).clamp_min(tiny)
        d = d + _conjugate_gradients(normal, residual, scale)
        rows = (left * d) @ right
        yield b[:, None] * rows


def _conjugate_gradients(
    normal: Callable[[Tensor], Tensor], residual: Tensor, scale: Tensor
) -> Tensor:
    """Solve symmetric equations, whose diagonal is ``scale``, to the fraction ``_REDUCTION``."""
    found = step = residual * 0
    first = energy = (residual.square() / scale).sum()
    before = energy.new_ones(())
    for _ in range(len(residual)):
        if not energy > _REDUCTION * first:
            break
        step = residual / scale + energy / before * step
        image = normal(step)
        length = energy / (step @ image)
        if not length.isfinite():
            break
        found, residual = found + length * step, residual - length * image
        before, energy = energy, (residual.square() / scale).sum()
    return found
