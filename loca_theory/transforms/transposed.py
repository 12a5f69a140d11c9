"""One-dimensional cosine transforms that turn rows into columns on the way.

Sparse products want the features along rows, contiguous over the tokens; linear layers want the
opposite. Writing the result transposed costs nothing extra on the CPU, while transposing
afterwards costs as much as the transform.
"""

from __future__ import annotations

import scipy.fft
import torch

from loca_theory.transforms.cosine import dct, idct


def rows_to_spectra(x: torch.Tensor) -> torch.Tensor:
    r"""The spectra of the rows of x, as columns: :math:`D\,x^\top`, D the DCT matrix of order q.

    Args:
        x: Real tensor of shape (T, q), float32 or float64.

    Returns:
        Contiguous tensor of shape (q, T). Not differentiable.

    Raises:
        InvalidArgumentError: x is not floating, or q is 0.
    """
    x = x.detach()
    if x.device.type == "cpu" and x.numel():
        spectra = scipy.fft.dct(x.numpy().T, axis=0, norm="ortho", workers=torch.get_num_threads())
        return torch.from_numpy(spectra)
    return dct(x).T.contiguous()


def spectra_to_rows(spectra: torch.Tensor) -> torch.Tensor:
    r"""The inverse of :func:`rows_to_spectra`: :math:`z^\top D` for spectra z of shape (q, T).

    Raises:
        InvalidArgumentError: the spectra are not floating, or q is 0.
    """
    spectra = spectra.detach()
    if spectra.device.type == "cpu" and spectra.numel():
        x = scipy.fft.idct(spectra.numpy().T, axis=1, norm="ortho", workers=torch.get_num_threads())
        return torch.from_numpy(x)
    return idct(spectra.T.contiguous())
