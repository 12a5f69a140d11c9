r"""Products of factors without a known best approximation: LoHa and RandLoRA.

Each Ŵ is linear in each of its trained factors. Alternating least squares solves for one factor
after the other, from a random start, until a round gains less than a fraction 10⁻⁶ of the energy.
No step increases the error. The result is a local optimum; the global optimum retains at least as
much.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from loca_theory._types import Array
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.laws.first_step import StepSize, of_hadamard_product
from loca_theory.expressivity.methods.method import Budgets, NamedMethod, OptionalRng, squared_norm
from loca_theory.expressivity.random_choices import random_factors, require_rng

if TYPE_CHECKING:
    from torch import Tensor

_TOLERANCE, _ROUNDS = 1e-6, 1000
_ALPHA = 8  # of LoHa


class SeededFit(NamedMethod, ABC):
    """Base class of methods with random choices; all budgets of a call have the same numbers."""

    @abstractmethod
    def fit(self, matrix: Tensor, budget: Budget, rng: Generator) -> Tensor:
        """The approximation of a matrix."""

    def approximate(self, matrix: Tensor, budget: Budget, rng: OptionalRng = None) -> Tensor:
        """See :meth:`fit`."""
        return self.fit(matrix, budget, np.random.default_rng(self._seed(rng)))

    def retained_energies(self, matrix: Tensor, budgets: Budgets, rng: OptionalRng = None) -> Array:
        """One fit per budget, all from the same random numbers."""
        seed, energy = self._seed(rng), squared_norm(matrix)
        fits = (self.fit(matrix, budget, np.random.default_rng(seed)) for budget in budgets)
        return np.array([energy - squared_norm(matrix - fit) for fit in fits])

    @property
    def is_random(self) -> bool:
        """Whether a fit draws random numbers; one that does not needs no ``rng``."""
        return True

    def _seed(self, rng: OptionalRng) -> NDArray[np.int64]:
        if rng is None and not self.is_random:
            return np.zeros(4, dtype=np.int64)
        return require_rng(rng).integers(1 << 63, size=4)


class FittedFactors(SeededFit, ABC):
    """Base class; a method overrides :meth:`rounds_of`."""

    @abstractmethod
    def rounds_of(self, matrix: Tensor, budget: Budget, rng: Generator) -> Iterator[Tensor]:
        """The approximation after each round of least-squares steps."""

    def fit(self, matrix: Tensor, budget: Budget, rng: Generator) -> Tensor:
        """The approximation of the best round."""
        return best_round(matrix, self.rounds_of(matrix, budget, rng))


def best_round(matrix: Tensor, rounds: Iterator[Tensor]) -> Tensor:
    """The best approximation of a matrix, until a round gains too little."""
    best, energy = matrix.new_zeros(matrix.shape), squared_norm(matrix)
    smallest = energy
    for candidate in islice(rounds, _ROUNDS):
        before, error = smallest, squared_norm(matrix - candidate)
        if error < smallest:
            best, smallest = candidate, error
        if before - smallest <= _TOLERANCE * energy:
            break
    return best


class TwoProducts(FittedFactors, ABC):
    """Base class of methods with two products of rank ⌊r/2⌋, which cost as much as LoRA."""

    def rank(self, budget: Budget) -> int:
        """Rank of each product: each costs as much as LoRA's."""
        rank = budget.random_coefficients // (2 * (budget.p + budget.q))
        if rank:
            return rank
        cost = 2 * (budget.p + budget.q)
        raise InvalidArgumentError(
            f"{self.name} needs two products of rank 1, which cost {cost} numbers; r = "
            f"{budget.r} pays for {budget.random_coefficients}, so choose a larger r"
        )

    def parameters(self, budget: Budget) -> int:
        """Four factors."""
        return 2 * (budget.p + budget.q) * self.rank(budget)


class HadamardOfLowRank(TwoProducts):
    """LoHa: Ŵ = (B₁A₁)⊙(B₂A₂)."""

    def first_step(self, budget: Budget) -> StepSize:
        """Of the factor that starts at 0, with α = 8."""
        rank = self.rank(budget)
        return of_hadamard_product(budget.p, budget.q, rank, _ALPHA / rank)

    def rounds_of(self, matrix: Tensor, budget: Budget, rng: Generator) -> Iterator[Tensor]:
        """A round solves for B₁, A₁, B₂ and A₂ in turn."""
        rank = self.rank(budget)
        (_, first), (left, second) = (random_factors(matrix, rank, rng) for _ in range(2))
        product = left @ second
        while True:
            left, first = refitted(matrix, product, first)
            other = left @ first
            left, second = refitted(matrix, other, second)
            product = left @ second
            yield other * product


