"""Retained energy of a matrix as a function of the size of its adapter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loca_theory._arguments import whole_number
from loca_theory.errors import InvalidArgumentError

_Array = NDArray[np.float64]
_Counts = NDArray[np.int64]

# Slopes of a profile may increase by this fraction of the first one, by rounding.
_ROUNDING = 1e-5
# The spectrum of a large matrix is summarised at every count up to the first number, and then at
# counts that grow by the second factor.
_EVERY_UP_TO, _GROWTH = 64, 1.03


@dataclass(frozen=True)
class EnergyProfile:
    """Retained energy of one matrix as a function of the size of its adapter.

    Between the given counts it is interpolated linearly. That is a lower bound, because the exact
    function is concave.

    Attributes:
        name: Name of the matrix.
        cost: Cost of one unit, in trainable numbers or in bytes.
        units: Increasing numbers of units, the first at least 1; the last is the largest possible
            size.
        retained: Retained energy at these counts.
        energy: Energy of the matrix.
        method: Method of the adapter.
        entry_cost: Cost of any size above 0, besides that of the units.

    Raises:
        InvalidArgumentError: the arrays are empty or of different lengths, the cost or a count is
            not positive, or the retained energies are not increasing, concave and at most
            ``energy``.
    """

    name: str
    cost: int
    units: _Counts
    retained: _Array
    energy: float
    method: str = ""
    entry_cost: int = 0

    def __post_init__(self) -> None:
        units, retained = np.asarray(self.units), np.asarray(self.retained, dtype=np.float64)
        obstacle = self._obstacle(units, retained)
        if obstacle is not None:
            msg = f"the energy profile of {self.name} {obstacle}"
            raise InvalidArgumentError(msg)
        object.__setattr__(self, "units", units.astype(np.int64))
        object.__setattr__(self, "retained", retained)

    def _obstacle(self, units: NDArray[np.generic], retained: _Array) -> str | None:
        """What is wrong with the arguments; None if nothing is."""
        if units.ndim != 1 or units.shape != retained.shape or not units.size:
            return "needs as many counts as energies, and at least one"
        if units.dtype.kind not in "iu" or (np.diff(units, prepend=0) <= 0).any():
            return "must have whole, increasing counts from 1"
        if whole_number("cost", self.cost) < 1:
            return f"must have a positive cost, not {self.cost}"
        if not (np.isfinite(retained).all() and np.isfinite(self.energy)):
            return "must be finite"
        slopes = np.diff(retained, prepend=0) / np.diff(units, prepend=0)
        slack = _ROUNDING * slopes[0]
        if slopes.min() < -slack or (np.diff(slopes) > slack).any():
            return "must increase by less and less"
        if retained[-1] > self.energy * (1 + _ROUNDING):
            return f"retains {retained[-1]} of {self.energy}"
        return None

    def at(self, size: int) -> float:
        """Retained energy at a size."""
        return float(np.interp(size, np.append(0, self.units), np.append(0.0, self.retained)))

    def cost_of(self, size: int) -> int:
        """Cost of a size."""
        return self.cost * size + (self.entry_cost if size else 0)

    @classmethod
    def restored(
        cls, name: str, method: str, stored: Mapping[str, Any], costs: tuple[int, int]
    ) -> EnergyProfile:
        """A profile from stored data; without units, of every rank."""
        retained, (cost, entry_cost) = np.asarray(stored["retained"]), costs
        units = np.arange(1, len(retained) + 1) if stored["units"] is None else stored["units"]
        # The last value is the energy, up to the rounding of the transform.
        return cls(name, cost, units, retained, float(retained[-1]), method, entry_cost)

    @classmethod
    def of_ranks(
        cls, name: str, squared_singular_values: ArrayLike, shape: tuple[int, int], cost: int = 1
    ) -> EnergyProfile:
        """Exact profile of LoRA.

        Args:
            name: Name of the matrix.
            squared_singular_values: All of them, in any order.
            shape: (p, q). One rank costs p + q numbers.
            cost: Cost of one number.
        """
        ordered = np.sort(np.asarray(squared_singular_values, dtype=np.float64))[::-1]
        retained = np.cumsum(ordered)
        units = np.arange(1, len(ordered) + 1)
        return cls(name, cost * sum(shape), units, retained, float(retained[-1]))

    @classmethod
    def of_components(
        cls, name: str, squared_coefficients: ArrayLike, cost: int = 1
    ) -> EnergyProfile:
        """Profile of LoCA at a few hundred counts; every count up to 64 is among them.

        Args:
            name: Name of the matrix.
            squared_coefficients: All squared coefficients of the DCT, in any order and shape.
            cost: Cost of one coefficient; with its location, if that is counted.
        """
        ordered = np.sort(np.asarray(squared_coefficients), axis=None)[::-1]
        retained = np.cumsum(ordered, dtype=np.float64)
        units = component_counts(len(ordered))
        return cls(name, cost, units, retained[units - 1], float(retained[-1]))


def component_counts(most: int) -> _Counts:
    """Counts at which the spectrum of a matrix is summarised.

    Every count up to 64; then each is about 3% larger than the one before.

    Args:
        most: The largest count, p q.

    >>> component_counts(70).tolist()[-4:]
    [64, 66, 68, 70]
    """
    start = min(most, _EVERY_UP_TO)
    steps = max(0, int(np.ceil(np.log(most / start) / np.log(_GROWTH))))
    grown = np.ceil(start * _GROWTH ** np.arange(1, steps + 1)).astype(np.int64)
    return np.union1d(np.arange(1, start + 1), np.append(grown[grown < most], most))
