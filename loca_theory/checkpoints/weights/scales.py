"""Multiplication of quantised weights by their scales.

A scale belongs to the whole matrix, to a row, to a column or to a block of entries. In a tensor of
experts, the same holds for each expert.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

# Side of the blocks of DeepSeek's FP8, then of those of other formats.
_MOST_USUAL_SIDE, _USUAL_SIDES = 128, (64, 32, 16)
_TWO, _FOUR = 2, 4


@dataclass(frozen=True)
class ScaleGrid:
    """How scales cover a matrix.

    Attributes:
        shape: The scales as a matrix.
        block: Numbers of rows and columns that share a scale. The last blocks may be smaller.
        is_per_expert: Whether each expert has scales of its own.
    """

    shape: tuple[int, int]
    block: tuple[int, int]
    is_per_expert: bool = False


def grid_of(
    weight: tuple[int, ...],
    scale: tuple[int, ...],
    *,
    experts: bool = False,
    block: Sequence[int] | None = None,
) -> ScaleGrid | None:
    """Derive from the shapes how scales cover a weight.

    Args:
        weight: Shape of the weight; (experts, p, q) for experts, or else (p, ...), of which all but
            the first dimension are flattened.
        scale: Shape of the scales.
        experts: Whether the first dimension of the weight counts experts.
        block: Sides of the blocks, if the model's configuration states them.

    Returns:
        None if the scales do not cover the weight exactly.

    Example:
        >>> grid_of((576, 7168), (5, 56))  # DeepSeek-V3's blocks, of which the last is smaller
        ScaleGrid(shape=(5, 56), block=(128, 128), is_per_expert=False)
        >>> grid_of((64, 32), (64,)).block
        (1, 32)
    """
    is_per_expert = experts and math.prod(scale) != 1
    if is_per_expert:
        if scale[0] != weight[0]:
            return None
        scale = scale[1:]
    p, q = weight[-2:] if experts else (weight[0], math.prod(weight[1:]))
    shape = _as_matrix(scale, p)
    if shape is None:
        return None
    given = block or (None, None)
    rows = _side(p, shape[0], given[0])
    columns = _side(q, shape[1], given[1])
    if rows is None or columns is None:
        return None
    return ScaleGrid(shape, (rows, columns), is_per_expert)


def _as_matrix(scale: tuple[int, ...], p: int) -> tuple[int, int] | None:
    if math.prod(scale) == 1:
        return 1, 1
    if len(scale) == _TWO:
        return scale[0], scale[1]
    if scale[0] == p and math.prod(scale[1:]) == 1:
        return p, 1
    if len(scale) == _FOUR and scale[1] == scale[3] == 1:
        return scale[0], scale[2]
    return None


def _side(size: int, count: int, given: int | None) -> int | None:
    """Side of the blocks if a number of them covers a side of a matrix."""
    if count in (1, size):
        return size // count if count else None
    exact = (size // count,) if 0 < count < size and size % count == 0 else ()
    candidates = (*((given,) if given else ()), _MOST_USUAL_SIDE, *exact, *_USUAL_SIDES)
    return next((side for side in candidates if -(-size // side) == count), None)


def scaled(
    weight: torch.Tensor,
    scale: torch.Tensor,
    grid: ScaleGrid,
    *,
    zero_point: torch.Tensor | None = None,
    factor: float = 1.0,
) -> torch.Tensor:
    """Compute factor · scale · (weight − zero point) in float32, without another copy.

    Args:
        weight: The weight as stored: a matrix, a tensor of experts or a kernel.
        scale: Its scales, on ``grid``.
        grid: How the scales cover it.
        zero_point: What to subtract, on the same grid.
        factor: A constant by which everything is multiplied.
    """
    wide = weight.to(torch.float32, copy=True)
    if not wide.numel():
        return wide
    count = wide.shape[0] if grid.is_per_expert else 1
    scales = (scale.to(torch.float32) * factor).reshape(count, *grid.shape)
    zeros = None
    if zero_point is not None:
        zeros = zero_point.to(torch.float32).reshape(count, *grid.shape)
    # One scale for all fits any shape; other scales cover a matrix, or the matrix of each expert.
    if scales.numel() == 1:
        matrices = [wide.view(1, -1)]
    else:
        matrices = [one.view(one.shape[0], -1) for one in (wide if grid.is_per_expert else [wide])]
    for i, matrix in enumerate(matrices):
        if zeros is not None:
            for part, values in _aligned(matrix, zeros[i], grid):
                part.sub_(values)
        for part, values in _aligned(matrix, scales[i], grid):
            part.mul_(values)
    return wide


def _aligned(
    matrix: torch.Tensor, values: torch.Tensor, grid: ScaleGrid
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Views of a matrix, each with the values on a grid that broadcast to its entries."""
    if values.numel() == 1:
        yield matrix, values
        return
    rows, columns = grid.block
    if 1 < grid.shape[0] < len(matrix):
        values = values.repeat_interleave(rows, 0)[: len(matrix)]
    whole, rest = divmod(matrix.shape[1], columns)
    if whole:
        blocks = matrix[:, : whole * columns].unflatten(1, (whole, columns))
        yield blocks, values[:, :whole, None]
    if rest:
        yield matrix[:, whole * columns :], values[:, whole:]
