"""Errors and distances over all matrices of an extraction."""

from __future__ import annotations

import math
from collections.abc import Sequence

from loca_theory.checkpoints.extraction.rows import ExtractedMatrix


class ExtractionTotals:
    """Means over the matrices of an extraction, weighted by the energy of their increments."""

    matrices: tuple[ExtractedMatrix, ...]

    @property
    def error(self) -> float:
        """Relative squared error over all increments together, weighted by energy."""
        return self._mean([row.error for row in self.matrices])

    @property
    def distance(self) -> float | None:
        """The same squared distance to rounding cells, of the matrices that have some.

        None if no matrix has, as for the next two.
        """
        return self._mean_inside("distance")

    @property
    def nearest_error(self) -> float | None:
        """Error of the adapters that are nearest to the stored differences, of these matrices."""
        return self._mean_inside("nearest_error")

    @property
    def nearest_distance(self) -> float | None:
        """Squared distance of those adapters to the cells."""
        return self._mean_inside("nearest_distance")

    @property
    def moved(self) -> tuple[ExtractedMatrix, ...]:
        """The matrices whose adapters were moved into rounding cells."""
        return tuple(row for row in self.matrices if row.steps)

    @property
    def identical(self) -> float | None:
        """Fraction of the entries that PEFT gives back to the bit; see :class:`ExtractedMatrix`."""
        return self.same_bits("identical")

    def same_bits(self, field: str) -> float | None:
        """The same for one of the fields ``identical``, … of the rows."""
        counted = [row for row in self.matrices if row.identical is not None]
        sizes = [math.prod(row.shape) for row in counted]
        same = [size * getattr(row, field) for size, row in zip(sizes, counted, strict=True)]
        return sum(same) / sum(sizes) if sizes else None

    @property
    def split_error(self) -> float:
        """Error of the adapters that are nearest to the stored differences, of all matrices.

        Sizes are split by these, so it is what other splits are compared with.
        """
        rows = self.matrices
        return self._mean(
            [row.error if row.nearest_error is None else row.nearest_error for row in rows]
        )

    @property
    def uniform_error(self) -> float | None:
        """The same for the uniform split of the total; None if there is none."""
        errors = [row.uniform_error for row in self.matrices if row.uniform_error is not None]
        return self._mean(errors) if errors else None

    @property
    def equal_error(self) -> float | None:
        """The same for the split of what the uniform sizes cost; None if there is none."""
        return self.matrices[0].equal_error if self.matrices else None

    @property
    def least_error(self) -> float | None:
        """Lower bound of the same for any split of the total; None if there is none."""
        return self.matrices[0].least_error if self.matrices else None

    @property
    def rounding_note(self) -> str:
        """How rounding of the fine-tune was handled, in words; "" if it has 24 significant bits."""
        inside, moved = [row for row in self.matrices if row.format], self.moved
        if not inside:
            return ""
        formats = " and ".join(sorted({row.format for row in inside if row.format}))
        stored = f"The fine-tune is stored in {formats}, and the stored difference is rounded."
        if not moved:
            return f"{stored} Fitting to the rounding did not help; the plain fit is kept."
        error, nearest_error, distance, nearest_distance = (
            _mean(moved, [getattr(row, name) for row in moved])
            for name in ("error", "nearest_error", "distance", "nearest_distance")
        )
        text = (
            f"{stored} {len(moved)} of {len(inside)} adapters were moved into the rounding cells, "
            "which say where the change itself was: their squared distance to the cells went from "
            f"{nearest_distance:.4g} to {distance:.4g} of the energy, their error against the "
            f"stored difference from {nearest_error:.4g} to {error:.4g}."
        )
        if error > 1:
            text += " An error above 1 means that rounding left out most of the change."
        return text

    def _mean(self, errors: Sequence[float]) -> float:
        return _mean(self.matrices, errors)

    def _mean_inside(self, name: str) -> float | None:
        """The mean of a field over the matrices with rounding cells."""
        inside = [row for row in self.matrices if row.format]
        return _mean(inside, [getattr(row, name) for row in inside]) if inside else None


def _mean(rows: Sequence[ExtractedMatrix], values: Sequence[float]) -> float:
    """The mean of a value of each matrix, weighted by energy."""
    total = sum(row.energy for row in rows)
    weighted = zip(values, rows, strict=True)
    return sum(value * row.energy for value, row in weighted) / total if total else 0.0
