r"""Recover the low-rank change Δ = BA of a fine-tune from its rounded weights.

The fit is the matrix of rank r that lies nearest to all rounding cells. The cell of an entry is the
interval [l, h] of changes that round to its stored weight; d = W' − W is the rounded change.

.. math:: \min_{B, A}\; \tfrac12 \sum_{ij}
          \operatorname{dist}\bigl((BA)_{ij}, [l_{ij}, h_{ij}]\bigr)^2

The truncated SVD of d is the start. Its errors are those of rounding; a cell says more than its
centre, since an entry that has not changed may have moved by up to half a step. If Δ has rank r,
and r(p + q) is small against the number of changed entries, the fit recovers Δ.

The cells are first made narrower at both ends by 0.1·r(p + q)/pq of their median width. The points
that are found then lie inside, not on the border, and nearer to Δ.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from loca_theory._arguments import whole_number
from loca_theory.errors import InvalidArgumentError
from loca_theory.increments.truncated_svd import truncated_svd
from loca_theory.rounding.cells import RoundingCells
from loca_theory.rounding.fit.descent import Evaluation, minimise

# Rows of a block that stays in the cache with its cells, and on a GPU.
_ROWS, _ROWS_ON_A_GPU = 64, 4096
# About the number of entries in which a fit is checked to be done.
_LOOKED_AT = 2**19
# The error of the rounding in d is far larger than what the start misses.
_TOLERANCE = 1e-3
# The fraction outside is estimated from one column in this many.
_EVERY = 16
ENOUGH = 1e-4
"""A fit ends when at most this fraction of the entries is outside."""


@dataclass(frozen=True)
class LowRankFit:
    """A matrix BA near to the cells.

    Attributes:
        b: B, shape (p, r).
        a: A, shape (r, q).
        inside: Fraction of the entries of BA that lie in their cells.
    """

    b: torch.Tensor
    a: torch.Tensor
    inside: float

    @property
    def rank(self) -> int:
        """Number of columns of B."""
        return self.b.shape[1]

    def increment(self) -> torch.Tensor:
        """BA, shape (p, q)."""
        return self.b @ self.a


def fit_low_rank(
    change: torch.Tensor,
    cells: RoundingCells,
    rank: int,
    *,
    steps: int = 60,
    is_patient: bool = False,
) -> LowRankFit:
    """Fit a matrix of rank r to the cells of a pair of matrices.

    Args:
        change: d = W' - W as stored, float32, shape (p, q); 0 where a cell is infinite.
        cells: The cells, float32. An entry whose cell is infinite has no influence.
        rank: r, from 1 to min(p, q).
        steps: Steps of the descent at most; 0 for the truncated SVD of d.
        is_patient: Whether to go on where the distance hardly falls, until the steps are used up.

    Returns:
        Factors whose columns and rows have equal norms at the start.

    Raises:
        InvalidArgumentError: r is not between 1 and min(p, q).
    """
    if not 1 <= whole_number("rank", rank) <= min(change.shape):
        raise InvalidArgumentError(
            f"rank must be from 1 to {min(change.shape)} for a matrix of shape "
            f"{tuple(change.shape)}, not {rank}"
        )
    start = truncated_svd(change, rank, tolerance=_TOLERANCE)
    root = start.s.sqrt()
    b, a = start.u * root, root[:, None] * start.vh
    if steps:
        distance = LowRankDistance(cells, root.clamp(min=float(root.max()) * 1e-6))
        stride = max(1, change.numel() // _LOOKED_AT)
        sample = RoundingCells(cells.low[::stride], cells.high[::stride])

        def is_done(x: torch.Tensor) -> bool:
            b, a = distance.split(x)
            return fraction_inside(b[::stride], a, sample) > 1 - ENOUGH

        x = minimise(
            distance.evaluate,
            distance.join(b, a),
            steps=steps,
            is_done=is_done,
            is_patient=is_patient,
        )
        b, a = distance.split(x)
    return LowRankFit(b, a, fraction_inside(b, a, cells))


def fraction_inside(b: torch.Tensor, a: torch.Tensor, cells: RoundingCells) -> float:
    """Fraction of the entries of BA that lie in their cells."""
    size = _block(b)
    parts = zip(b.split(size), cells.low.split(size), cells.high.split(size), strict=True)
    count = sum(
        int(RoundingCells(low, high).contain(rows @ a).count_nonzero()) for rows, low, high in parts
    )
    return count / cells.low.numel()


class LowRankDistance:
    """Half the squared distance of BA to shrunk cells, as a function of its scaled factors.

    BᵀB and AAᵀ are diagonal at the start, with the singular values: divided by their roots, the
    unknowns have one scale.
    """

    def __init__(self, cells: RoundingCells, root: torch.Tensor) -> None:
        self._root = root
        (p, q), r = cells.low.shape, len(root)
        narrow = cells.shrunk(r * (p + q))
        self._low, self._high = narrow.low, narrow.high

    def join(self, b: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        """The unknowns of two factors."""
        return torch.cat([(b * self._root).reshape(-1), (a * self._root[:, None]).reshape(-1)])

    def split(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The factors of unknowns."""
        r, border = len(self._root), len(self._low) * len(self._root)
        return x[:border].view(-1, r) / self._root, x[border:].view(r, -1) / self._root[:, None]

    def evaluate(self, x: torch.Tensor) -> Evaluation:
        """The distance and its gradient."""
        b, a = self.split(x)
        of_b, of_a = torch.empty_like(b), torch.zeros_like(a)
        value, outside, size = 0.0, 0, _block(b)
        parts = (part.split(size) for part in (b, of_b, self._low, self._high))
        for rows, of_rows, low, high in zip(*parts, strict=True):
            product = rows @ a
            gap = product.clamp(low, high).sub_(product)
            torch.matmul(gap, a.mT, out=of_rows)
            of_a.addmm_(rows.mT, gap)
            value += float(torch.dot(gap.reshape(-1), gap.reshape(-1)))
            outside += int(gap[:, ::_EVERY].count_nonzero())
        gradient = torch.cat(
            [(of_b / self._root).reshape(-1), (of_a / self._root[:, None]).reshape(-1)]
        ).neg_()
        return Evaluation(value / 2, gradient, outside * _EVERY / self._low.numel())


def _block(matrix: torch.Tensor) -> int:
    """Rows that are computed at a time."""
    return _ROWS_ON_A_GPU if matrix.is_cuda else _ROWS
