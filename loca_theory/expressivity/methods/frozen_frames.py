r"""Linear families between frozen frames: LoRA-XS, TinyLoRA, LoRA-FA and MiCA.

What is frozen follows from the pretrained weights or from a seed, and knows as little of W as
random vectors, which are used here.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from numpy.random import Generator

from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.laws.first_step import (
    LORA_SCALING,
    StepSize,
    of_low_rank,
    of_orthogonal_atoms,
)
from loca_theory.expressivity.methods.fitted import SeededFit
from loca_theory.expressivity.methods.linear_families import IsotropicFamily
from loca_theory.expressivity.random_choices import random_factors

if TYPE_CHECKING:
    from torch import Tensor


class FrozenFrames(SeededFit, IsotropicFamily):
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

    def fit(self, matrix: Tensor, budget: Budget, rng: Generator) -> Tensor:
        """The projection on both frames."""
        left, right = _frames(matrix, self.side(budget), rng)
        return left @ (left.T @ matrix @ right) @ right.T


class RandomCores(FrozenFrames):
    r"""TinyLoRA: :math:`ΔW = U (\sum_k v_k P_k) V^\top` with trained v and frozen random cores P_k.

    The s×s cores have independent normal entries, and U and V are orthonormal frames; PEFT scales
    these by the roots of singular values. All numbers of the budget are trained, at most
    min(p, q)², and s is the smallest side with s² ≥ m, at which they are independent. A smaller
    side reaches s² dimensions only: PEFT's defaults, 64 numbers and s = 2, reach 4 of one matrix.
    """

    def parameters(self, budget: Budget) -> int:
        """One number per random core."""
        return min(budget.random_coefficients, budget.p**2, budget.q**2)

    def side(self, budget: Budget) -> int:
        """The side s of the cores."""
        return math.isqrt(self.parameters(budget) - 1) + 1

    def fit(self, matrix: Tensor, budget: Budget, rng: Generator) -> Tensor:
        """The projection on the span of the cores.

        The complement of the span of m normal vectors has the law of the span of s² − m, fewer than
        2s, which are drawn in their place.
        """
        import torch

        side = self.side(budget)
        left, right = _frames(matrix, side, rng)
        missing = rng.standard_normal((side**2, side**2 - self.parameters(budget)))
        complement = torch.linalg.qr(torch.from_numpy(missing).to(matrix))[0]
        core = (left.T @ matrix @ right).flatten()
        core = core - complement @ (complement.T @ core)
        return left @ core.unflatten(0, (side, side)) @ right.T


@dataclass(frozen=True)
class OneFactor(SeededFit, IsotropicFamily):
    """LoRA with one factor frozen: ΔW = BA of the largest inner rank that the budget pays for.

    LoRA-FA trains B beside a random A, MiCA trains A beside the minor left singular vectors of the
    pretrained weights, as B. Of independent entries these know as little as random vectors, which
    are used here.

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

    def fit(self, matrix: Tensor, budget: Budget, rng: Generator) -> Tensor:
        """The projection on the span of the frozen factor."""
        left, right = _frames(matrix, self.rank(budget), rng)
        return matrix @ right @ right.T if self.trains_left else left @ (left.T @ matrix)

    def _sides(self, budget: Budget) -> tuple[int, int]:
        """Length of the vectors that are trained, and of those that are frozen."""
        return (budget.p, budget.q) if self.trains_left else (budget.q, budget.p)


def _frames(matrix: Tensor, side: int, rng: Generator) -> tuple[Tensor, Tensor]:
    """Random orthonormal columns of length p, and of length q."""
    import torch

    left, right = random_factors(matrix, side, rng)
    return torch.linalg.qr(left)[0], torch.linalg.qr(right.T)[0]
