"""Mean, standard deviation, kurtosis and counts of the entries on a fixed grid.

The normality tests need only these numbers: about a thousand counts, whatever the number of
entries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special

from loca_theory._types import Array
from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms.inputs import TensorLike, ends, exponent_of, times_power_of_two, usable

RESOLUTION = 64
"""Grid cells per standard deviation."""

REACH = 8
"""The grid covers this many standard deviations to each side, with an open cell beyond each end."""


# Entries processed at a time, so that temporary tensors stay in the processor's cache; on a GPU,
# where each step has a cost, so that none is as large as the input.
_PIECE, _PIECE_ON_GPU = 2**16, 2**22


@dataclass(frozen=True)
class Histogram:
    """Counts of standardised entries z = (w − μ̂)/σ̂ on a grid of 1/64 from −8 to 8.

    Attributes:
        counts: Number of entries in each cell, including the open end cells; shape (1026,).
        mean: μ̂.
        standard_deviation: σ̂, with divisor n.
        excess_kurtosis: Mean of z⁴ less 3: 0 for a normal law.
        zeros: Number of entries that are exactly 0.
    """

    counts: NDArray[np.int64]
    mean: float
    standard_deviation: float
    excess_kurtosis: float
    zeros: int

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(self.counts.sum())

    @property
    def zero_fraction(self) -> float:
        """Fraction of the entries that are exactly 0, for example after rounding to few bits."""
        return self.zeros / self.size


def histogram(entries: TensorLike) -> Histogram:
    """Count the entries of a tensor on the standard grid, on the tensor's own device.

    If the entries are multiplied by a positive constant, however large or small, only the mean and
    the standard deviation change.
    """
    flat = usable(entries, "entries").detach().flatten()
    low, high = ends(flat, "entries")
    count, exponent = flat.numel(), exponent_of(low, high)
    if low == high:
        raise InvalidArgumentError(
            "entries must not all be equal: constant entries have no distribution; leave them out"
        )

    size = _PIECE if flat.device.type == "cpu" else _PIECE_ON_GPU

    def pieces() -> Iterator[torch.Tensor]:
        return (times_power_of_two(piece, -exponent) for piece in flat.split(size))

    # Centre at the mean rounded to the entries' own type, so that the differences of entries close
    # to it are exact. The rounding of the mean is corrected by `correction`.
    mean = sum(float(piece.sum(dtype=torch.float64)) for piece in pieces()) / count
    centre = float(torch.tensor(mean, dtype=flat.dtype))
    correction = squares = 0.0
    for piece in pieces():
        apart = piece - centre
        correction += float(apart.sum(dtype=torch.float64)) / count
        squares += float(apart.square_().sum(dtype=torch.float64)) / count
    standard_deviation = math.sqrt(squares - correction**2)
    cells = 2 * RESOLUTION * REACH + 2
    counts = torch.zeros(cells, dtype=torch.int64, device=flat.device)
    fourth = 0.0
    for piece in pieces():
        z = (piece - centre).sub_(correction).div_(standard_deviation)
        fourth += float(z.square().square_().sum(dtype=torch.float64))
        bins = z.mul_(RESOLUTION).floor_().clamp_(-RESOLUTION * REACH - 1, RESOLUTION * REACH)
        bins = bins.add_(RESOLUTION * REACH + 1).to(torch.int32)
        counts += torch.bincount(bins, minlength=cells)
    return Histogram(
        counts.cpu().numpy(),
        mean=math.ldexp(mean, exponent),
        standard_deviation=max(math.ldexp(standard_deviation, exponent), math.ulp(0.0)),
        excess_kurtosis=fourth / count - 3.0,
        zeros=count - int(torch.count_nonzero(flat)),
    )


@cache
def grid_edges() -> Array:
    """The 1025 edges between the cells, in standard deviations."""
    return np.arange(-RESOLUTION * REACH, RESOLUTION * REACH + 1) / RESOLUTION


@cache
def normal_cells() -> Array:
    """Probability of each cell under N(0, 1)."""
    return cell_probabilities(grid_edges())


def cell_probabilities(edges: Array) -> Array:
    """P(edge_i < Z ≤ edge_{i+1}) of a standard normal, including the open ends.

    Returns:
        Shape (..., k + 1), each row summing to 1.
    """
    # Take differences of the smaller tail, so that far cells keep their relative accuracy.
    below, above = special.ndtr(edges), special.ndtr(-edges)
    inner = np.where(edges[..., 1:] <= 0, np.diff(below), -np.diff(above))
    return np.concatenate([below[..., :1], inner, above[..., -1:]], axis=-1)


def coarse_cells(bins_per_sigma: int, reach: int) -> NDArray[np.int64]:
    """First grid cell of each bin of equal width, with an open bin beyond each end."""
    if bins_per_sigma < 1 or RESOLUTION % bins_per_sigma or not 1 <= reach <= REACH:
        raise InvalidArgumentError(
            f"bins_per_sigma must divide {RESOLUTION} and reach be 1 to {REACH}, "
            f"not {bins_per_sigma} and {reach}"
        )
    width = RESOLUTION // bins_per_sigma
    inner = np.arange((REACH - reach) * RESOLUTION, (REACH + reach) * RESOLUTION + 1, width) + 1
    return np.concatenate([[0], inner])
