r"""ΔW = α Cᵀ S(a, l) D as a differentiable operator that also yields the location gradient.

Its backward pass computes Z = C G Dᵀ from G = ∂L/∂ΔW. The gradients follow from Z:
∂L/∂a_n = α Z[l_n], and ∂L/∂l_n by differences
(:func:`~loca_theory.locations.gradient.location_gradient`). The operator is opaque to
``torch.compile``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch

from loca_theory.adapters.kernels import Gradients, empty_gradients, form, from_dense
from loca_theory.adapters.pattern import SparsityPattern
from loca_theory.locations.gradient import LocationGradient

_PATTERN = len(SparsityPattern._fields)
Materialised = Literal["dense", "fft", "sparse"]


def increment(
    coefficients: torch.Tensor,
    locations: torch.Tensor | None,
    indices: torch.Tensor,
    pattern: SparsityPattern,
    *,
    shape: tuple[int, int],
    scaling: float,
    rule: LocationGradient,
    implementation: Materialised,
) -> torch.Tensor:
    r""":math:`\Delta W = \alpha\, C^\top S(a, l)\, D` of shape (p, q).

    Args:
        coefficients: a, (B,), float32 or float64.
        locations: Continuous locations (B, 2), in units of locations, which receive a gradient;
            None if they are fixed. The operator does not use their values, but ``indices``.
        indices: Integer locations in use, (B, 2).
        pattern: The same locations as a :class:`~loca_theory.adapters.pattern.SparsityPattern`.
        shape: (p, q).
        scaling: α.
        rule: Difference rule of the location gradient.
        implementation: ``dense``, products with C and D; ``fft``, scatter and fast inverse;
            ``sparse``, S D as a sparse product and only the occupied rows of C. The backward pass
            uses the same implementation.
    """
    p, q = shape
    return _increment(
        coefficients, locations, indices, list(pattern), p, q, scaling, rule, implementation
    )


@torch.library.custom_op("loca_theory::increment", mutates_args=())
def _increment(
    coefficients: torch.Tensor,
    locations: torch.Tensor | None,
    indices: torch.Tensor,
    pattern: Sequence[torch.Tensor],
    p: int,
    q: int,
    scaling: float,
    rule: str,
    implementation: str,
) -> torch.Tensor:
    del locations, rule
    return form(coefficients * scaling, indices, SparsityPattern(*pattern), p, q, implementation)


@_increment.register_fake
def _(coefficients, locations, indices, pattern, p, q, scaling, rule, implementation):  # noqa: ARG001
    return coefficients.new_empty(p, q)


@torch.library.custom_op("loca_theory::increment_backward", mutates_args=())
def _increment_backward(
    g: torch.Tensor,
    coefficients: torch.Tensor,
    indices: torch.Tensor,
    pattern: Sequence[torch.Tensor],
    scaling: float,
    rule: str,
    implementation: str,
    needs: Sequence[bool],
) -> Gradients:
    s = SparsityPattern(*pattern)
    return from_dense(g, coefficients, indices, s, scaling, rule, implementation, needs)


@_increment_backward.register_fake
def _(g, coefficients, indices, pattern, scaling, rule, implementation, needs):  # noqa: ARG001
    return empty_gradients(coefficients, needs)


def _increment_setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    del output
    coefficients, locations, indices, pattern, _, _, scaling, rule, implementation = inputs
    needs_l = locations is not None and ctx.needs_input_grad[1]
    ctx.needs = [False, ctx.needs_input_grad[0], needs_l]
    ctx.save_for_backward(coefficients, indices, *pattern)
    ctx.rest = (scaling, rule, implementation)


def _increment_differentiate(ctx: Any, g: torch.Tensor) -> tuple[Any, ...]:
    coefficients, indices, *pattern = ctx.saved_tensors
    found = _increment_backward(
        g.contiguous(), coefficients, indices, pattern, *ctx.rest, ctx.needs
    )
    wanted = [g if need else None for g, need in zip(found, ctx.needs[1:], strict=True)]
    return *wanted, None, [None] * _PATTERN, None, None, None, None, None


_increment.register_autograd(_increment_differentiate, setup_context=_increment_setup)
