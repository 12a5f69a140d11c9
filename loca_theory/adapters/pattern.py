"""Locations of the components of a spectrum, arranged for sparse products."""

from __future__ import annotations

import warnings
from functools import cache
from typing import NamedTuple

import torch


class SparsityPattern(NamedTuple):
    r"""The locations of B components in a p×q spectrum S, in compressed rows of S and of Sᵀ.

    Components that share a location have one entry each, so products add them up.

    Attributes:
        flat: (B,) the position of each component in S, row after row, int64.
        order: (B,) the component of each entry of S, int64.
        starts: (p + 1,) the position of each row's first entry, int32.
        columns: (B,) the column of each entry, int32.
        order_t: (B,) like ``order``, for Sᵀ.
        starts_t: (q + 1,) like ``starts``, for Sᵀ.
        rows: (B,) the row of each entry of Sᵀ, int32.
    """

    flat: torch.Tensor
    order: torch.Tensor
    starts: torch.Tensor
    columns: torch.Tensor
    order_t: torch.Tensor
    starts_t: torch.Tensor
    rows: torch.Tensor

    @classmethod
    def of(cls, indices: torch.Tensor, shape: tuple[int, int]) -> SparsityPattern:
        """The pattern of integer locations (B, 2) in a spectrum of shape (p, q)."""
        p, q = shape
        row, column = indices[:, 0].long(), indices[:, 1].long()
        by_rows, by_columns = _compressed(row, column, p, q), _compressed(column, row, q, p)
        return cls(row * q + column, *by_rows, *by_columns)


def _compressed(
    row: torch.Tensor, column: torch.Tensor, p: int, q: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    order = torch.argsort(row * q + column)
    bounds = torch.arange(p + 1, device=row.device)
    starts = torch.searchsorted(row[order], bounds)
    return order, starts.int(), column[order].int()


def compressed_rows(
    starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, width: int
) -> torch.Tensor:
    """Make a sparse matrix in compressed rows; the locations are not checked."""
    _suppress_beta_warning()
    shape = (starts.shape[0] - 1, width)
    return torch.sparse_csr_tensor(starts, columns, values, shape, check_invariants=False)


def sparse_product(
    starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, dense: torch.Tensor
) -> torch.Tensor:
    r"""Compute :math:`S X` for a sparse S (p, q) in compressed rows.

    On the CPU this is torch's sum over bags of embeddings, which adds up each row of the result in
    registers: twice as fast as torch's sparse product. X, (q, T), is contiguous.
    """
    if dense.device.type == "cpu":
        return torch.nn.functional.embedding_bag(
            columns, dense, starts, mode="sum", per_sample_weights=values, include_last_offset=True
        )
    matrix = compressed_rows(starts, columns, values, dense.shape[0])
    # Without the argument out, torch allocates, clears and copies the result.
    result = dense.new_zeros(matrix.shape[0], dense.shape[1])
    return torch.addmm(result, matrix, dense, beta=0.0, out=result)


@cache
def _suppress_beta_warning() -> None:
    """Trigger and hide torch's warning, once per process, that compressed rows are in beta."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        index = torch.tensor([0, 1], dtype=torch.int32)
        torch.sparse_csr_tensor(index, index[:1], torch.ones(1), (1, 1), check_invariants=False)


def shifted(
    starts: torch.Tensor, columns: torch.Tensor, by: tuple[int, int], width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Move entries by −1, 0 or 1 along rows and columns; at the border, and in order, they stay."""
    down, right = by
    if down == 1:
        # The entries of row i move to row i + 1; the last two rows become one.
        starts = torch.cat([starts[:1], starts[:-2], starts[-1:]])
    elif down == -1:
        starts = torch.cat([starts[:1], starts[2:], starts[-1:]])
    return starts, (columns + right).clamp(0, width - 1)


def sample_product(
    starts: torch.Tensor, columns: torch.Tensor, left: torch.Tensor, right: torch.Tensor
) -> torch.Tensor:
    r"""Compute the entries of :math:`L R^\top` at the locations of a pattern, in its order.

    L, (p, T), and R, (q, T), are contiguous.
    """
    zeros = left.new_zeros(columns.shape[0])
    indices = compressed_rows(starts, columns, zeros, right.shape[0])
    return torch.sparse.sampled_addmm(indices, left, right.T, beta=0.0).values()
