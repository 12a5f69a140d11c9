"""The DCT as a dense matrix."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

_ROWS = 64


def dct_matrix(
    n: int, *, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
) -> torch.Tensor:
    r"""The orthonormal DCT-II matrix :math:`C` of order n.

    .. math:: C_{ij} = \sqrt{2/n}\; k_i \cos\frac{\pi (2j+1) i}{2n},
              \qquad k_0 = 1/\sqrt2,\; k_i = 1 \text{ for } i > 0 .

    ``dct(x) == C @ x`` and ``idct(x) == C.T @ x``. The entries are computed in float64, with the
    phase :math:`(2j+1)i` reduced modulo 4n in integers, and cast afterwards: built in float32,
    the matrix of order 4096 loses three digits of orthogonality.

    Returns:
        The (n, n) matrix. All callers share one copy per size, dtype and device, so never write to
        it. ``dct_matrix.cache_clear()`` frees all copies.

    Source: the definition of C below the inverse DCT of the paper (Ahmed et al., 1974).
    """
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:  # "cuda" and "cuda:0" share a copy
        device = torch.device("cuda", torch.cuda.current_device())
    return _shared_matrix(n, dtype, device)


@cache
def _shared_matrix(n: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    # A tensor that was created in inference mode could not be used in a graph later.
    with torch.inference_mode(mode=False):
        matrix = torch.empty(n, n, dtype=dtype)
        # By blocks of rows: in float64, the matrix at once would need several times its memory.
        for start in range(0, n, _ROWS):
            matrix[start : start + _ROWS] = torch.from_numpy(
                _rows(n, np.arange(start, min(start + _ROWS, n)))
            )
        return matrix.to(device)


def _rows(n: int, frequencies: NDArray[np.int64]) -> NDArray[np.float64]:
    phase = ((2 * np.arange(n) + 1) * frequencies[:, None]) % (4 * n)
    rows = np.sqrt(2.0 / n) * np.cos(np.pi * phase / (2 * n))
    rows[frequencies == 0] = np.sqrt(1.0 / n)
    return rows


dct_matrix.cache_clear = _shared_matrix.cache_clear  # type: ignore[attr-defined]
