"""Adapters that rotate and scale the pretrained weights: OFT, BOFT, HRA, RoAd and PSOFT.

See :mod:`~loca_theory.expressivity.methods.pretrained.multiplicative` for what they reach.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from numpy.random import Generator

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.methods.linear_families import divisors
from loca_theory.expressivity.methods.pretrained.multiplicative import Multiplicative, Tangent
from loca_theory.expressivity.methods.pretrained.weights import decomposed

if TYPE_CHECKING:
    from torch import Tensor

_GROUP = 64  # of RoAd's outputs, by default in PEFT


class BlockRotation(Multiplicative):
    """OFT: W₀R with b×b rotations on the diagonal of R, of the largest b that the budget pays for.

    The b(b − 1)/2 numbers of a block are the entries of a skew matrix.
    """

    def cost(self, budget: Budget, b: int) -> int:
        """Trained numbers with blocks of a size."""
        return budget.q * (b - 1) // 2

    def block(self, budget: Budget) -> int:
        """The block size b, which divides q."""
        numbers, sizes = budget.random_coefficients, divisors(budget.q)[1:]
        paid = [b for b in sizes if self.cost(budget, b) <= numbers]
        if paid:
            return paid[-1]
        raise InvalidArgumentError(
            f"{self.name} needs a block size of at least 2 that divides q = {budget.q} "
            f"and that the {numbers} numbers of r = {budget.r} pay for; choose a larger r or q"
        )

    def parameters(self, budget: Budget) -> int:
        """As many as in PEFT."""
        return self.cost(budget, self.block(budget))

    def dimension(self, budget: Budget) -> int:
        """Of every block, the skew matrices that move W₀."""
        b = self.block(budget)
        return budget.q // b * (math.comb(b, 2) - math.comb(max(b - budget.p, 0), 2))

    def tangent(self, weights: Tensor, budget: Budget, rng: Generator) -> tuple[Tangent, int]:
        """W₀Ω with skew blocks on the diagonal of Ω."""
        import torch

        b = self.block(budget)
        blocks = weights.unflatten(1, (-1, b)).transpose(0, 1)
        row, column = torch.triu_indices(b, b, 1, device=weights.device)

        def change(numbers: Tensor) -> Tensor:
            upper = numbers.new_zeros(len(blocks), b, b)
            upper[:, row, column] = numbers.unflatten(0, (len(blocks), -1))
            return (blocks @ (upper - upper.mT)).transpose(0, 1).flatten(1)

        return change, len(blocks) * len(row)


class ScaledBlockRotation(BlockRotation):
    """BOFT as in PEFT, with one factor: diag(s) W₀R, and all b² entries of a block are trained.

    Of these the skew part counts. More butterfly factors need PEFT's extension for CUDA; the
    tangent space of a product is the sum of those of its factors.
    """

    def cost(self, budget: Budget, b: int) -> int:
        """All entries of the blocks, and a scale for each output."""
        return budget.q * b + budget.p

    def dimension(self, budget: Budget) -> int:
        """Rotations and scalings: diag(s)W₀ = W₀Ω implies s_i‖w_i‖² = w_iᵀΩw_i = 0 for rows w_i."""
        return super().dimension(budget) + budget.p

    def tangent(self, weights: Tensor, budget: Budget, rng: Generator) -> tuple[Tangent, int]:
        """W₀Ω + diag(s)W₀."""
        rotate, count = super().tangent(weights, budget, rng)

        def change(numbers: Tensor) -> Tensor:
            return rotate(numbers[:count]) + numbers[count:, None] * weights

        return change, count + budget.p


class Reflections(Multiplicative):
    """HRA: W₀ times Householder reflections, which begin in n pairs of equal vectors u.

    A pair is the identity, and its tangent space that of u vᵀ − v uᵀ for all v: of its 2q numbers,
    fewer than q count. Away from the identity, other directions open at second order.
    """

    def pairs(self, budget: Budget) -> int:
        """The number n of pairs, at most q."""
        count = min(budget.random_coefficients // (2 * budget.q), budget.q)
        if count:
            return count
        raise InvalidArgumentError(
            f"{self.name} needs two reflections, which cost {2 * budget.q} numbers; r = "
            f"{budget.r} pays for {budget.random_coefficients}, so choose a larger r"
        )

    def parameters(self, budget: Budget) -> int:
        """A vector of q numbers per reflection."""
        return 2 * self.pairs(budget) * budget.q

    def dimension(self, budget: Budget) -> int:
        """Skew matrices, without those on the complement of all u or on the kernel of W₀."""
        p, q = budget.p, budget.q
        free = max(q - self.pairs(budget), q - p)
        return math.comb(q, 2) - math.comb(free, 2)

    @property
    def is_random(self) -> bool:
        """Always, because the directions u are."""
        return True

    def tangent(self, weights: Tensor, budget: Budget, rng: Generator) -> tuple[Tangent, int]:
        """W₀ Σ (u vᵀ − v uᵀ), with random orthonormal u, which have the same span."""
        import torch

        n, q = self.pairs(budget), budget.q
        u = torch.linalg.qr(torch.from_numpy(rng.standard_normal((q, n))).to(weights))[0]

        def change(numbers: Tensor) -> Tensor:
            v = numbers.unflatten(0, (n, q))
            return weights @ u @ v - weights @ v.T @ u.T

        return change, n * q


class PairRotation(Multiplicative):
    """RoAd, first variant: every pair of outputs is rotated and scaled, by p numbers in all.

    As in PEFT, an output of the first half of a group of 64 is paired with that of the second half.
    If 64 does not divide p, which PEFT refuses, all p outputs are one group.
    """

    def parameters(self, budget: Budget) -> int:
        """An angle and a scale per pair."""
        if budget.p % 2:
            raise InvalidArgumentError(
                f"{self.name} pairs the outputs, but p = {budget.p} is odd; choose an even p"
            )
        return budget.p

    def tangent(self, weights: Tensor, budget: Budget, rng: Generator) -> tuple[Tangent, int]:
        """Pairs of rows (w, v) become (αw − θv, θw + αv)."""
        import torch

        self.parameters(budget)  # which refuses an odd p
        half = (_GROUP if budget.p % _GROUP == 0 else budget.p) // 2
        w, v = weights.unflatten(0, (-1, 2, half)).unbind(1)

        def change(numbers: Tensor) -> Tensor:
            scale, angle = numbers.unflatten(0, (2, -1, half, 1))
            rows = [scale * w - angle * v, angle * w + scale * v]
            return torch.stack(rows, dim=1).flatten(0, 2)

        return change, budget.p


class PrincipalRotation(Multiplicative):
    """PSOFT: the s largest singular values of W₀ rotated and scaled, U Σ diag(b) R diag(a) Vᵀ.

    Of the two scalings, which move W₀ alike at the identity, one counts.
    """

    def side(self, budget: Budget) -> int:
        """The number s of singular values: the largest with s(s + 3)/2 ≤ N₀, at most min(p, q)."""
        largest = (math.isqrt(9 + 8 * budget.random_coefficients) - 3) // 2
        return min(largest, budget.p, budget.q)

    def parameters(self, budget: Budget) -> int:
        """A skew matrix and two scalings."""
        s = self.side(budget)
        return s * (s + 3) // 2

    def dimension(self, budget: Budget) -> int:
        """A skew matrix and a scaling."""
        return math.comb(self.side(budget) + 1, 2)

    def tangent(self, weights: Tensor, budget: Budget, rng: Generator) -> tuple[Tangent, int]:
        """U Σ X Vᵀ, where X is a skew matrix plus a diagonal."""
        import torch

        factors = self.known_factors(weights) or decomposed(weights)
        u, values, vh = factors.leading(self.side(budget))
        s = len(values)
        row, column = torch.triu_indices(s, s, device=weights.device)

        def change(numbers: Tensor) -> Tensor:
            upper = numbers.new_zeros(s, s)
            upper[row, column] = numbers
            return (u * values) @ (upper - upper.triu(1).T) @ vh

        return change, len(row)
