"""The unitary two-dimensional DFT."""

from __future__ import annotations

import torch

from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms.inputs import TensorLike, as_tensor, widened


def dft2(x: TensorLike) -> torch.Tensor:
    r"""Unitary DFT over the last two dimensions, :math:`F = H_p\,x\,H_q`.

    :math:`(H_n)_{uv} = n^{-1/2} e^{-2\pi i uv/n}`, so that :math:`\|F\|_F = \|x\|_F`: the factor in
    Parseval's identity is 1 (the paper's lemma prints 1/K, which fits neither this normalisation
    nor the unnormalised transform, where it is 1/K²).

    Returns:
        Complex tensor of the same shape.

    Source: the appendix's proof of Theorem 1.
    """
    return torch.fft.fft2(_planes(x, "x"), norm="ortho")


def idft2(spectrum: TensorLike) -> torch.Tensor:
    """Inverse of :func:`dft2`: complex tensor of shape (..., p, q) to complex, same shape."""
    return torch.fft.ifft2(_planes(spectrum, "spectrum"), norm="ortho")


def _planes(value: TensorLike, name: str) -> torch.Tensor:
    x = widened(as_tensor(value, name))
    if x.ndim < 2 or 0 in x.shape[-2:]:
        msg = f"{name} needs two last dimensions that are not empty, not shape {tuple(x.shape)}"
        raise InvalidArgumentError(msg)
    return x
