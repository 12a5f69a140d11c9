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
    StepSize,
    of_orthogonal_atoms,
)
from loca_theory.expressivity.methods.coordinates.coordinate_method import prefix_sums
from loca_theory.expressivity.methods.method import Budgets, NamedMethod, OptionalRng, squared_norm

if TYPE_CHECKING:
    from torch import Tensor


class LinearFamily(NamedMethod, ABC):
    """Base class; a family overrides :meth:`parameters` and :meth:`approximate`, the projection.

    If its trained numbers are not independent, it overrides :meth:`dimension` too.
    """

    @abstractmethod
    def parameters(self, budget: Budget) -> int:
        """Count the trained numbers."""

    def dimension(self, budget: Budget) -> int:
        """The dimension m of the image; the trained numbers, unless some are redundant."""
        return self.parameters(budget)

    def expected_errors(self, budgets: Budgets) -> Array:
        """1 − m/pq."""
        return np.array([self.limit(budget) for budget in budgets])

    def limit(self, budget: Budget) -> float:
        """The same as the expected error."""
        return 1 - self.dimension(budget) / (budget.p * budget.q)

    def sample(self, budgets: Budgets, rng: np.random.Generator) -> Array:
        """From χ²_m variables."""
        counts = [self.dimension(budget) for budget in budgets]
        energies = rng.standard_normal(max(counts)) ** 2
        return 1 - prefix_sums(energies, counts) / (budgets[0].p * budgets[0].q)


class IsotropicFamily(LinearFamily, ABC):
    """A linear family with a random map, which retains m/pq of the energy of every W on average."""

    def mean_retained_energies(
        self, matrix: Tensor, budgets: Budgets, rng: OptionalRng = None
    ) -> Array:
        """The fraction m/pq of the energy."""
        return squared_norm(matrix) * (1 - self.expected_errors(budgets))


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
        smallest = -(-p * q // budget.random_coefficients)
        common = ", ".join(map(str, divisors(math.gcd(p, q))))
        way_out = f"the common divisors are {common}; raise r, or choose another shape"
        if existing:
            way_out = f"choose from {', '.join(map(str, existing))}"
        raise InvalidArgumentError(
            f"{self.name} needs a block size that divides {p} and {q} and is at least {smallest} "
            f"at r = {budget.r}: {way_out}"
        )

    def approximate(self, matrix: Tensor, budget: Budget, rng: OptionalRng = None) -> Tensor:
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

    def approximate(self, matrix: Tensor, budget: Budget, rng: OptionalRng = None) -> Tensor:
        """The mean over the columns of each residue."""
        import torch

        period = self.period(budget)
        residue = torch.arange(budget.q, device=matrix.device) % period
        sums = matrix.new_zeros(budget.p, period).index_add_(1, residue, matrix)
        return (sums / residue.bincount(minlength=period))[:, residue]


def blocks_of(matrix: Tensor, rows: int, columns: int) -> Tensor:
    """Blocks of a number of rows and columns, shape (p/rows, q/columns, rows, columns)."""
    return matrix.unflatten(0, (-1, rows)).unflatten(2, (-1, columns)).transpose(1, 2)


def joined(blocks: Tensor) -> Tensor:
    """The matrix of these blocks."""
    return blocks.transpose(1, 2).flatten(2).flatten(0, 1)


def divisors(n: int) -> list[int]:
    """The divisors of a number, the smallest first."""
    return [d for d in range(1, n + 1) if n % d == 0]