class ScaledRandomBases(FittedFactors):
    r"""RandLoRA: :math:`Ŵ = \sum_{n\le N} B_n Λ_n A Γ_n` with frozen random factors.

    With d = min(p, q), the :math:`B_n` (max(p, q)×s) and A (s×d) are frozen, and N = ⌈d/s⌉ makes
    the sum of full rank. The diagonals Λ_n (s numbers) and Γ_n (d numbers) are trained. The rank s
    is the smallest that the budget pays for: a smaller s costs more. If p < q, this is the form of
    Ŵᵀ.
    """

    def rank(self, budget: Budget) -> int:
        """The rank s of each basis."""
        d, count = min(budget.p, budget.q), budget.random_coefficients
        if 2 * d > count:
            raise InvalidArgumentError(
                f"{self.name} needs at least {2 * d} numbers; r = {budget.r} pays for "
                f"{count}, so choose a larger r"
            )
        return next(s for s in range(1, d + 1) if -(-d // s) * (s + d) <= count)

    def parameters(self, budget: Budget) -> int:
        """The diagonals, N(s + d) numbers."""
        s, d = self.rank(budget), min(budget.p, budget.q)
        return -(-d // s) * (s + d)

    def rounds_of(self, matrix: Tensor, budget: Budget, rng: Generator) -> Iterator[Tensor]:
        """A round solves for all Λ_n and then, column by column, for all Γ_n."""
        import torch

        is_wide = budget.p < budget.q
        tall = matrix.T if is_wide else matrix
        s, (height, d) = self.rank(budget), tall.shape
        count = -(-d // s)
        drawn = torch.from_numpy(rng.standard_normal((s, count * height + d))).to(matrix)
        # Column n·s + k of ``bases`` is column k of B_n.
        bases = drawn[:, : count * height].unflatten(1, (count, height)).flatten(0, 1)
        bases = bases.unflatten(0, (s, count)).transpose(0, 1).flatten(0, 1).T
        frozen = drawn[:, count * height :].repeat(count, 1)
        gram, projected = bases.T @ bases, bases.T @ tall
        scales = torch.ones(count, d).to(matrix)
        while True:
            rows = frozen * scales.repeat_interleave(s, dim=0)
            weights = _solved(gram * (rows @ rows.T), (projected * rows).sum(dim=1))
            rows = frozen * weights[:, None]
            # One system per column j: the Gram matrix of the vectors B_n Λ_n a_j.
            half = torch.einsum(
                "nkml,mlj->nkmj",
                gram.unflatten(0, (count, s)).unflatten(2, (count, s)),
                rows.unflatten(0, (count, s)),
            )
            grams = torch.einsum("nkj,nkmj->jnm", rows.unflatten(0, (count, s)), half)
            right = (projected * rows).unflatten(0, (count, s)).sum(dim=1).T
            scales = _solved(grams, right).T
            product = bases @ (rows * scales.repeat_interleave(s, dim=0))
            yield product.T if is_wide else product


def refitted(matrix: Tensor, weights: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Factors B and A of weights⊙(BA): first the best B for the given A, then the best A."""
    left = _best_left(matrix, weights, right)
    return left, _best_left(matrix.T, weights.T, left.T).T


def _best_left(matrix: Tensor, weights: Tensor, right: Tensor) -> Tensor:
    """The B that minimises ‖W − weights⊙(BA)‖; its rows are independent problems."""
    r = len(right)
    products = (right[:, None] * right).flatten(0, 1)
    grams = (weights.square() @ products.T).unflatten(1, (r, r))
    return _solved(grams, (matrix * weights) @ right.T)


def _solved(grams: Tensor, right: Tensor) -> Tensor:
    """Solve normal equations, with a ridge at the resolution of the type for singular ones."""
    import torch

    limits = torch.finfo(grams.dtype)
    trace = grams.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    ridge = (limits.eps * trace + limits.tiny)[..., None, None]
    eye = torch.eye(grams.shape[-1], dtype=grams.dtype, device=grams.device)
    return torch.linalg.solve(grams + ridge * eye, right[..., None])[..., 0]
