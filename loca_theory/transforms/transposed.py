"""One-dimensional cosine transforms that also turn rows into columns.

Sparse products need one row per feature, contiguous over the tokens; linear layers need the
opposite. Writing the result transposed costs nothing extra on the CPU, while transposing
afterwards costs as much as the transform.
"""

from __future__ import annotations

import scipy.fft
import torch

from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms.cosine import dct, idct
from loca_theory.transforms.inputs import TensorLike, real_tensor, widened


def rows_to_spectra(x: TensorLike) -> torch.Tensor:
    r"""The spectra of the rows of x, as columns: :math:`D\,x^\top`, D the DCT matrix of order q.

    Returns:
        Contiguous tensor of shape (q, T). Not differentiable.
    """
    x = _matrix(x, "x")
    if x.device.type == "cpu" and x.numel():
        rows = widened(x).numpy()
        spectra = scipy.fft.dct(rows.T, axis=0, norm="ortho", workers=torch.get_num_threads())
        return torch.from_numpy(spectra).to(x.dtype)
    return dct(x).T.contiguous()


def spectra_to_rows(spectra: TensorLike) -> torch.Tensor:
    r"""The inverse of :func:`rows_to_spectra`: :math:`z^\top D` for spectra z of shape (q, T)."""
    spectra = _matrix(spectra, "spectra")
    if spectra.device.type == "cpu" and spectra.numel():
        columns = widened(spectra).numpy()
        x = scipy.fft.idct(columns.T, axis=1, norm="ortho", workers=torch.get_num_threads())
        return torch.from_numpy(x).to(spectra.dtype)
    return idct(spectra.T.contiguous())


def spectra_to_columns_(spectra: torch.Tensor) -> torch.Tensor:
    r"""The columns of which z holds the spectra, :math:`C^\top z`, for z of shape (p, T).

    Returns:
        Contiguous tensor of shape (p, T). Not differentiable.
    """
    if spectra.device.type == "cpu" and spectra.numel():
        columns = scipy.fft.idct(
            spectra.numpy(), axis=0, norm="ortho", overwrite_x=True,
            workers=torch.get_num_threads(),
        )  # fmt: skip
        return torch.from_numpy(columns)
    return idct(spectra.T.contiguous()).T.contiguous()


def _matrix(value: TensorLike, name: str) -> torch.Tensor:
    x = real_tensor(value, name).detach()
    if x.ndim != 2:
        msg = f"{name} must be a matrix, not of shape {tuple(x.shape)}"
        raise InvalidArgumentError(msg)
    return x
