r"""Multiplicative adapters: rotations and scalings of the pretrained weights.

The weight is :math:`W_0 + ΔW = f(θ; W_0)`, where f(0; W₀) = W₀ and f multiplies W₀ from the left,
from the right or inside: OFT by :math:`W_0 R`, RoAd by :math:`R W_0`. To first order in θ,

.. math:: ΔW = \sum_k θ_k\, ∂_k f(0; W_0) ,

an element of the tangent space at the identity: W₀ times the derivatives of R, which are skew for
rotations. A ΔW that is small beside W₀ is reached up to its own second order, so that the best fit
is the projection on the tangent space. This has a dimension m, which is at most the count of the
trained numbers and smaller if some of them move W₀ alike.

If the entries of ΔW are independent N(0, 1) and W₀ is independent of it, the expected error is
1 − m/pq exactly, whatever W₀ is. To project a given ΔW, W₀ must be known. If it is not,
independent N(0, 1) entries stand for it. With these, every ΔW retains m/pq of its energy
on average: the mean projector Π commutes with changes of sign of rows and of columns, which change
neither the law of W₀ nor the tangent spaces, and is therefore diagonal in the entries; it commutes
with permutations that carry any entry to any other, and is therefore constant; its trace is m.

A skew Ω has ΔW = W₀Ω = 0 only if its range is in the kernel of W₀, so that normal weights of p rows
leave b(b−1)/2 − c(c−1)/2 dimensions of the b×b skew matrices, with c = max(b − p, 0).
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.random import Generator

from loca_theory._types import Array
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.methods.pretrained.weights import PretrainedFamily

if TYPE_CHECKING:
    from torch import Tensor

Tangent: TypeAlias = "Callable[[Tensor], Tensor]"
"""The linear map from trained numbers, as a vector, to ΔW."""

_STEPS = 10_000  # of LSQR
_NOT_CONVERGED = 7  # what LSQR returns then


class Multiplicative(PretrainedFamily, ABC):
    """Base class; a method overrides :meth:`tangent`, :meth:`parameters` and :meth:`dimension`."""

    @abstractmethod
    def tangent(self, weights: Tensor, budget: Budget, rng: Generator) -> tuple[Tangent, int]:
        """The map from numbers to ΔW at the identity, and how many numbers it takes."""

    def fit(self, matrix: Tensor, budget: Budget, rng: Generator) -> Tensor:
        """The projection on the tangent space."""
        weights = self.weights_like(matrix, rng)
        return projection(matrix, *self.tangent(weights, budget, rng))


def projection(matrix: Tensor, tangent: Tangent, count: int) -> Tensor:
    """Project a matrix on the image of a linear map, by LSQR (C. Paige and M. Saunders, 1982)."""
    import torch
    from scipy.sparse.linalg import LinearOperator, lsqr

    origin = matrix.new_zeros(count, requires_grad=True)
    with torch.enable_grad():
        image = tangent(origin)

    def tensor(values: Array) -> Tensor:
        return torch.from_numpy(values).to(matrix).flatten()

    def forward(numbers: Array) -> Array:
        return tangent(tensor(numbers)).detach().flatten().cpu().double().numpy()

    def adjoint(change: Array) -> Array:
        weight = tensor(change).view_as(image)
        gradient = torch.autograd.grad(image, origin, weight, retain_graph=True)[0]
        return gradient.cpu().double().numpy()

    operator = LinearOperator((matrix.numel(), count), forward, adjoint, dtype=np.float64)
    target = matrix.detach().flatten().cpu().double().numpy()
    rounding = torch.finfo(matrix.dtype).eps
    # Directions whose singular values are rounding errors of 0 are not reached.
    largest = 1 / (max(matrix.shape) * rounding)
    numbers, reason, *_ = lsqr(
        operator, target, atol=rounding, btol=rounding, conlim=largest, iter_lim=_STEPS
    )
    if reason == _NOT_CONVERGED:
        warnings.warn(
            f"a projection did not converge in {_STEPS:,} steps, because the pretrained weights "
            "are badly conditioned; it retains at least what is returned",
            stacklevel=2,
        )
    return tangent(tensor(numbers)).detach()
