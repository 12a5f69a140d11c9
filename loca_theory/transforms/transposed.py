"""One-dimensional cosine transforms that also turn rows into columns.

Sparse products need one row per feature, contiguous over the tokens; linear layers need the
opposite. Writing the result transposed costs nothing extra on the CPU, while transposing
afterwards costs as much as the transform.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import scipy.fft
import torch

from loca_theory.transforms.dct_implementations import transform
from loca_theory.transforms.inputs import widened


def rows_to_spectra(x: torch.Tensor) -> torch.Tensor:
    r"""The spectra of the rows of x, as columns: :math:`D\,x^\top`, D the DCT matrix of order q.

    Returns:
        Contiguous tensor of shape (q, T). Not differentiable.
    """
    rows = widened(x.detach())
    if _is_empty_or_elsewhere(rows):
        return transform(rows, 1).T.contiguous().to(x.dtype)
    return _by_scipy(scipy.fft.dct, rows.T, axis=0).to(x.dtype)


def spectra_to_rows(spectra: torch.Tensor) -> torch.Tensor:
    r"""The inverse of :func:`rows_to_spectra`: :math:`z^\top D` for spectra z of shape (q, T)."""
    columns = widened(spectra.detach())
    if _is_empty_or_elsewhere(columns):
        return transform(columns.T.contiguous(), 1, inverse=True).to(spectra.dtype)
    return _by_scipy(scipy.fft.idct, columns.T, axis=1).to(spectra.dtype)


def spectra_to_columns_(spectra: torch.Tensor) -> torch.Tensor:
    r"""The columns of which z holds the spectra, :math:`C^\top z`, for z of shape (p, T).

    Returns:
        Contiguous tensor of shape (p, T). Not differentiable.
    """
    if _is_empty_or_elsewhere(spectra):
        return transform(spectra.T.contiguous(), 1, inverse=True).T.contiguous()
    return _by_scipy(scipy.fft.idct, spectra, axis=0, overwrite_x=True)


def _is_empty_or_elsewhere(x: torch.Tensor) -> bool:
    return x.device.type != "cpu" or not x.numel()


def _by_scipy(transform: Callable[..., Any], x: torch.Tensor, **options: Any) -> torch.Tensor:
    workers = torch.get_num_threads()
    return torch.from_numpy(transform(x.numpy(), norm="ortho", workers=workers, **options))
