r"""Low rank of a rearranged matrix: blocks, and one Kronecker product.

- **GraLoRA** divides W into k×k blocks and approximates each by rank r/k. The blocks of a Gaussian
  matrix are Gaussian, so the expected error is LoRA's for a (p/k)×(q/k) matrix at rank r/k.
- **BD-LoRA** divides W into k groups of rows; the expected error is LoRA's for a (p/k)×q matrix.
- **LoKr** with full factors is A⊗B. Its entries, ordered by those of A and of B, form the rank-one
  matrix vec(A) vec(B)ᵀ, and so does W form a matrix with independent entries (C. Van Loan and
  N. Pitsianis, 1993). The expected error is LoRA's at rank 1 for a matrix of shape
  (entries of A)×(entries of B).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from loca_theory._types import Array
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Accounting, Budget
from loca_theory.expressivity.laws.bidiagonal import sample_leading_eigenvalues
from loca_theory.expressivity.laws.first_step import StepSize
from loca_theory.expressivity.methods.engine import Engine
from loca_theory.expressivity.methods.linear_families import blocks_of, divisors, joined
from loca_theory.expressivity.methods.low_rank import LowRank
from loca_theory.expressivity.methods.method import Budgets, NamedMethod, OptionalRng

if TYPE_CHECKING:
    from torch import Tensor

_LOW_RANK = LowRank("LoRA")


class LowRankInside(NamedMethod, ABC):
    """Base class of methods whose error is that of LoRA for a smaller or rearranged matrix."""

    @abstractmethod
    def inner(self, budget: Budget) -> Budget:
        """Shape and rank of that matrix."""

    def engines(self, budget: Budget) -> frozenset[Engine]:
        """Those of LoRA inside."""
        engines = super().engines(budget)
        return engines & _LOW_RANK.engines(self.inner(budget)) if engines else engines

    def expected_errors(self, budgets: Budgets) -> Array:
        """The expected errors of LoRA inside."""
        errors = [_LOW_RANK.expected_errors([self.inner(budget)]) for budget in budgets]
        return np.concatenate(errors)

    def limit(self, budget: Budget) -> float:
        """The limit of LoRA inside."""
        return _LOW_RANK.limit(self.inner(budget))


@dataclass(frozen=True)
class BlockLowRank(LowRankInside):
    """GraLoRA: the best approximation of rank r/k of every block of a k×k grid.

    Attributes:
        k: Blocks per side; must divide p, q and r.
    """

    _: KW_ONLY
    k: int = 2

    def parameters(self, budget: Budget) -> int:
        """The factors of all blocks."""
        block = self.inner(budget)
        return _count(budget, block) * (block.p + block.q) * block.r

    def first_step(self, budget: Budget) -> StepSize:
        """Of LoRA in each of the blocks."""
        block = self.inner(budget)
        step, count = _LOW_RANK.first_step(block), _count(budget, block)
        return StepSize(math.sqrt(count) * step.frobenius, count * step.decrease)

    def approximate(self, matrix: Tensor, budget: Budget, rng: OptionalRng = None) -> Tensor:
        """The truncated singular value decomposition of every block."""
        import torch

        block = self.inner(budget)
        u, s, vh = torch.linalg.svd(blocks_of(matrix, block.p, block.q), full_matrices=False)
        r = block.r
        return joined((u[..., :r] * s[..., None, :r]) @ vh[..., :r, :])

    def retained_energies(self, matrix: Tensor, budgets: Budgets, rng: OptionalRng = None) -> Array:
        """Sums of the largest squared singular values of the blocks."""
        import torch

        block = self.inner(budgets[0])
        blocks = blocks_of(matrix, block.p, block.q)
        energies = torch.linalg.svdvals(blocks).square().double().sum(dim=(0, 1)).cpu().numpy()
        return np.array([energies[: self.inner(budget).r].sum() for budget in budgets])

    def expected_errors(self, budgets: Budgets) -> Array:
        """The expected errors of LoRA for one block."""
        return _LOW_RANK.expected_errors([self.inner(budget) for budget in budgets])

    def sample(self, budgets: Budgets, rng: np.random.Generator) -> Array:
        """From the bidiagonal models of the blocks, relative to the draw's own ‖W‖²."""
        blocks = [self.inner(budget) for budget in budgets]
        ranks = [block.r for block in blocks]
        retained, energy = np.zeros(max(ranks)), 0.0
        for _ in range(_count(budgets[0], blocks[0])):
            # A stream for each block, because the rank decides how much is consumed.
            stream = np.random.default_rng(rng.integers(1 << 63, size=4))
            values, total = sample_leading_eigenvalues(blocks[0].p, blocks[0].q, max(ranks), stream)
            retained, energy = retained + values, energy + total
        return 1 - np.cumsum(retained)[[rank - 1 for rank in ranks]] / energy

    def inner(self, budget: Budget) -> Budget:
        """The budget of one block."""
        k, p, q, r = self.k, budget.p, budget.q, budget.r
        divides = k >= 1 and not (p % k or q % k)
        if divides and not r % k:
            return replace(budget, p=p // k, q=q // k, r=r // k)
        existing = ", ".join(map(str, divisors(math.gcd(p, q, r))))
        way_out = f"k may be {existing}: BlockLowRank(name, k=...)"
        if divides:
            way_out = f"choose a multiple of {k} for r"
        raise InvalidArgumentError(
            f"{self.name} needs p, q and r divisible by k = {k}, not {p}x{q} and r = {r}; {way_out}"
        )


class BlockDiagonalFactor(BlockLowRank):
    """BD-LoRA: LoRA whose B has k blocks on its diagonal.

    So k groups of p/k rows of W have factors of their own, of the largest rank that the budget pays
    for, at p + kq numbers per rank. The best approximation is that of every group.

    Attributes:
        k: Number of blocks; must divide p.
    """

    def inner(self, budget: Budget) -> Budget:
        """The budget of one group of rows."""
        k, p, q = self.k, budget.p, budget.q
        rank = min(budget.random_coefficients // (p + k * q), p // k, q)
        if rank and not p % k:
            return replace(budget, p=p // k, r=rank, accounting=Accounting.PAPER)
        raise InvalidArgumentError(
            f"{self.name} needs p divisible by k = {k} and {p + k * q} numbers, not p = "
            f"{p} and the {budget.random_coefficients} of r = {budget.r}; choose a larger r, or "
            "another shape"
        )


class Kronecker(LowRankInside):
    """LoKr with full factors: the best A⊗B.

    A has a×c entries and B (p/a)×(q/c), where a divides p, c divides q, and A is the smaller
    factor. Among the shapes that the budget pays for, the one with the most trained numbers is
    used; of equals, the one whose A is the closest to a square.
    """

    def parameters(self, budget: Budget) -> int:
        """The entries of both factors."""
        small = math.prod(self.factor(budget))
        return small + budget.p * budget.q // small

    def factor(self, budget: Budget) -> tuple[int, int]:
        """Rows and columns of A."""
        sides = _factor(budget.p, budget.q, budget.random_coefficients)
        if sides:
            return sides
        a, c = _factor(budget.p, budget.q, budget.p + budget.q) or (budget.p, 1)
        cost = a * c + budget.p * budget.q // (a * c)
        raise InvalidArgumentError(
            f"{self.name} needs {cost} numbers for factors of {a}x{c} and "
            f"{budget.p // a}x{budget.q // c}; r = {budget.r} pays for "
            f"{budget.random_coefficients}, so choose a larger r"
        )

    def approximate(self, matrix: Tensor, budget: Budget, rng: OptionalRng = None) -> Tensor:
        """The best rank-one approximation of the rearranged matrix."""
        import torch

        a, c = self.factor(budget)
        u, s, vh = torch.linalg.svd(self._rearranged(matrix, budget), full_matrices=False)
        product = s[0] * u[:, :1] * vh[0]
        return joined(product.unflatten(0, (a, c)).unflatten(2, (budget.p // a, budget.q // c)))

    def retained_energies(self, matrix: Tensor, budgets: Budgets, rng: OptionalRng = None) -> Array:
        """The largest squared singular value of the rearranged matrix."""
        import torch

        rearranged = (self._rearranged(matrix, budget) for budget in budgets)
        return np.array([float(torch.linalg.matrix_norm(matrix, 2)) ** 2 for matrix in rearranged])

    def sample(self, budgets: Budgets, rng: np.random.Generator) -> Array:
        """From the bidiagonal model of the rearranged matrix."""
        seed = rng.integers(1 << 63, size=4)
        inner = [self.inner(budget) for budget in budgets]
        draws = [_LOW_RANK.sample([budget], np.random.default_rng(seed)) for budget in inner]
        return np.concatenate(draws)

    def inner(self, budget: Budget) -> Budget:
        """The rearranged matrix, at rank 1."""
        small = math.prod(self.factor(budget))
        return Budget(small, budget.p * budget.q // small, 1)

    def _rearranged(self, matrix: Tensor, budget: Budget) -> Tensor:
        """A row for every entry of A, a column for every entry of B."""
        a, c = self.factor(budget)
        return blocks_of(matrix, budget.p // a, budget.q // c).flatten(2).flatten(0, 1)


def _count(budget: Budget, block: Budget) -> int:
    """Number of blocks of a matrix."""
    return budget.p * budget.q // (block.p * block.q)


@lru_cache(maxsize=1024)
def _factor(p: int, q: int, count: int) -> tuple[int, int] | None:
    # The cost falls as A grows: the smallest A that the budget pays for costs the most.
    shapes = (
        (a * c, abs(a - c), a, c)
        for a in divisors(p)
        for c in divisors(q)
        if (a * c) ** 2 <= p * q and a * c + p * q // (a * c) <= count
    )
    smallest = min(shapes, default=None)
    return smallest and smallest[2:]
