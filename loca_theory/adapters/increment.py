r"""ΔW = α Cᵀ S(a, l) D as a differentiable function of a and l.

The backward pass computes Z = C G Dᵀ from G = ∂L/∂ΔW. The gradients follow from Z:
∂L/∂a_n = α Z[l_n], and ∂L/∂l_n by differences
(:func:`~loca_theory.locations.gradient.location_gradient`).
"""

from __future__ import annotations

from typing import Any

import torch

from loca_theory.adapters.kernels import reader
from loca_theory.locations.gradient import LocationGradient, location_gradient
from loca_theory.transforms import dct2, idct2


def increment(
    coefficients: torch.Tensor,
    locations: torch.Tensor | None,
    indices: torch.Tensor,
    shape: tuple[int, int],
    scaling: float,
    rule: LocationGradient,
) -> torch.Tensor:
    r""":math:`\Delta W = \alpha\, C^\top S(a, l)\, D` of shape (p, q).

    Args:
        coefficients: a, (B,), float32 or float64.
        locations: Continuous locations (B, 2), in units of locations, which receive a gradient;
            None if they are fixed. Their values are not used, but ``indices``.
        indices: Integer locations in use, (B, 2).
        shape: (p, q).
        scaling: α.
        rule: Difference rule of the location gradient.
    """
    if locations is None:
        spectrum = _scattered(coefficients, indices, shape)
    else:
        spectrum = _Scatter.apply(coefficients, locations, indices, shape, rule)
    inverse = _opaque_idct2 if torch.compiler.is_compiling() else idct2
    return scaling * inverse(spectrum)


def _scattered(a: torch.Tensor, indices: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    p, q = shape
    return a.new_zeros(p * q).index_add(0, _flat(indices, q), a).view(p, q)


def _flat(indices: torch.Tensor, q: int) -> torch.Tensor:
    return indices[:, 0].long() * q + indices[:, 1]


class _Scatter(torch.autograd.Function):
    """S(a, l), whose gradient Z is read at the locations and next to them."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> torch.Tensor:
        a, _, indices, ctx.shape, ctx.rule = inputs
        ctx.save_for_backward(a, indices)
        return _scattered(a, indices, ctx.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        (z,), (a, indices) = gradients, ctx.saved_tensors
        sample = reader(z, indices, _flat(indices, ctx.shape[1]), has_neighbours=True)
        of_l = location_gradient(ctx.rule, sample, a, indices, ctx.shape)
        return sample(0, 0), of_l, None, None, None


@torch.library.custom_op("loca_theory::idct2", mutates_args=())
def _opaque_idct2(spectrum: torch.Tensor) -> torch.Tensor:
    """The inverse transform as one operator of compiled code."""
    return idct2(spectrum)


@torch.library.custom_op("loca_theory::dct2", mutates_args=())
def _opaque_dct2(g: torch.Tensor) -> torch.Tensor:
    return dct2(g)


@_opaque_idct2.register_fake
@_opaque_dct2.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


_opaque_idct2.register_autograd(lambda _, g: _opaque_dct2(g.contiguous()))
