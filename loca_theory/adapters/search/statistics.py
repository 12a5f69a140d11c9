r"""Gradient and curvature of the whole spectrum, recorded while a layer trains.

Searches that move components across the spectrum need :math:`Z = C\,(\partial L/\partial\Delta W)
D^\top` everywhere, in the few steps before they move. With the spectra :math:`\hat x_t, \hat g_t`
of a token's input and of the gradient of its output,

.. math:: Z = \sum_t \hat g_t \hat x_t^\top, \qquad
          h_{ij} = \Big(\sum_t \hat g_{ti}^2\Big)\Big(\sum_t \hat x_{tj}^2\Big) .

h is the diagonal of the empirical Fisher matrix in its Kronecker-factored form, which treats inputs
and gradients as independent; for a mean of log-likelihoods it estimates the curvature itself.
For Z, :math:`\sum_t g_t x_t^\top` is summed first and then transformed once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import nn

from loca_theory.adapters.search.sharding import is_distributed
from loca_theory.transforms import dct2
from loca_theory.transforms.precision import float32_products
from loca_theory.transforms.transposed import rows_to_spectra

# The shape of the curvature is estimated from this many tokens of a batch, those of largest norm.
_TOKENS = 256


class GradientStatistics(nn.Module):
    """Sums over the backward passes of one or several optimiser steps, of all processes.

    They are ∂L/∂ΔW and the powers of the spectra of the gradients and of the inputs; as buffers,
    so a layer that records has them in its state. The passes since the latest step of the optimiser
    are not in them yet.

    Args:
        shape: (p, q).
        scaling: α. Gradients and curvatures are those with respect to a coefficient.
        dtype: Dtype of the sums.
        device: Device of the sums.
    """

    gradient_sum: torch.Tensor
    row_power: torch.Tensor
    column_power: torch.Tensor

    def __init__(
        self, shape: tuple[int, int], scaling: float, dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__()
        self._scaling = scaling
        sizes = {"gradient_sum": shape, "row_power": shape[:1], "column_power": shape[1:]}
        for name, size in sizes.items():
            self.register_buffer(name, torch.zeros(size, dtype=dtype, device=device))
        self._latest = [torch.zeros_like(total) for total in self.buffers()]

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Self:
        self._latest = [fn(total) for total in self._latest]
        return super()._apply(fn, recurse)

    def keep(self) -> None:
        """Add the latest backward passes of all processes: the optimiser is about to step by them.

        The loss is the mean of the losses of the processes.
        """
        sums = self._latest
        if is_distributed():
            for part in sums:
                torch.distributed.all_reduce(part)
            processes = torch.distributed.get_world_size()
            sums[0] /= processes
            sums[1] /= processes**2
        for total, part in zip(self.buffers(), sums, strict=True):
            total += part
            part.zero_()

    def drop_unless(self, grad: torch.Tensor | None) -> None:
        """Drop the latest backward passes, unless they have left a gradient other than zero."""
        for part in self._latest:
            if grad is None:
                part.zero_()
            else:  # nothing waits for a GPU
                part.masked_fill_(~grad.any(), 0.0)

    def has_gradient(self) -> bool:
        """Whether a gradient other than zero was recorded."""
        return bool(self.row_power.any())

    @torch.no_grad()
    def add(self, x: torch.Tensor | None, g: torch.Tensor) -> None:
        """Add tokens: inputs (..., q) and gradients of outputs (..., p).

        Args:
            x: None if g is the gradient of ΔW itself, (p, q). The powers of tokens, which are then
                unknown, only say that there was a gradient, and there is no curvature.
            g: The gradients.
        """
        total, rows, columns = self._latest
        # Tokens with an overflow of mixed precision count as zeros: the step will be skipped.
        # If a term is not finite, neither is the sum. Testing it here would synchronise a GPU.
        (p, q), dtype = total.shape, total.dtype
        if x is None:
            g = g.reshape(p, q).to(dtype)
            g = g.where(g.sum().isfinite(), 0.0)
            total += g
            rows += g.any()
            columns += g.any()
            return
        x, g = x.reshape(-1, q).to(dtype), g.reshape(-1, p).to(dtype)
        is_finite = (x.sum() + g.sum()).isfinite()
        x, g = x.where(is_finite, 0.0), g.where(is_finite, 0.0)
        with float32_products(x.device):
            total.addmm_(g.T, x)
        rows += _power(g)
        columns += _power(x)

    def gradient(self) -> torch.Tensor:
        """α Z at every location, (p·q,)."""
        return self._scaling * dct2(self.gradient_sum).flatten()

    def predicted_decreases(self, *, use_curvature: bool) -> torch.Tensor:
        r"""Twice the predicted decrease of the loss by a new component at every location, (p·q,).

        Args:
            use_curvature: Return :math:`Z^2/h` if true, otherwise :math:`(\alpha Z)^2`.
        """
        if not use_curvature:
            return self.gradient().square_()
        # h is an outer product: dividing by its factors needs no matrix of its size. α cancels.
        rows, columns = _inverse_root(self.row_power), _inverse_root(self.column_power)
        z = dct2(self.gradient_sum).mul_(rows[:, None]).mul_(columns)
        return z.square_().flatten()

    def curvature(self, indices: torch.Tensor, steps: int) -> torch.Tensor:
        """α² h of a single step of those recorded, at locations (B, 2): (B,)."""
        per_step = (self._scaling / steps) ** 2
        return per_step * self.row_power[indices[:, 0]] * self.column_power[indices[:, 1]]


def _inverse_root(power: torch.Tensor) -> torch.Tensor:
    """1/√power, and 0 where the power is 0: a component there would not change the loss."""
    return torch.where(power > 0, power.rsqrt(), 0.0)


def _power(rows: torch.Tensor) -> torch.Tensor:
    """The sum over all rows of their squared spectra.

    If there are many rows, only those with the largest norms are transformed, and the sum is scaled
    to the norm of all rows, which the transform preserves. Rows at regular distances would be a bad
    sample: gradients often have few rows that are not zero, themselves at regular distances.
    """
    if rows.shape[0] <= _TOKENS:
        return rows_to_spectra(rows).square().sum(1)
    norms = rows.square().sum(1)
    largest, rows_taken = norms.topk(_TOKENS)
    scale = norms.sum() / largest.sum().clamp(min=torch.finfo(norms.dtype).tiny)
    return rows_to_spectra(rows[rows_taken]).square().sum(1) * scale
