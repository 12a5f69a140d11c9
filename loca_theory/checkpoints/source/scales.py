"""Multiplication of quantised weights by their scales.

A scale belongs to the whole matrix, to a row, to a column or to a block of entries. In a tensor of
experts, the same holds for each expert.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

# Side of the blocks of DeepSeek's FP8, then of those of other formats.
_MOST_USUAL_SIDE, _USUAL_SIDES = 128, (64, 32, 16)
_Grid = tuple[tuple[int, int], tuple[int, int]]


def grid_of(
    weight: tuple[int, ...], scale: tuple[int, ...], block: Sequence[int] | None = None
) -> _Grid | None:
    """Derive from the shapes how scales cover a matrix or a kernel; None if they do not exactly.

    Returns numbers of rows and columns of the scales, and of the entries that share one. The last
    blocks may be smaller. All dimensions of a kernel but the first are flattened.

    Example:
        >>> grid_of((576, 7168), (5, 56))  # DeepSeek-V3's blocks, of which the last is smaller
        ((5, 56), (128, 128))
    """
    p, q = weight[0], math.prod(weight[1:])
    if math.prod(scale) == 1:
        counts = 1, 1
    elif len(scale) == 2:
        counts = scale[0], scale[1]
    elif scale[0] == p and math.prod(scale[1:]) == 1:
        counts = p, 1
    elif len(scale) == 4 and scale[1] == scale[3] == 1:
        counts = scale[0], scale[2]
    else:
        return None
    sides = block or (None, None)
    rows, columns = _side(p, counts[0], sides[0]), _side(q, counts[1], sides[1])
    return None if rows is None or columns is None else (counts, (rows, columns))


def _side(size: int, count: int, stated: int | None) -> int | None:
    """Side of the blocks if a number of them covers a side of a matrix."""
    if count in (1, size):
        return size // count if count else None
    exact = size // count if 0 < count < size and size % count == 0 else None
    sides = (stated, _MOST_USUAL_SIDE, exact, *_USUAL_SIDES)
    return next((side for side in sides if side and -(-size // side) == count), None)


def scaled(
    weight: torch.Tensor, scale: torch.Tensor, block: Sequence[int] | None = None
) -> torch.Tensor:
    """Multiply a matrix by its scales in float32, without another copy."""
    wide = weight.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    grid = grid_of(tuple(weight.shape), tuple(scale.shape), block)
    if grid is None or not wide.numel():
        return wide
    counts, (rows, columns) = grid
    matrix = wide.view(len(wide), -1)
    scales = scale.float().reshape(counts)
    for factors, part in zip(scales, matrix.split(rows), strict=True):
        part.mul_(factors.repeat_interleave(columns)[: matrix.shape[1]])
    return wide
