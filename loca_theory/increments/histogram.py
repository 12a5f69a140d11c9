"""The one pass over the entries: mean, deviation, kurtosis and counts on a fixed grid.

Everything the tests need afterwards is a function of some thousand counts, whatever the number of
entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import special

from loca_theory.errors import InvalidArgumentError

if TYPE_CHECKING:
    import torch

_Array = NDArray[np.float64]

STEPS = 64
"""Cells of the grid a standard deviation."""

REACH = 8
"""The grid covers this many standard deviations to each side; one open cell lies beyond each."""


# Entries that are worked on at a time: nothing as large as the tensor is made.
_PIECE = 2**22


@dataclass(frozen=True)
class Histogram:
    """Counts of standardised entries z = (w − μ̂)/σ̂ on a grid of 1/64 from −8 to 8.

    Attributes:
        counts: Entries in each cell, the open end cells included; shape (1026,).
        mean: μ̂.
        deviation: σ̂, with divisor n.
        excess_kurtosis: Mean of z⁴ less 3: 0 for a normal law.
        zeros: Entries that are exactly 0.
    """

    counts: NDArray[np.int64]
    mean: float
    deviation: float
    excess_kurtosis: float
    zeros: int

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(self.counts.sum())

    @property
    def zero_fraction(self) -> float:
        """Share of the entries that are exactly 0: what rounding to few bits leaves unchanged."""
        return self.zeros / self.size


def histogram(entries: torch.Tensor) -> Histogram:
    """Count the entries of a tensor on the standard grid, on the tensor's own device.

    Args:
        entries: A real tensor of any shape, finite and not constant.

    Raises:
        InvalidArgumentError: an entry is not finite, or all are equal.
    """
    import torch

    flat = entries.detach().flatten()
    if not flat.is_floating_point() or flat.dtype.itemsize < torch.float32.itemsize:
        flat = flat.float()
    count = flat.numel()
    pieces = flat.split(_PIECE)
    mean = sum(float(piece.sum(dtype=torch.float64)) for piece in pieces) / max(count, 1)
    squares = sum(float((one - mean).square_().sum(dtype=torch.float64)) for one in pieces)
    deviation = float(np.sqrt(squares / max(count, 1)))
    if not np.isfinite(deviation) or not deviation > 0:
        msg = "needs finite entries that are not all equal"
        raise InvalidArgumentError(msg)
    cells = 2 * STEPS * REACH + 2
    counts = torch.zeros(cells, dtype=torch.int64, device=flat.device)
    fourth, nonzero = 0.0, 0
    for piece in pieces:
        z = (piece - mean).div_(deviation)
        fourth += float(z.square().square_().sum(dtype=torch.float64))
        places = z.mul_(STEPS).floor_().clamp_(-STEPS * REACH - 1, STEPS * REACH)
        places = places.add_(STEPS * REACH + 1).to(torch.int32)
        counts += torch.bincount(places, minlength=cells)
        nonzero += int(torch.count_nonzero(piece))
    kurtosis = fourth / count - 3.0
    return Histogram(counts.cpu().numpy(), mean, deviation, kurtosis, count - nonzero)


@cache
def grid_edges() -> _Array:
    """The 1025 edges between the cells, in standard deviations."""
    return np.arange(-STEPS * REACH, STEPS * REACH + 1) / STEPS


@cache
def normal_cells() -> _Array:
    """Probability of each cell under N(0, 1)."""
    return cell_probabilities(grid_edges())


def cell_probabilities(edges: _Array) -> _Array:
    """P(edge_i < Z ≤ edge_{i+1}) of a standard normal, the open ends included.

    Args:
        edges: Increasing along the last axis, shape (..., k).

    Returns:
        Shape (..., k + 1), each row summing to 1.
    """
    # By the smaller tail, so that the far cells keep their digits.
    below, above = special.ndtr(edges), special.ndtr(-edges)
    inner = np.where(edges[..., 1:] <= 0, np.diff(below), -np.diff(above))
    return np.concatenate([below[..., :1], inner, above[..., -1:]], axis=-1)


def coarse_cells(bins_per_deviation: int, reach: int) -> NDArray[np.int64]:
    """First grid cells of bins of equal width, with an open bin beyond each end.

    Args:
        bins_per_deviation: Bins in one standard deviation, a divisor of 64.
        reach: Standard deviations covered to each side, at most 8.

    Raises:
        InvalidArgumentError: the grid has no such cells.
    """
    if bins_per_deviation < 1 or STEPS % bins_per_deviation or not 1 <= reach <= REACH:
        msg = f"bins_per_deviation must divide {STEPS} and reach be 1 to {REACH}, "
        msg += f"not {bins_per_deviation} and {reach}"
        raise InvalidArgumentError(msg)
    width = STEPS // bins_per_deviation
    inner = np.arange((REACH - reach) * STEPS, (REACH + reach) * STEPS + 1, width) + 1
    return np.concatenate([[0], inner])
