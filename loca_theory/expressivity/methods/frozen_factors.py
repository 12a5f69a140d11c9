r"""VeRA: Ŵ = diag(b) B diag(d) A with frozen random B (p×s) and A (s×q), and trained b and d.

That is p + s numbers. The factors cost nothing, so the inner rank s is not LoRA's: it is what the
budget pays for beside b, as far as the fit can be computed. For fixed d each b_i is the
least-squares coefficient of row i on row i of B diag(d) A; what remains is a function of d alone,
which L-BFGS reduces from d = 1. The result is a local optimum; the global optimum retains at least
as much.

Source: the paper's appendix "Extended Analysis on other LoRA Variants"; G. H. Golub and V. Pereyra,
SIAM J. Numer. Anal. 10 (1973), for the elimination of b; D. C. Liu and J. Nocedal, Math. Program.
45 (1989), for L-BFGS.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numpy.random import Generator

from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.laws.first_step import StepSize, of_frozen_factors
from loca_theory.expressivity.methods.fitted import FittedFactors
from loca_theory.expressivity.random_choices import random_factors

if TYPE_CHECKING:
    from torch import Tensor

# The largest p·s·q, of which a fit takes some hundred, and the largest s(p + q), which is stored.
_MOST_PRODUCTS, _MOST_ENTRIES = 2**33, 2**25
# Steps of L-BFGS in a round.
_STEPS = 10
_DIAGONAL = 0.1  # initial value of d


@dataclass(frozen=True)
class FrozenFactors(FittedFactors):
    """VeRA: two diagonals with frozen random factors, fitted by L-BFGS."""

    def rank(self, budget: Budget) -> int:
        """The inner rank s: what the budget pays for, in large matrices less; at least LoRA's r."""
        p, q = budget.p, budget.q
        most = min(_MOST_PRODUCTS // (p * q), _MOST_ENTRIES // (p + q))
        return max(budget.r, min(budget.random_coefficients - p, most))

    def parameters(self, budget: Budget) -> int:
        """The two diagonals, p + s numbers."""
        return budget.p + self.rank(budget)

    def first_step(self, budget: Budget) -> StepSize:
        """Of the diagonal that starts at 0, with the other one at 0.1."""
        return of_frozen_factors(budget.p, budget.q, self.rank(budget), _DIAGONAL)

    def rounds_of(self, matrix: Tensor, budget: Budget, rng: Generator) -> Iterator[Tensor]:
        """A round is some steps of L-BFGS."""
        return fit_diagonals(matrix, *random_factors(matrix, self.rank(budget), rng))


def fit_diagonals(matrix: Tensor, left: Tensor, right: Tensor) -> Iterator[Tensor]:
    """Fit diag(b) B diag(d) A to a matrix from d = 1; yield it after every ``_STEPS`` steps."""
    import torch

    d, tiny = torch.ones_like(right[:, 0]), torch.finfo(matrix.dtype).tiny
    energy = matrix.square().sum().clamp_min(tiny)

    def approximation() -> tuple[Tensor, Tensor]:
        rows = (left * d) @ right
        b = (matrix * rows).sum(dim=1) / rows.square().sum(dim=1).clamp_min(tiny)
        return b[:, None], b[:, None] * rows

    def loss() -> Tensor:
        b, found = approximation()
        residual = found - matrix
        # The derivative with respect to b vanishes.
        d.grad = 2 * (left * ((b * residual) @ right.T)).sum(dim=0) / energy
        return residual.square().sum() / energy

    search = torch.optim.LBFGS(
        [d],
        max_iter=_STEPS,
        tolerance_grad=0,
        tolerance_change=0,
        history_size=_STEPS,
        line_search_fn="strong_wolfe",
    )
    while True:
        search.step(loss)
        yield approximation()[1]
