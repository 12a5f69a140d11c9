r"""The gradient of the whole spectrum, and its curvature, seen while a layer trains.

Searches that move components across the spectrum need :math:`Z = C\,(\partial L/\partial\Delta W)
D^\top` everywhere, in the few steps before they move. With the spectra :math:`\hat x_t, \hat g_t`
of a token's input and of the gradient of its output,

.. math:: Z = \sum_t \hat g_t \hat x_t^\top, \qquad
          h_{ij} = \Big(\sum_t \hat g_{ti}^2\Big)\Big(\sum_t \hat x_{tj}^2\Big) .

h is the diagonal of the empirical Fisher matrix in its Kronecker-factored form, which takes inputs
and gradients for independent; for a mean of log-likelihoods it estimates the curvature itself.
The sum for Z is taken before the transform, :math:`\sum_t g_t x_t^\top`, and transformed once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from loca_theory.transforms import dct2, rows_to_spectra
from loca_theory.transforms.dct_paths import float32_products

# The shape of the curvature is taken from so many tokens of a batch, those of the largest norms.
_TOKENS = 256


class GradientStatistics:
    """What is summed over the backward passes of one step of the optimiser, or of several.

    Args:
        shape: (p, q).
        scaling: α: what is asked for is per unit of a coefficient.
        dtype: Of the sums.
        device: Where they are.

    Attributes:
        steps: Of how many steps of the optimiser.
    """

    def __init__(
        self, shape: tuple[int, int], scaling: float, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._shape, self._scaling = shape, scaling
        self._dtype, self._device = dtype, device
        self._sums: list[torch.Tensor] = []
        self.steps = 1

    def to(self, device: torch.device) -> None:
        """Go where the layer goes."""
        self._device, self._sums = device, [total.to(device) for total in self._sums]

    def __bool__(self) -> bool:
        """Whether there was anything to see."""
        return bool(self._sums) and bool(self._sums[1].any())

    @torch.no_grad()
    def add(self, x: torch.Tensor, g: torch.Tensor) -> None:
        """Add tokens: inputs (..., q) and gradients of outputs (..., p)."""
        p, q = self._shape
        x, g = x.reshape(-1, q).to(self._dtype), g.reshape(-1, p).to(self._dtype)
        if not x.shape[0]:
            return
        # An overflow of mixed precision, whose step will be skipped, is not looked at: if a term
        # is not finite, the sum is not. A GPU is not asked which it is, and zeros are added.
        is_finite = (x.sum() + g.sum()).isfinite()
        if x.device.type != "cpu":
            x, g = x.where(is_finite, 0.0), g.where(is_finite, 0.0)
        elif not is_finite:
            return
        total, rows, columns = self._ready()
        with float32_products(x.device):
            total.addmm_(g.T, x)
        rows += _power(g)
        columns += _power(x)

    def _ready(self) -> list[torch.Tensor]:
        if not self._sums:
            p, q = self._shape
            sizes = ((p, q), (p,), (q,))
            self._sums = [
                torch.zeros(size, dtype=self._dtype, device=self._device) for size in sizes
            ]
        return self._sums

    def gather(self) -> None:
        """Unite what all processes have seen, the loss being the mean of theirs."""
        for total in self._ready():
            torch.distributed.all_reduce(total)
        processes = torch.distributed.get_world_size()
        self._sums[0] /= processes
        self._sums[1] /= processes**2

    def gradient(self) -> torch.Tensor:
        """α Z of every location, (p·q,)."""
        return self._scaling * dct2(self._sums[0]).flatten()

    def predicted_decreases(self, *, use_curvature: bool) -> torch.Tensor:
        r"""Twice what a component at every location could gain, (p·q,).

        Args:
            use_curvature: By the curvature, :math:`Z^2/h`; else :math:`(\alpha Z)^2`.
        """
        if not use_curvature:
            return self.gradient().square_()
        # h is a product: dividing by its factors spares a matrix. α cancels.
        rows, columns = (_inverse_root(power) for power in self._sums[1:])
        z = dct2(self._sums[0]).mul_(rows[:, None]).mul_(columns)
        return z.square_().flatten()

    def curvature(self, indices: torch.Tensor) -> torch.Tensor:
        """α² h of a single step, at locations (B, 2): (B,)."""
        _, rows, columns = self._sums
        per_step = (self._scaling / self.steps) ** 2
        return per_step * rows[indices[:, 0]] * columns[indices[:, 1]]


def record(statistics: GradientStatistics, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The same y, (..., p), whose gradient is seen as that of a layer with input x.

    Under ``torch.compile`` the graph breaks here.
    """
    apply: Any = torch.compiler.disable(_Seen.apply)
    return apply(y, x.detach(), statistics)


class _Seen(torch.autograd.Function):
    """The identity, a copy, so that what is changed in place afterwards does no harm."""

    @staticmethod
    def forward(
        ctx: Any, y: torch.Tensor, x: torch.Tensor, seen: GradientStatistics
    ) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.seen = seen
        return y.clone()

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, g: torch.Tensor
    ) -> tuple[torch.Tensor, None, None]:
        ctx.seen.add(*ctx.saved_tensors, g)
        return g, None, None


def _inverse_root(power: torch.Tensor) -> torch.Tensor:
    """Zero where there is no power, and so nothing to gain."""
    return torch.where(power > 0, power.rsqrt(), 0.0)


def _power(rows: torch.Tensor) -> torch.Tensor:
    """The sum over all rows of their squared spectra.

    Where they are many, that of those with the largest norms, scaled to the norm of all, which the
    transform keeps. Gradients often have few rows that are not zero, at regular distances.
    """
    if rows.shape[0] <= _TOKENS:
        return rows_to_spectra(rows).square().sum(1)
    norms = rows.square().sum(1)
    largest, which = norms.topk(_TOKENS)
    scale = norms.sum() / largest.sum().clamp(min=torch.finfo(norms.dtype).tiny)
    return rows_to_spectra(rows[which]).square().sum(1) * scale
