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


def count_signals(matrix: torch.Tensor, most: int = 96) -> int:
    """Number of singular values above 1.02 times the largest of the matrix with random signs.

    Args:
        matrix: Float32 entries, shape (p, q); its signs are changed during the computation, and
            restored.
        most: Larger counts are not told apart from this one.

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
    values = _leading(matrix, min(most, *size), _PASSES, source)
    return int((values > _ABOVE * edge).count_nonzero())


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
