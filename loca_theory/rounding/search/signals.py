r"""Singular values above those of noise, whose edge comes from the same matrix with random signs.

Random signs keep the size of every entry, in rows and columns as they are, and end what the entries
have in common. The largest singular value that is left is the edge.
"""

from __future__ import annotations

import numpy as np
import torch

from loca_theory.sweeps import generator

# The edge is itself random, by about this fraction.
_ABOVE = 1.02
_EDGE_COLUMNS, _EDGE_PASSES = 8, 6
_PASSES = 4
_ROWS, _TINY = 256, 1e-300


def count_signals(matrix: torch.Tensor, limit: int = 96) -> int:
    """Number of singular values above 1.02 times the largest of the matrix with random signs.

    Args:
        matrix: Float32 entries, shape (p, q); its signs are changed during the computation, and
            restored.
        limit: Larger counts are not told apart from this one.

    Returns:
        The count. Values near the edge are computed a little too small, so it may miss them.
    """
    source = generator(0, "random signs")
    size = matrix.shape
    signs = torch.from_numpy(source.integers(0, 2, size, dtype=np.int8)).to(matrix.device)
    signs.mul_(2).sub_(1)
    matrix.mul_(signs)
    edge = float(_leading(matrix, _EDGE_COLUMNS, _EDGE_PASSES, source)[0])
    matrix.mul_(signs)
    values = _leading(matrix, min(limit, *size), _PASSES, source)
    return int((values > _ABOVE * edge).count_nonzero())


def scaling_signal(gap: torch.Tensor, weight: torch.Tensor) -> float:
    """How much more a gap lies along the rows or columns of the weights than by chance.

    The squared cosine between a row of q random entries and a row of weights has the mean 1/q.
    A merge that scales rows by numbers near 1, as DoRA does, moves them along the weights.

    Args:
        gap: What a fit leaves of a change, shape (p, q).
        weight: W, of the same shape.

    Returns:
        The mean of cos² over rows minus 1/q, or over columns minus 1/p if that is larger.
    """
    rows = torch.zeros(3, gap.shape[0], dtype=torch.float64, device=gap.device)
    columns = torch.zeros(3, gap.shape[1], dtype=torch.float64, device=gap.device)
    parts = (part.split(_ROWS, dim=axis) for part, axis in ((gap, 0), (weight, 0), (rows, 1)))
    for change, w, of_rows in zip(*parts, strict=True):
        g, w = change.double(), w.double()
        for index, product in enumerate((g * w, g * g, w * w)):
            of_rows[index] = product.sum(dim=1)
            columns[index] += product.sum(dim=0)
    return max(
        float((inner**2 / (of_gap * of_weight).clamp(min=_TINY)).mean()) - 1 / length
        for (inner, of_gap, of_weight), length in ((rows, gap.shape[1]), (columns, gap.shape[0]))
    )


def _leading(
    matrix: torch.Tensor, count: int, passes: int, source: np.random.Generator
) -> torch.Tensor:
    """Estimates of the largest singular values from below, by iteration on a random subspace."""
    start = source.standard_normal((matrix.shape[1], min(count, *matrix.shape)))
    right = torch.linalg.qr(torch.from_numpy(start).to(matrix)).Q
    for _ in range(passes - 1):
        left = torch.linalg.qr(matrix @ right).Q
        right = torch.linalg.qr(matrix.mT @ left).Q
    return torch.linalg.svdvals(matrix.mT @ torch.linalg.qr(matrix @ right).Q)
