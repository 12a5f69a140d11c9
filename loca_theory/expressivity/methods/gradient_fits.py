r"""Products that L-BFGS fits: VeRA, Uni-LoRA and VB-LoRA.

- **VeRA**: Ŵ = diag(b) B diag(d) A with frozen random B (p×s) and A (s×q), and trained b and d,
  p + s numbers. The factors cost nothing, so the inner rank s is not LoRA's: it is what the budget
  pays for beside b, as far as the fit can be computed. For fixed d each b_i is the least-squares
  coefficient of row i on row i of B diag(d) A; what remains is a function of d alone, which L-BFGS
  reduces from d = 1.
- **Uni-LoRA**: Ŵ = BA, whose entries are the N trained numbers, each divided by the root of how
  often it occurs. Where it occurs is drawn at random, equally often for all.
- **VB-LoRA**: Ŵ = BA, whose columns and rows consist of vectors of b numbers. Each is a mixture
  w v + (1 − w) u of two vectors from a bank. PEFT trains a weight for every vector of the bank, of
  which only the two largest have a gradient; so which two is drawn here, as training begins.

Each result is a local optimum; the global optimum retains at least as much. Uni-LoRA and VB-LoRA
are made to share their numbers among the layers of a model; here one matrix has them all.

Source: the paper's appendix "Extended Analysis on other LoRA Variants"; G. H. Golub and V. Pereyra,
SIAM J. Numer. Anal. 10 (1973), for the elimination of b; D. C. Liu and J. Nocedal, Math. Program.
45 (1989), for L-BFGS.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.random import Generator

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.bits import location_bits
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.laws.first_step import StepSize, of_frozen_factors
from loca_theory.expressivity.methods.fitted import FittedFactors
from loca_theory.expressivity.methods.linear_families import divisors
from loca_theory.expressivity.random_choices import random_factors

if TYPE_CHECKING:
    from torch import Tensor

# The largest p·s·q, of which a fit takes some hundred, and the largest s(p + q), which is stored.
_MOST_PRODUCTS, _MOST_ENTRIES = 2**33, 2**25
# Steps of L-BFGS in a round.
_STEPS = 10
_DIAGONAL = 0.1  # initial value of d


class FrozenFactors(FittedFactors):
    """VeRA: two diagonals with frozen random factors."""

    def rank(self, budget: Budget) -> int:
        """The inner rank s that the budget pays for, lower in large matrices; at least LoRA's r."""
        p, q = budget.p, budget.q
        limit = min(_MOST_PRODUCTS // (p * q), _MOST_ENTRIES // (p + q))
        return max(budget.r, min(budget.random_coefficients - p, limit))

    def parameters(self, budget: Budget) -> int:
        """The two diagonals, p + s numbers."""
        return budget.p + self.rank(budget)

    def first_step(self, budget: Budget) -> StepSize:
        """Of the diagonal that starts at 0, with the other one at 0.1."""
        return of_frozen_factors(budget.p, budget.q, self.rank(budget), _DIAGONAL)

    def rounds_of(self, matrix: Tensor, budget: Budget, rng: Generator) -> Iterator[Tensor]:
        """A round is some steps of L-BFGS from d = 1."""
        return fit_diagonals(matrix, *random_factors(matrix, self.rank(budget), rng))


class RepeatedNumbers(FittedFactors):
    """Uni-LoRA: LoRA of twice the rank, in whose factors every trained number occurs twice."""

    def rank(self, budget: Budget) -> int:
        """The rank of the product, at most min(p, q)."""
        return min(2 * budget.r, budget.p, budget.q)

    def parameters(self, budget: Budget) -> int:
        """All numbers of the budget."""
        return budget.random_coefficients

    def rounds_of(self, matrix: Tensor, budget: Budget, rng: Generator) -> Iterator[Tensor]:
        """A round is some steps of L-BFGS from normal numbers."""
        import torch

        count, rank = self.parameters(budget), self.rank(budget)
        indices = rng.permutation(np.resize(rng.permutation(count), (budget.p + budget.q) * rank))
        start = torch.from_numpy(rng.standard_normal(count)).to(matrix)
        where = torch.from_numpy(indices).to(matrix.device).unflatten(0, (rank, -1))
        scales = where.flatten().bincount(minlength=count).clamp_min(1).to(matrix).rsqrt()
        unit = matrix.square().mean().sqrt()

        def product(numbers: Tensor) -> Tensor:
            factors = (numbers * scales)[where]
            return unit * factors[:, : budget.p].T @ factors[:, budget.p :]

        return descend(matrix, product, [start])


class VectorBank(FittedFactors):
    """VB-LoRA: LoRA of rank r whose factors consist of mixtures of two vectors of a bank.

    The length b of a vector is the common divisor of p and q that is nearest to √N₀, by ratio.
    """

    def sizes(self, budget: Budget) -> tuple[int, int, int]:
        """Numbers of vectors in the bank, of numbers in a vector, and of mixtures."""
        count, common = budget.random_coefficients, divisors(math.gcd(budget.p, budget.q))
        length = min(common, key=lambda b: abs(math.log(b * b / count)))
        mixtures = (budget.p + budget.q) * budget.r // length
        bank = count // (length + mixtures)
        if bank >= 2:
            return bank, length, mixtures
        raise InvalidArgumentError(
            f"{self.name} needs two vectors of {length} numbers, and weights of both in "
            f"{mixtures} mixtures; r = {budget.r} pays for {count} numbers, so choose p and q "
            f"with a common divisor near {math.sqrt(count):.0f}"
        )

    def parameters(self, budget: Budget) -> int:
        """The bank, and the weights of all its vectors in every mixture."""
        bank, length, mixtures = self.sizes(budget)
        return bank * (length + mixtures)

    def stored_bits(self, budget: Budget) -> float:
        """The bank, and of every mixture a weight and two indices."""
        bank, length, mixtures = self.sizes(budget)
        return (bank * length + mixtures) * budget.value_bits + 2 * mixtures * location_bits(bank)

    def rounds_of(self, matrix: Tensor, budget: Budget, rng: Generator) -> Iterator[Tensor]:
        """A round is some steps of L-BFGS from a normal bank."""
        import torch

        bank, length, count = self.sizes(budget)
        first = rng.integers(bank, size=count)
        second = (first + rng.integers(1, bank, size=count)) % bank
        pairs = torch.from_numpy(np.stack([first, second])).to(matrix.device)
        drawn = torch.from_numpy(rng.standard_normal((bank, length))).to(matrix)
        unit = matrix.square().mean().sqrt()

        def product(vectors: Tensor, weights: Tensor) -> Tensor:
            w = weights.sigmoid()[:, None]
            mixed = w * vectors[pairs[0]] + (1 - w) * vectors[pairs[1]]
            factors = mixed.reshape(budget.r, budget.p + budget.q)
            return unit * factors[:, : budget.p].T @ factors[:, budget.p :]

        return descend(matrix, product, [drawn, drawn.new_zeros(count)])


def fit_diagonals(matrix: Tensor, left: Tensor, right: Tensor) -> Iterator[Tensor]:
    """Fit diag(b) B diag(d) A to a matrix from d = 1."""
    import torch

    tiny = torch.finfo(matrix.dtype).tiny

    def approximation(d: Tensor) -> Tensor:
        rows = (left * d) @ right
        best = rows.detach()
        # The derivative with respect to b vanishes.
        b = (matrix * best).sum(dim=1) / best.square().sum(dim=1).clamp_min(tiny)
        return b[:, None] * rows

    return descend(matrix, approximation, [torch.ones_like(right[:, 0])])


def descend(
    matrix: Tensor, form: Callable[..., Tensor], start: Sequence[Tensor]
) -> Iterator[Tensor]:
    """Fit a form of tensors to a matrix; yield it after every ``_STEPS`` steps of L-BFGS."""
    import torch

    matrix = matrix.detach()
    energy = matrix.square().sum().clamp_min(torch.finfo(matrix.dtype).tiny)
    trained = [tensor.requires_grad_() for tensor in start]
    search = torch.optim.LBFGS(
        trained,
        max_iter=_STEPS,
        tolerance_grad=0,
        tolerance_change=0,
        history_size=_STEPS,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        search.zero_grad()
        with torch.enable_grad():
            error = (form(*trained) - matrix).square().sum() / energy
            error.backward()
        return error.detach()

    while True:
        search.step(loss)
        yield form(*trained).detach()
