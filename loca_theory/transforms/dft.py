"""The unitary two-dimensional DFT."""

from __future__ import annotations

import torch


def dft2(x: torch.Tensor) -> torch.Tensor:
    r"""Unitary DFT over the last two dimensions, :math:`F = H_p\,x\,H_q`.

    :math:`(H_n)_{uv} = n^{-1/2} e^{-2\pi i uv/n}`, so that :math:`\|F\|_F = \|x\|_F`: the factor in
    Parseval's identity is 1 (the paper's lemma prints 1/K, which fits neither this normalisation
    nor the unnormalised transform, where it is 1/K²).

    Args:
        x: Real or complex tensor of shape (..., p, q).

    Returns:
        Complex tensor of the same shape.

    Source: the appendix's proof of Theorem 1.
    """
    return torch.fft.fft2(x, norm="ortho")


def idft2(spectrum: torch.Tensor) -> torch.Tensor:
    """Inverse of :func:`dft2`: complex tensor of shape (..., p, q) to complex, same shape."""
    return torch.fft.ifft2(spectrum, norm="ortho")
