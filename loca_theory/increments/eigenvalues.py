"""Squared singular values: all of them, or the leading ones of a large matrix.

Values only, from the smaller Gram matrix, or from a block Krylov space: no dense SVD.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

_Array = NDArray[np.float64]

# Up to this smaller side the Gram matrix is formed and solved in double precision.
_DOUBLE_UP_TO = 1536
# Blocks of the Krylov space, and columns of a block beyond the values wanted.
_STEPS, _SPARE = 8, 16


def squared_singular_values(matrix: torch.Tensor) -> _Array:
    """Eigenvalues of the smaller Gram matrix, smallest first, on the matrix's own device.

    Args:
        matrix: W, shape (p, q), float32 or float64.

    Returns:
        min(p, q) values, not negative. For float32 matrices with both sides above 1536 they are
        computed in single precision: good to about 1e-6 of the largest.
    """
    import torch

    if min(matrix.shape) <= _DOUBLE_UP_TO:
        matrix = matrix.double()
    gram = matrix @ matrix.mT if matrix.shape[0] < matrix.shape[1] else matrix.mT @ matrix
    return torch.linalg.eigvalsh(gram).clamp_(min=0).cpu().numpy().astype(np.float64)


def leading_squared_singular_values(
    matrix: torch.Tensor, count: int, rng: np.random.Generator
) -> _Array:
    r"""The largest squared singular values, largest first, from a block Krylov space.

    With A = WᵀW and a random block X of count + 16 columns, the Ritz values of A in the span of
    :math:`X, AX, …, A^7X`. They are lower bounds; without any gap in the spectrum, as for
    independent entries, their sum is short by less than 0.1%.

    Args:
        matrix: W, shape (p, q), float32 or float64.
        count: How many.
        rng: Draws the starting block.

    Source: C. Musco and C. Musco, NeurIPS 2015.
    """
    import torch

    tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.mT
    side = tall.shape[1]
    width = count + _SPARE
    if width * _STEPS * 2 >= side:
        return squared_singular_values(matrix)[::-1][:count]
    start = torch.from_numpy(rng.standard_normal((side, width))).to(tall)
    block, blocks = torch.linalg.qr(start).Q, []
    for _ in range(_STEPS):
        blocks.append(block)
        block = torch.linalg.qr(tall.mT @ (tall @ block)).Q
    basis = torch.linalg.qr(torch.cat(blocks, dim=1)).Q
    image = (tall @ basis).double()
    values = torch.linalg.eigvalsh(image.mT @ image)
    return values.flip(0)[:count].cpu().numpy()
