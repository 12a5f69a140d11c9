"""Methods whose form contains the pretrained weights W₀ of the layer.

Without W₀, random choices stand for what follows from it. They know as little of a matrix with
independent entries, so that its expected error is the same.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.random import Generator

from loca_theory._types import Array
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.methods.fitted import (
    FittedFactors,
    SeededFit,
    TwoProducts,
    refitted,
)
from loca_theory.expressivity.methods.linear_families import IsotropicFamily
from loca_theory.expressivity.methods.method import Budgets, Method, NamedMethod, OptionalRng
from loca_theory.expressivity.random_choices import random_factors

if TYPE_CHECKING:
    from torch import Tensor


class Factors(NamedTuple):
    """Singular vectors and values of the weights: U (p×s), s values, largest first, and Vᵀ."""

    u: Tensor
    values: Tensor
    vh: Tensor

    def leading(self, most: int) -> Factors:
        """The largest, at most so many, without those that are rounding errors of 0."""
        import torch

        sides = max(len(self.u), self.vh.shape[1])
        smallest = sides * torch.finfo(self.values.dtype).eps * self.values[0]
        count = min(most, int((self.values > smallest).count_nonzero()))
        return Factors(self.u[:, :count], self.values[:count], self.vh[:count])


def decomposed(weights: Tensor) -> Factors:
    """The singular value decomposition of a matrix."""
    import torch

    return Factors(*torch.linalg.svd(weights, full_matrices=False))


@dataclass(frozen=True)
class UsesWeights(NamedMethod, ABC):
    """Base class.

    Attributes:
        weights: The pretrained weights W₀, shape (p, q); None if they are not known.
    """

    _: KW_ONLY
    weights: Tensor | None = field(default=None, compare=False, repr=False)

    def known_weights(self, shape: tuple[int, ...]) -> Tensor | None:
        """W₀ if it is known, checked."""
        import torch

        weights = self.weights
        if weights is None:
            return None
        is_tensor = isinstance(weights, torch.Tensor)
        if not is_tensor or weights.shape != shape or not weights.isfinite().all():
            raise InvalidArgumentError(
                f"weights of {self.name} must be a finite {shape[0]}x{shape[1]} tensor, the shape "
                "of the matrix; pass the pretrained weights of its layer"
            )
        return weights

    def weights_like(self, matrix: Tensor, rng: Generator) -> Tensor:
        """W₀ in the type of a matrix; independent N(0, 1) entries if it is not known."""
        import torch

        weights = self.known_weights(matrix.shape)
        if weights is None:
            weights = torch.from_numpy(rng.standard_normal(matrix.shape))
        return weights.to(matrix)

    def known_factors(self, matrix: Tensor) -> Factors | None:
        """The decomposition of W₀, in the type of a matrix, if W₀ is known."""
        if self.known_weights(matrix.shape) is None:
            return None
        return Factors(*(factor.to(matrix) for factor in self._factors))

    @cached_property
    def _factors(self) -> Factors:
        import torch

        weights = torch.as_tensor(self.weights)
        return decomposed(weights.to(torch.promote_types(weights.dtype, torch.float32)))


class PretrainedFamily(UsesWeights, SeededFit, IsotropicFamily, ABC):
    """Base class of linear families whose map depends on W₀."""

    @property
    def is_random(self) -> bool:
        """Whether W₀ is not known, so that random choices stand for it."""
        return self.weights is None

    def mean_retained_energies(
        self, matrix: Tensor, budgets: Budgets, rng: OptionalRng = None
    ) -> Array:
        """The mean over random weights; with known ones, the energy of the projection."""
        if self.weights is None:
            return super().mean_retained_energies(matrix, budgets)
        return self.retained_energies(matrix, budgets, rng or np.random.default_rng(0))


class HadamardOfWeights(UsesWeights, FittedFactors):
    """HiRA: Ŵ = W₀⊙(BA) with trained B (p×r) and A (r×q)."""

    def parameters(self, budget: Budget) -> int:
        """Two factors, as many numbers as LoRA."""
        return (budget.p + budget.q) * budget.r

    def rounds_of(self, matrix: Tensor, budget: Budget, rng: Generator) -> Iterator[Tensor]:
        """A round solves for B and then for A."""
        weights = self.weights_like(matrix, rng)
        _, right = random_factors(matrix, budget.r, rng)
        while True:
            left, right = refitted(matrix, weights, right)
            yield weights * (left @ right)


class SumWithWeights(UsesWeights, TwoProducts):
    """GLoRA: Ŵ = W₀⊙(B₁A₁) + B₂A₂, the products of HiRA and of LoRA.

    Its scalings and shifts of the bias are not counted.
    """

    def rounds_of(self, matrix: Tensor, budget: Budget, rng: Generator) -> Iterator[Tensor]:
        """A round solves for B₁, A₁, B₂ and A₂ in turn."""
        import torch

        weights = self.weights_like(matrix, rng)
        (_, first), (_, second) = (random_factors(matrix, self.rank(budget), rng) for _ in range(2))
        shift, ones = torch.zeros_like(matrix), torch.ones_like(matrix)
        while True:
            left, first = refitted(matrix - shift, weights, first)
            scaled = weights * (left @ first)
            left, second = refitted(matrix - scaled, ones, second)
            shift = left @ second
            yield scaled + shift


def with_weights(method: Method, weights: Tensor | None) -> Method:
    """The method for a layer with these pretrained weights; itself if it does not use them."""
    if weights is None or not isinstance(method, UsesWeights):
        return method
    return replace(method, weights=weights)
