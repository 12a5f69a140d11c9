r"""A linear layer with W + ΔW, ΔW = α Cᵀ S(a, l) D, for a frozen W, or with ΔW alone.

The operator is opaque to ``torch.compile`` and is differentiated by hand. The implementation
``implicit`` does not form ΔW. With the spectra of the tokens :math:`\hat x = D x^\top` (q×T) and of
the output's gradient :math:`\hat g = C g^\top` (p×T),

.. math:: y^\top = W x^\top + \alpha\, C^\top (S \hat x), \qquad
          \partial L/\partial x^\top = W^\top g^\top + \alpha\, D^\top (S^\top \hat g), \qquad
          Z = C\,\frac{\partial L}{\partial\Delta W} D^\top = \hat g\, \hat x^\top ,

and only the entries of Z that are needed are computed. This takes four one-dimensional transforms
and three sparse products over the tokens, and nothing of size p×q. The implementation
``materialised`` forms W + ΔW, which costs one transform and no additional product; it computes Z as
above, or as the transform of G = gᵀx. :mod:`loca_theory.adapters.increment` has the gradients.

With x in half precision, everything of S, C and D is computed in the dtype of a. Products of x or g
with ΔW, and gᵀx, are those of half precision: their factors are rounded once, and so is the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

import torch
from torch.autograd.function import once_differentiable

from loca_theory.adapters.costs import sampling_pays
from loca_theory.adapters.kernels import Samples, form, from_dense, token_blocks
from loca_theory.adapters.pattern import SparsityPattern, sparse_product
from loca_theory.locations.gradient import LocationGradient, location_gradient
from loca_theory.transforms.precision import without_autocast
from loca_theory.transforms.transposed import rows_to_spectra, spectra_to_rows

_PATTERN = len(SparsityPattern._fields)


def increment_linear(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    coefficients: torch.Tensor,
    locations: torch.Tensor | None,
    indices: torch.Tensor,
    pattern: SparsityPattern,
    *,
    rows: int,
    scaling: float,
    rule: LocationGradient,
    implementation: Literal["materialised", "implicit"],
) -> torch.Tensor:
    r""":math:`x\,(W + \Delta W)^\top + b` for a frozen W, or :math:`x\,\Delta W^\top`.

    Args:
        x: (..., q), of the dtype of a, or in half precision without ``weight``.
        weight: W, (p, q), of the dtype of x; it gets no gradient. None for zero.
        bias: b, (p,), or None.
        coefficients: a, (B,), float32 or float64; B at most p·q.
        locations: Continuous locations (B, 2), in units of locations, which receive a gradient;
            None if they are fixed. The operator does not use their values, but ``indices``.
        indices: Integer locations in use, (B, 2).
        pattern: The same locations as a :class:`~loca_theory.adapters.pattern.SparsityPattern`.
        rows: p.
        scaling: α.
        rule: Difference rule of the location gradient.
        implementation: ``materialised``, which forms ΔW, or ``implicit``.

    Returns:
        (..., p).
    """
    # FSDP2 warns of outputs that are views.
    tokens = x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
    learns = coefficients.requires_grad or (locations is not None and locations.requires_grad)
    save = torch.is_grad_enabled() and learns
    inputs = tokens, weight, bias, coefficients, locations, indices, list(pattern)
    settings = rows, scaling, rule, implementation, save
    is_compiling = torch.compiler.is_compiling()
    y = _linear_op(*inputs, *settings)[0] if is_compiling else _Linear.apply(*inputs, *settings)
    return y if x.ndim == 2 else y.reshape(*x.shape[:-1], rows)


def _linear(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    coefficients: torch.Tensor,
    locations: torch.Tensor | None,
    indices: torch.Tensor,
    pattern: Sequence[torch.Tensor],
    rows: int,
    scaling: float,
    rule: str,
    implementation: str,
    save: bool,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The output, and what the backward pass needs: the spectra of x, or W + ΔW."""
    del locations, indices, rule
    s, scaled = SparsityPattern(*pattern), coefficients * scaling
    # The products with W + ΔW use the same precision as the other layers of the model.
    with without_autocast(x.device):
        if implementation == "implicit":
            if weight is None:
                y = x.new_zeros(x.shape[0], rows)
            else:
                y = torch.nn.functional.linear(x, weight, bias)
            matrix, spectra = (s.starts, s.columns, scaled[s.order]), []
            for block in token_blocks(x, rows):
                spectra.append(rows_to_spectra(x[block].to(scaled.dtype)))
                y[block] += spectra_to_rows(sparse_product(*matrix, spectra[-1]))
            return y, spectra if save else []
        changed = form(scaled, s, rows, x.shape[1])
        if weight is not None:
            changed += weight
        changed = changed.to(x.dtype)
        return torch.nn.functional.linear(x, changed, bias), [changed]


_linear_op = torch.library.custom_op("loca_theory::linear", _linear, mutates_args=())


@_linear_op.register_fake
def _(*inputs: Any) -> Any:
    x, _, _, coefficients, _, _, _, rows, _, _, implementation, save = inputs
    y = x.new_empty(x.shape[0], rows)
    if implementation != "implicit":
        return y, [x.new_empty(rows, x.shape[1])]
    sizes = [b.stop - b.start for b in token_blocks(x, rows)]
    return y, [coefficients.new_empty(x.shape[1], size) for size in sizes] if save else []


