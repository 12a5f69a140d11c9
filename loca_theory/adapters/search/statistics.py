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

from typing import Any

import torch

from loca_theory.transforms import dct2
from loca_theory.transforms.dct_paths import float32_products
from loca_theory.transforms.transposed import rows_to_spectra

# The shape of the curvature is estimated from this many tokens of a batch, those of largest norm.
_TOKENS = 256


class GradientStatistics:
    """Sums over the backward passes of one or several optimiser steps.

    Args:
        shape: (p, q).
        scaling: α. Gradients and curvatures are those with respect to a coefficient.
        dtype: Dtype of the sums.
        device: Device of the sums.

    Attributes:
        steps: Number of optimiser steps.
    """

    def __init__(
        self, shape: tuple[int, int], scaling: float, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._shape, self._scaling = shape, scaling
        self._dtype, self._device = dtype, device
        self._sums: list[torch.Tensor] = []
        self._latest: list[torch.Tensor] = []  # since the last step
        self.steps = 1

    def to(self, device: torch.device) -> None:
        """Move the sums to a device."""
        self._device = device
        self._sums, self._latest = (
            [total.to(device) for total in sums] for sums in (self._sums, self._latest)
        )

    def keep(self) -> None:
        """Add the latest backward passes to the sums: the optimiser has stepped by them."""
        if self._sums:
            for total, latest in zip(self._sums, self._latest, strict=False):
                total += latest
        else:
            self._sums = self._latest
        self._latest = []

    def drop(self, *, unless: bool | torch.Tensor) -> None:
        """Drop the backward passes since the last step, which was skipped.

        Args:
            unless: What says otherwise; a tensor so that nothing waits for a GPU.
        """
        if isinstance(unless, torch.Tensor):
            for latest in self._latest:
                latest *= unless
        elif not unless:
            self._latest = []

    def state_dict(self) -> dict[str, Any]:
        """The sums of this process, up to its last step, and of how many steps they are."""
        return {"recorded_steps": self.steps} | {
            f"recorded_{number}": total for number, total in enumerate(self._sums)
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state_dict`."""
        self.steps = int(state["recorded_steps"])
        sums = [state[f"recorded_{n}"] for n in range(3) if f"recorded_{n}" in state]
        self._sums = [total.to(self._device, self._dtype, copy=True) for total in sums]

    def __bool__(self) -> bool:
        """Whether a gradient other than zero was recorded."""
        totals = self._totals()
        return bool(totals) and bool(totals[1].any())

    @torch.no_grad()
    def add(self, x: torch.Tensor | None, g: torch.Tensor) -> None:
        """Add tokens: inputs (..., q) and gradients of outputs (..., p).

        Args:
            x: None if g is the gradient of ΔW itself, (p, q). The powers of tokens, which are then
                unknown, only say that there was a gradient, and there is no curvature.
            g: The gradients.
        """
        if x is None:
            self._add_increment(g)
            return
        p, q = self._shape
        x, g = x.reshape(-1, q).to(self._dtype), g.reshape(-1, p).to(self._dtype)
        if not x.shape[0]:
            return
        # Tokens with an overflow of mixed precision are ignored, because the step will be skipped.
        # If a term is not finite, neither is the sum. Testing it would synchronise a GPU: there,
        # zeros are added instead.
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

    def _add_increment(self, g: torch.Tensor) -> None:
        g = g.reshape(self._shape).to(self._dtype)
        g = g.where(g.sum().isfinite(), 0.0)
        total, *powers = self._ready()
        total += g
        for power in powers:
            power += g.any()

    def _ready(self) -> list[torch.Tensor]:
        if not self._latest:
            p, q = self._shape
            sizes = ((p, q), (p,), (q,))
            self._latest = [
                torch.zeros(size, dtype=self._dtype, device=self._device) for size in sizes
            ]
        return self._latest

    def _totals(self) -> list[torch.Tensor]:
        """The sums with the latest backward passes; empty if there were none."""
        if not (self._sums and self._latest):
            return self._sums or self._latest
        return [total + latest for total, latest in zip(self._sums, self._latest, strict=True)]

    def gather(self) -> None:
        """Combine the sums of all processes; the loss is the mean of their losses."""
        self._ready()
        self.keep()
        for total in self._sums:
            torch.distributed.all_reduce(total)
        processes = torch.distributed.get_world_size()
        self._sums[0] /= processes
        self._sums[1] /= processes**2

    def gradient(self) -> torch.Tensor:
        """α Z at every location, (p·q,)."""
        return self._scaling * dct2(self._totals()[0]).flatten()

    def predicted_decreases(self, *, use_curvature: bool) -> torch.Tensor:
        r"""Twice the predicted decrease of the loss by a new component at every location, (p·q,).

        Args:
            use_curvature: Return :math:`Z^2/h` if true, otherwise :math:`(\alpha Z)^2`.
        """
        if not use_curvature:
            return self.gradient().square_()
        # h is an outer product: dividing by its factors needs no matrix of its size. α cancels.
        total, *powers = self._totals()
        rows, columns = map(_inverse_root, powers)
        z = dct2(total).mul_(rows[:, None]).mul_(columns)
        return z.square_().flatten()

    def curvature(self, indices: torch.Tensor) -> torch.Tensor:
        """α² h of a single step, at locations (B, 2): (B,)."""
        _, rows, columns = self._totals()
        per_step = (self._scaling / self.steps) ** 2
        return per_step * rows[indices[:, 0]] * columns[indices[:, 1]]


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
    largest, which = norms.topk(_TOKENS)
    scale = norms.sum() / largest.sum().clamp(min=torch.finfo(norms.dtype).tiny)
    return rows_to_spectra(rows[which]).square().sum(1) * scale
