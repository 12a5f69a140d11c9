"""Input, reference transform and lower bound for the benchmarks of the transforms."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import scipy.fft
import torch


def normal(*shape: int) -> torch.Tensor:
    """N(0, 1) entries, the same in every run."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def scipy_transform(x: torch.Tensor, *, inverse: bool, workers: int) -> torch.Tensor:
    """The reference transform by scipy, in the precision of ``x``."""
    transform = scipy.fft.idctn if inverse else scipy.fft.dctn
    array = transform(x.numpy(), type=2, norm="ortho", axes=(-2, -1), workers=workers)
    return torch.from_numpy(array)


def floor(x: torch.Tensor, inverse: bool) -> Callable[[], torch.Tensor]:
    """A plain real FFT of the size of ``x``, or its inverse from a precomputed spectrum."""
    if not inverse:
        return partial(torch.fft.rfft2, x)
    return partial(torch.fft.irfft2, torch.fft.rfft2(x), s=x.shape[-2:])