def _linear_backward(
    g: torch.Tensor,
    x: torch.Tensor | None,
    weight: torch.Tensor | None,
    saved: Sequence[torch.Tensor],
    coefficients: torch.Tensor,
    indices: torch.Tensor,
    pattern: Sequence[torch.Tensor],
    columns: int,
    scaling: float,
    rule: str,
    implementation: str,
    needs: Sequence[bool],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of x, a and l; those that are not needed are empty."""
    s, scaled = SparsityPattern(*pattern), coefficients * scaling
    shape, learns = (g.shape[1], columns), needs[1] or needs[2]
    of_x, of_a, of_l = g.new_empty(0, columns), scaled.new_empty(0), scaled.new_empty(0, 2)
    if implementation != "implicit":
        weight = saved[0]
    with without_autocast(g.device):
        samples: Any = Samples(s, coefficients, rule, needs, columns)
        if needs[0]:
            of_x = g.new_zeros(g.shape[0], columns) if weight is None else g @ weight
        if implementation == "implicit":
            matrix = s.starts_t, s.rows, scaled[s.order_t]
            for i, block in enumerate(token_blocks(g, columns)):
                of_g = rows_to_spectra(g[block].to(scaled.dtype))
                if needs[0]:
                    of_x[block] += spectra_to_rows(sparse_product(*matrix, of_g))
                if learns:
                    samples.add(of_g, saved[i])
        elif x is not None:
            is_half, device = g.dtype != scaled.dtype, g.device
            if sampling_pays(shape, len(g), samples.count, is_half=is_half, device=device):
                for block in token_blocks(g, columns):
                    of_g, of_tokens = (tensor[block].to(scaled.dtype) for tensor in (g, x))
                    samples.add(rows_to_spectra(of_g), rows_to_spectra(of_tokens))
            else:
                samples = from_dense(samples, (g.T @ x).to(scaled.dtype), indices)
        if needs[1]:
            of_a = samples(0, 0) * scaling
        if needs[2]:
            of_l = location_gradient(cast("Any", rule), samples, scaled, indices, shape)
        return of_x, of_a, of_l


_linear_backward_op = torch.library.custom_op(
    "loca_theory::linear_backward", _linear_backward, mutates_args=()
)


@_linear_backward_op.register_fake
def _(*inputs: Any) -> Any:
    g, _, _, _, coefficients, _, _, columns, _, _, _, needs = inputs
    b = coefficients.shape[0]
    of_x = g.new_empty(g.shape[0] if needs[0] else 0, columns)
    of_l = coefficients.new_empty(b if needs[2] else 0, 2)
    return of_x, coefficients.new_empty(b if needs[1] else 0), of_l


def _linear_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    x, weight, _, a, locations, indices, pattern, _, scaling, rule, implementation, _ = inputs
    needs_l = locations is not None and ctx.needs_input_grad[4]
    ctx.needs = [ctx.needs_input_grad[0], ctx.needs_input_grad[3], needs_l]
    ctx.needs_bias = ctx.needs_input_grad[2]
    # Otherwise torch makes zeros of the size of x for the second output.
    ctx.set_materialize_grads(False)
    reads_x = implementation != "implicit" and (ctx.needs[1] or needs_l)
    ctx.save_for_backward(
        x if reads_x else None,
        weight if implementation == "implicit" else None,
        a,
        indices,
        *pattern,
        *output[1],
    )
    ctx.rest = (x.shape[1], scaling, rule, implementation)


def _linear_gradients(ctx: Any, g: torch.Tensor | None, backward: Any) -> tuple[Any, ...]:
    """Gradients of x, W, b, a, l and ``indices``; None if not needed."""
    if g is None:
        return (None,) * 6
    x, weight, coefficients, indices, *remaining = ctx.saved_tensors
    pattern, saved = remaining[:_PATTERN], remaining[_PATTERN:]
    of_bias = g.sum(0) if ctx.needs_bias else None
    gradients = backward(
        g.contiguous(), x, weight, saved, coefficients, indices, pattern, *ctx.rest, ctx.needs
    )
    of_x, of_a, of_l = (f if need else None for f, need in zip(gradients, ctx.needs, strict=True))
    return of_x, None, of_bias, of_a, of_l, None


def _linear_differentiate(ctx: Any, g: torch.Tensor | None, _: Any) -> tuple[Any, ...]:
    return *_linear_gradients(ctx, g, _linear_backward_op), [None] * _PATTERN, *(None,) * 5


_linear_op.register_autograd(_linear_differentiate, setup_context=_linear_setup)


class _Linear(torch.autograd.Function):
    """The same operator outside ``torch.compile``, without a custom operator's 1 ms of overhead."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> torch.Tensor:
        output = _linear(*inputs)
        _linear_setup(ctx, inputs, output)
        return output[0]

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Any
    ) -> tuple[Any, ...]:
        return *_linear_gradients(ctx, gradients[0], _linear_backward), *(None,) * 6
