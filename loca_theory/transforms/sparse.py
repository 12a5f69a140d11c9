"""The inverse DCT of a spectrum with few occupied locations."""

from __future__ import annotations

from typing import Literal, get_args

import torch

from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms.cosine import idct2
from loca_theory.transforms.dct_paths import float32_products
from loca_theory.transforms.devices import check_one_device
from loca_theory.transforms.inputs import TensorLike, as_tensor, real_tensor, widened
from loca_theory.transforms.matrices import dct_matrix

SparseMethod = Literal["auto", "scatter", "outer"]

# Up to this many locations a sum of outer products beats scatter + fast inverse on the CPU, forward
# and backward (`python -m benchmarks.transforms`): its cost grows with the number of locations, the
# other's does not. They are equal near 480 locations at 300x300, 600 at 768x768 and 1000 at
# 4096x4096.
_OUTER_UP_TO = 384


def idct2_sparse(
    values: TensorLike,
    locations: TensorLike,
    shape: tuple[int, int],
    *,
    method: SparseMethod = "auto",
) -> torch.Tensor:
    r"""Inverse DCT of the matrix that holds ``values`` at ``locations`` and zeros elsewhere.

    .. math:: C^\top \mathcal S(a, l) D
              = \sum_{n=1}^{B} a_n\, C_{l^1_n\cdot}^\top D_{l^2_n\cdot}

    Values that share a location are added. Differentiable in ``values``; the gradient is the DCT of
    the incoming gradient, at the locations.

    Returns:
        Tensor of shape (..., p, q) with the dtype of ``values``.

    Source: equation (original_dct) of the paper with α = 1, and the sum that follows it.
    """
    values, locations = real_tensor(values, "values"), as_tensor(locations, "locations")
    _check(values, locations, shape, method)
    p, q = shape
    a = widened(values)
    if method == "outer" or (method == "auto" and locations.shape[0] <= _OUTER_UP_TO):
        rows = dct_matrix(p, dtype=a.dtype, device=a.device).index_select(0, locations[:, 0])
        columns = dct_matrix(q, dtype=a.dtype, device=a.device).index_select(0, locations[:, 1])
        with float32_products(a.device):
            return ((rows.T * a.unsqueeze(-2)) @ columns).to(values.dtype)
    flat = a.new_zeros((*a.shape[:-1], p * q))
    spectrum = flat.index_add(-1, locations[:, 0].long() * q + locations[:, 1], a)
    return idct2(spectrum.unflatten(-1, (p, q))).to(values.dtype)


def _check(
    values: torch.Tensor, locations: torch.Tensor, shape: tuple[int, int], method: str
) -> None:
    if method not in get_args(SparseMethod):
        msg = f"unknown method {method!r}; choose one of {', '.join(get_args(SparseMethod))}"
        raise InvalidArgumentError(msg)
    if (
        values.ndim == 0
        or locations.dtype not in (torch.int32, torch.int64)
        or locations.shape != (values.shape[-1], 2)
    ):
        msg = "locations must be an integer tensor of shape (B, 2) for values of shape (..., B), "
        msg += f"not {locations.dtype} {tuple(locations.shape)} for {tuple(values.shape)}"
        raise InvalidArgumentError(msg)
    check_one_device(values=values, locations=locations)
    if min(shape) < 1:
        msg = f"shape must be at least 1x1, not {shape[0]}x{shape[1]}"
        raise InvalidArgumentError(msg)
    rows, columns = locations.unbind(1)
    outside = (rows < 0) | (rows >= shape[0]) | (columns < 0) | (columns >= shape[1])
    if not locations.is_meta and bool(outside.any()):
        msg = f"locations must not lie outside the {shape[0]}x{shape[1]} spectrum; they are 0-based"
        raise InvalidArgumentError(msg)
