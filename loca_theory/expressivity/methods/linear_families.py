r"""Linear families: ΔW = A(θ) depends linearly on the trained θ, by a map chosen without W.

The best fit is the projection of W on the image of A. If the image has dimension m and the entries
of W are independent N(0, 1), the projection retains m of pq energies on average, whatever A is: the
expected error is exactly 1 − m/pq, and the retained energy is a χ²_m variable.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import numpy as np

from loca_theory._types import Array
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.laws.first_step import (
    LORA_SCALING,
    StepSize,
    of_low_rank,
    of_orthogonal_atoms,
)
from loca_theory.expressivity.methods.coordinates.coordinate_method import prefix_sums
from loca_theory.expressivity.methods.method import Budgets, NamedMethod, Rng, squared_norm
from loca_theory.expressivity.random_choices import random_factors

if TYPE_CHECKING:
    from torch import Tensor


class LinearFamily(NamedMethod, ABC):
    """Base class; a family overrides :meth:`parameters` and :meth:`approximate`, the projection.

    The trained numbers must be independent, so that their number is the dimension m.
    """

    @abstractmethod
    def parameters(self, budget: Budget) -> int:
        """The dimension m."""

    def expected_errors(self, budgets: Budgets) -> Array:
        """1 − m/pq."""
        return np.array([self.limit(budget) for budget in budgets])

    def limit(self, budget: Budget) -> float:
        """The same as the expected error."""
        return 1 - self.parameters(budget) / (budget.p * budget.q)

    def sample(self, budgets: Budgets, rng: np.random.Generator) -> Array:
        """From χ²_m variables."""
        counts = [self.parameters(budget) for budget in budgets]
        energies = rng.standard_normal(max(counts)) ** 2
        return 1 - prefix_sums(energies, counts) / (budgets[0].p * budgets[0].q)


@dataclass(frozen=True)
class BlockCirculant(LinearFamily):
    """C3A: every b×b block of ΔW is circulant, (ΔW)_ij = c_{(i−j) mod b}.

    Attributes:
        block_size: The block size b; None for the smallest common divisor of p and q that the
            budget pays for. The budget pays for b if it has pq/b numbers.
    """

    _: KW_ONLY
    block_size: int | None = None

    def parameters(self, budget: Budget) -> int:
        """One kernel of b numbers per block, pq/b in all."""
        return budget.p * budget.q // self.block(budget)

    def first_step(self, budget: Budget) -> StepSize:
        """Of numbers that are 1/q in b entries of the weight each."""
        norm = math.sqrt(self.block(budget)) / budget.q
        return of_orthogonal_atoms(self.parameters(budget), norm)

    def block(self, budget: Budget) -> int:
        """The block size."""
        p, q = budget.p, budget.q
        existing = [b for b in divisors(math.gcd(p, q)) if p * q <= b * budget.random_coefficients]
        if self.block_size in existing or (self.block_size is None and existing):
            return self.block_size or existing[0]
        least = -(-p * q // budget.random_coefficients)
        msg = f"{self.display_name} needs a block size that divides {p} and {q} and is at least "
        msg += f"{least} at r = {budget.r}: "
        msg += f"choose from {', '.join(map(str, existing))}" if existing else ""
        if not existing:
            common = ", ".join(map(str, divisors(math.gcd(p, q))))
            msg += f"the common divisors are {common}; raise r, or choose another shape"
        raise InvalidArgumentError(msg)

    def approximate(self, matrix: Tensor, budget: Budget, rng: Rng = None) -> Tensor:
        """The mean over each wrapped diagonal of each block."""
        import torch

        b = self.block(budget)
        blocks = blocks_of(matrix, b, b)
        position = torch.arange(b, device=matrix.device)
        shift = (position[:, None] - position) % b
        # Entry (i, s) of ``wrapped`` is the column of row i on wrapped diagonal s; so is its use.
        wrapped = shift.expand(*blocks.shape[:2], b, b)
        kernels = blocks.gather(3, wrapped).mean(dim=2, keepdim=True)
        return joined(kernels.expand(blocks.shape).gather(3, wrapped))


@dataclass(frozen=True)
class RepeatedColumns(LinearFamily):
    """MiSS: the columns of ΔW repeat with period s, so that s columns of p numbers are trained.

    The period is the largest that the budget pays for. Columns beyond the last whole period are the
    first of the next.
    """

    def parameters(self, budget: Budget) -> int:
        """One column of p numbers per residue."""
        return budget.p * self.period(budget)

    def first_step(self, budget: Budget) -> StepSize:
        """Of numbers that are in q/s entries of the weight each, on average."""
        period = self.period(budget)
        return of_orthogonal_atoms(self.parameters(budget), math.sqrt(budget.q / period))

    def period(self, budget: Budget) -> int:
        """The period s."""
        return budget.random_coefficients // budget.p

    def approximate(self, matrix: Tensor, budget: Budget, rng: Rng = None) -> Tensor:
        """The mean over the columns of each residue."""
        import torch

        period = self.period(budget)
        residue = torch.arange(budget.q, device=matrix.device) % period
        sums = matrix.new_zeros(budget.p, period).index_add_(1, residue, matrix)
        return (sums / residue.bincount(minlength=period))[:, residue]


@dataclass(frozen=True)
class FrozenFrames(LinearFamily):
    """LoRA-XS: ΔW = U C Vᵀ with a trained s×s core C between frozen orthonormal frames.

    The method's frames are the leading singular vectors of the pretrained weights. They know as
    little of W as random frames, which are used here. The side s is the largest that the budget
    pays for, at most min(p, q).
    """

    def parameters(self, budget: Budget) -> int:
        """The core."""
        return self.side(budget) ** 2

    def side(self, budget: Budget) -> int:
        """The side s of the core."""
        return min(math.isqrt(budget.random_coefficients), budget.p, budget.q)

    def approximate(self, matrix: Tensor, budget: Budget, rng: Rng = None) -> Tensor:
        """The projection on both frames."""
        left, right = _frames(matrix, self.side(budget), rng)
        return left @ (left.T @ matrix @ right) @ right.T

    def retained_energies(self, matrix: Tensor, budgets: Budgets, rng: Rng = None) -> Array:
        """Smaller cores are the leading parts of the largest."""
        sides = [self.side(budget) for budget in budgets]
        left, right = _frames(matrix, max(sides), rng)
        core = (left.T @ matrix @ right).square().double()
        return np.array([float(core[:side, :side].sum()) for side in sides])

    def mean_retained_energies(self, matrix: Tensor, budgets: Budgets, rng: Rng = None) -> Array:
        """The fraction m/pq of the energy, which is the mean over the frames."""
        energy = squared_norm(matrix)
        return energy * (1 - self.expected_errors(budgets))


@dataclass(frozen=True)
class OneFactor(LinearFamily):
    """LoRA with one factor frozen: ΔW = BA of the largest inner rank that the budget pays for.

    LoRA-FA trains B beside a random A, MiCA trains A beside the minor left singular vectors of the
    pretrained weights, as B. These know as little of W as random vectors, which are used here.

    Attributes:
        trains_left: Whether B, of p rows, is trained, and not A, of q columns.
    """

    _: KW_ONLY
    trains_left: bool

    def parameters(self, budget: Budget) -> int:
        """The trained factor."""
        return self.rank(budget) * self._sides(budget)[0]

    def rank(self, budget: Budget) -> int:
        """The inner rank."""
        trained, frozen = self._sides(budget)
        return min(budget.random_coefficients // trained, frozen)

    def first_step(self, budget: Budget) -> StepSize:
        """Of the trained factor, which starts at 0, with α = 2r."""
        rank = self.rank(budget)
        if self.trains_left:
            return of_low_rank(budget.p, budget.q, rank, LORA_SCALING)
        # The frozen factor is orthonormal.
        return of_orthogonal_atoms(self.parameters(budget), LORA_SCALING)

    def approximate(self, matrix: Tensor, budget: Budget, rng: Rng = None) -> Tensor:
        """The projection on the span of the frozen factor."""
        left, right = _frames(matrix, self.rank(budget), rng)
        return matrix @ right @ right.T if self.trains_left else left @ (left.T @ matrix)

    def retained_energies(self, matrix: Tensor, budgets: Budgets, rng: Rng = None) -> Array:
        """Smaller factors are the leading vectors of the largest."""
        ranks = [self.rank(budget) for budget in budgets]
        left, right = _frames(matrix, max(ranks), rng)
        along = (matrix @ right).T if self.trains_left else left.T @ matrix
        return prefix_sums(along.square().sum(dim=1).double().cpu().numpy(), ranks)

    def mean_retained_energies(self, matrix: Tensor, budgets: Budgets, rng: Rng = None) -> Array:
        """The fraction m/pq of the energy, which is the mean over the frozen factor."""
        return squared_norm(matrix) * (1 - self.expected_errors(budgets))

    def _sides(self, budget: Budget) -> tuple[int, int]:
        """Length of the vectors that are trained, and of those that are frozen."""
        return (budget.p, budget.q) if self.trains_left else (budget.q, budget.p)


def _frames(matrix: Tensor, side: int, rng: Rng) -> tuple[Tensor, Tensor]:
    """Random orthonormal columns of length p, and of length q."""
    import torch

    left, right = random_factors(matrix, side, rng)
    return torch.linalg.qr(left)[0], torch.linalg.qr(right.T)[0]


def blocks_of(matrix: Tensor, rows: int, columns: int) -> Tensor:
    """Blocks of so many rows and columns, shape (p/rows, q/columns, rows, columns)."""
    return matrix.unflatten(0, (-1, rows)).unflatten(2, (-1, columns)).transpose(1, 2)


def joined(blocks: Tensor) -> Tensor:
    """The matrix of these blocks."""
    return blocks.transpose(1, 2).flatten(2).flatten(0, 1)


def divisors(n: int) -> list[int]:
    """The divisors of a number, the smallest first."""
    return [d for d in range(1, n + 1) if n % d == 0]
