r"""Linear families between frozen frames: LoRA-XS, TinyLoRA, LoRA-FA and MiCA.

The frames of LoRA-XS, TinyLoRA and MiCA are singular vectors of the pretrained weights. If these
are not known, random vectors stand for them.
"""

from __future__ import annotations

import math
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
from loca_theory.expressivity.methods.pretrained.weights import PretrainedFamily
from loca_theory.expressivity.random_choices import random_factors

if TYPE_CHECKING:
    from torch import Tensor


class FrozenFrames(PretrainedFamily):
    """LoRA-XS: ΔW = U C Vᵀ with a trained s×s core C between leading singular vectors of W₀.

    The side s is the largest that the budget pays for, at most min(p, q).
    """

    def parameters(self, budget: Budget) -> int:
        """The core."""
        return self.side(budget) ** 2

    def side(self, budget: Budget) -> int:
        """The side s of the core."""
        return min(math.isqrt(budget.random_coefficients), budget.p, budget.q)

    def fit(self, matrix: Tensor, budget: Budget, rng: Generator) -> Tensor:
        """The projection on both frames."""
        u, _, v = self.frames(matrix, self.side(budget), rng)
        return u @ (u.T @ matrix @ v) @ v.T

    def frames(self, matrix: Tensor, side: int, rng: Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Orthonormal U (p×s), the s singular values and V (q×s); random frames have equal ones.

        There are fewer than s if the rank of W₀ is smaller.
        """
        import torch

        factors = self.known_factors(matrix)
        if factors is None:
            u, v = _random_frames(matrix, side, rng)
            return u, torch.ones(side).to(matrix), v
        u, values, vh = factors.leading(side)
        return u, values, vh.T


class RandomCores(FrozenFrames):
    r"""TinyLoRA: :math:`ΔW = U S (\sum_k v_k P_k) S V^\top` with trained v and random cores P_k.

    The s×s cores have independent normal entries, U and V are leading singular vectors of W₀, and
    S² their singular values. All numbers of the budget are trained, at most min(p, q)², and s is
    the smallest side with s² ≥ m, at which they are independent. A smaller side reaches s²
    dimensions only: PEFT's defaults, 64 numbers and s = 2, reach 4 of one matrix.
    """

    def parameters(self, budget: Budget) -> int:
        """One number per random core."""
        return min(budget.random_coefficients, budget.p**2, budget.q**2)

    def side(self, budget: Budget) -> int:
        """The side s of the cores."""
        return math.isqrt(self.parameters(budget) - 1) + 1

    @property
    def is_random(self) -> bool:
        """Always, because the cores are."""
        return True

    def fit(self, matrix: Tensor, budget: Budget, rng: Generator) -> Tensor:
        """The projection on the span of the scaled cores.

        The complement of the span of m normal vectors has the law of the span Z of s² − m, fewer
        than 2s, which are drawn in their place; that of the scaled cores S P S has S⁻¹ Z S⁻¹.
        """
        import torch

        side = self.side(budget)
        u, values, v = self.frames(matrix, side, rng)
        core = (u.T @ matrix @ v).flatten()
        # A smaller rank k of W₀ leaves k² < m entries, all of which the cores reach.
        if len(values) == side:
            missing = rng.standard_normal((side**2, side**2 - self.parameters(budget)))
            scale = (values[:, None] * values).sqrt().flatten()
            complement = torch.linalg.qr(torch.from_numpy(missing).to(matrix) / scale[:, None])[0]
            core = core - complement @ (complement.T @ core)
        return u @ core.view(len(values), len(values)) @ v.T


class TrainedLeft(SeededFit, IsotropicFamily):
    """LoRA-FA: ΔW = BA with a trained B and a random A, of the largest rank that is paid for."""

    def parameters(self, budget: Budget) -> int:
        """B."""
        return self.rank(budget) * budget.p

    def rank(self, budget: Budget) -> int:
        """The inner rank."""
        return min(budget.random_coefficients // budget.p, budget.q)

    def first_step(self, budget: Budget) -> StepSize:
        """Of B, which starts at 0, with α = 2r."""
        return of_low_rank(budget.p, budget.q, self.rank(budget), LORA_SCALING)

    def fit(self, matrix: Tensor, budget: Budget, rng: Generator) -> Tensor:
        """The projection on the rows of A."""
        v = _random_frames(matrix, self.rank(budget), rng)[1]
        return matrix @ v @ v.T


class MinorVectors(PretrainedFamily):
    """MiCA: ΔW = BA with a trained A and the last left singular vectors of W₀ as B.

    The inner rank is the largest that the budget pays for, at most min(p, q).
    """

    def parameters(self, budget: Budget) -> int:
        """A."""
        return self.rank(budget) * budget.q

    def rank(self, budget: Budget) -> int:
        """The inner rank."""
        return min(budget.random_coefficients // budget.q, budget.p, budget.q)

    def first_step(self, budget: Budget) -> StepSize:
        """Of A, which starts at 0, with α = 2r; B is orthonormal."""
        return of_orthogonal_atoms(self.parameters(budget), LORA_SCALING)

    def fit(self, matrix: Tensor, budget: Budget, rng: Generator) -> Tensor:
        """The projection on the columns of B."""
        rank, factors = self.rank(budget), self.known_factors(matrix)
        minor = _random_frames(matrix, rank, rng)[0] if factors is None else factors.u[:, -rank:]
        return minor @ (minor.T @ matrix)


def _random_frames(matrix: Tensor, side: int, rng: Generator) -> tuple[Tensor, Tensor]:
    """Random orthonormal columns of length p, and of length q."""
    import torch

    left, right = random_factors(matrix, side, rng)
    return torch.linalg.qr(left)[0], torch.linalg.qr(right.T)[0]
