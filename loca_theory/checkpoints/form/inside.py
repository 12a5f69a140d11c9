"""Adapters inside the rounding cells of a stored pair, beside the best ones of its difference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from loca_theory.rounding import RoundingCells, format_of, rounding_cells
from loca_theory.transforms.inputs import times_power_of_two

# Significant bits of float32, which hide nothing.
_FULL = 24
_ROWS = 256


@dataclass(frozen=True)
class Inside:
    """How an adapter lies to the rounding cells.

    Distances are squared, summed over the entries, and relative to the energy of the stored
    difference, as errors are.

    Attributes:
        format: The format of the fine-tune, by its values.
        steps: Steps that led from the nearest adapter into the cells; 0 if it is that one.
        distance: Distance of the adapter, as it is stored.
        nearest_error: Error of the adapter that is nearest to the stored difference.
        nearest_distance: Distance of that adapter.
        held_out: Distance of entries that the adapter was not fitted to.
    """

    format: str
    steps: int
    distance: float
    nearest_error: float
    nearest_distance: float
    held_out: float

    def plus(self, other: Inside, fraction: float) -> Inside:
        """The same of this matrix and another one, which has a fraction of the energy of both."""
        names = ("distance", "nearest_error", "nearest_distance", "held_out")
        means = {
            name: (1 - fraction) * getattr(self, name) + fraction * getattr(other, name)
            for name in names
        }
        return replace(self, steps=max(self.steps, other.steps), **means)


@dataclass(frozen=True)
class PairCells:
    """The rounding cells of a matrix.

    Attributes:
        format: The format of the fine-tune.
        cells: The cells in units of 2ᵉ, as the increment is.
    """

    format: str
    cells: RoundingCells

    @classmethod
    def of(cls, base: torch.Tensor, tuned: torch.Tensor, exponent: int) -> PairCells | None:
        """The cells of a stored pair; None if the fine-tune has 24 significant bits or more.

        A base of fewer bits hides nothing: the adapter is for this base as it is.
        """
        form = format_of(tuned)
        if form is None or form.significant_bits >= _FULL:
            return None
        cells = rounding_cells(base, tuned, form)
        low, high = (times_power_of_two(end, -exponent) for end in (cells.low, cells.high))
        return cls(form.name, RoundingCells(low, high))

    def turned(self) -> PairCells:
        """The cells of the transposed matrix."""
        return replace(self, cells=RoundingCells(self.cells.low.mT, self.cells.high.mT))

    def experts(self, count: int) -> list[PairCells]:
        """The cells of ``count`` matrices, one below the other."""
        parts = (end.chunk(count) for end in (self.cells.low, self.cells.high))
        return [replace(self, cells=RoundingCells(*ends)) for ends in zip(*parts, strict=True)]

    def distance(self, energy: float, rows_of: Callable[[slice], torch.Tensor]) -> float:
        """The squared distance of an increment relative to an energy.

        Args:
            energy: That of the stored difference in units of 4ᵉ.
            rows_of: Makes some rows of the increment, in units of 2ᵉ.
        """
        total = 0.0
        for start in range(0, len(self.cells.low), _ROWS):
            rows = slice(start, start + _ROWS)
            increment = rows_of(rows)
            gap = increment.clamp(self.cells.low[rows], self.cells.high[rows]).sub_(increment)
            total += float(torch.linalg.vector_norm(gap, dtype=torch.float64)) ** 2
        return total / energy if energy else 0.0
