r"""The gradient of the whole spectrum, and its curvature, seen while a layer trains.

Searches that move components across the spectrum need :math:`Z = C\,(\partial L/\partial\Delta W)
D^\top` everywhere, in the few steps before they move. With the spectra :math:`\hat x_t, \hat g_t`
of a token's input and of the gradient of its output,

.. math:: Z = \sum_t \hat g_t \hat x_t^\top, \qquad
          h_{ij} = \Big(\sum_t \hat g_{ti}^2\Big)\Big(\sum_t \hat x_{tj}^2\Big) .

h is the diagonal of the empirical Fisher matrix in its Kronecker-factored form, which takes inputs
and gradients for independent; for a mean of log-likelihoods it estimates the curvature itself.
"""

from __future__ import annotations

import torch

from loca_theory.transforms import rows_to_spectra


class Observation:
    """What is summed over the backward passes of one step of the optimiser, or of several.

    Args:
        shape: (p, q).
        scaling: α: what is asked for is per unit of a coefficient.
    """

    def __init__(self, shape: tuple[int, int], scaling: float) -> None:
        self._shape, self._scaling = shape, scaling
        self._sums: list[torch.Tensor] = []

    def __bool__(self) -> bool:
        """Whether there was anything to see."""
        return bool(self._sums) and bool(self._sums[1].any())

    def attach(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """See the gradient of y, (..., p), when it comes by, as that of a layer with input x."""
        x = x.detach()
        if y.requires_grad:
            y.register_hook(lambda g: self._add(x, g))

    @torch.no_grad()
    def _add(self, x: torch.Tensor, g: torch.Tensor) -> None:
        dtype = torch.promote_types(torch.promote_types(x.dtype, g.dtype), torch.float32)
        p, q = self._shape
        of_x = rows_to_spectra(x.reshape(-1, q).to(dtype))
        of_g = rows_to_spectra(g.reshape(-1, p).to(dtype))
        seen = [of_g @ of_x.T, of_g.square().sum(1), of_x.square().sum(1)]
        if not all(bool(part.isfinite().all()) for part in seen):
            return  # an overflow that mixed precision will have skipped
        if self._sums:
            for total, part in zip(self._sums, seen, strict=True):
                total += part
        else:
            self._sums = seen

    def gather(self, device: torch.device) -> None:
        """Unite what all processes have seen, the loss being the mean of theirs."""
        p, q = self._shape
        if not self._sums:
            self._sums = [torch.zeros(size, device=device) for size in ((p, q), (p,), (q,))]
        for total in self._sums:
            torch.distributed.all_reduce(total)
        processes = torch.distributed.get_world_size()
        self._sums[0] /= processes
        self._sums[1] /= processes**2

    def gradient(self) -> torch.Tensor:
        """α Z of every place, (p·q,)."""
        return self._scaling * self._sums[0].flatten()

    def curvature(self) -> torch.Tensor:
        """α² h of every place, (p·q,)."""
        _, rows, columns = self._sums
        return self._scaling**2 * torch.outer(rows, columns).flatten()
