"""The sizes that the adapter of one matrix can have: what each retains and costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class EnergyProfile:
    """Retained energy of one matrix as a function of the size of its adapter.

    Between the given sizes it is interpolated linearly. That is a lower bound, because the exact
    function is concave.

    Attributes:
        name: Name of the matrix.
        method: Method of the adapter.
        units: Increasing numbers of units; the last is the largest possible size.
        retained: Retained energy at these sizes, of which the last is the energy of the matrix.
        cost: Cost of one unit, in trainable numbers or in bytes.
        entry_cost: Cost of any size above 0, besides that of the units.
    """

    name: str
    method: str
    units: NDArray[np.int64]
    retained: NDArray[np.float64]
    cost: int
    entry_cost: int = 0

    @property
    def energy(self) -> float:
        """Energy of the matrix."""
        return float(self.retained[-1])

    def fraction(self, size: int) -> float:
        """Fraction of the energy that a size retains."""
        units, retained = np.append(0, self.units), np.append(0.0, self.retained)
        return fraction(float(np.interp(size, units, retained)), self.energy)

    def cost_of(self, size: int) -> int:
        """Cost of a size."""
        return self.cost * size + (self.entry_cost if size else 0)


class Offer:
    """The sizes of one matrix by one method, from the floor to the cap."""

    def __init__(self, profile: EnergyProfile, floor: int, cap: int | None) -> None:
        self.profile = profile
        most = int(profile.units[-1]) if cap is None else min(int(profile.units[-1]), cap)
        self.least, self.most = min(floor, most), most
        inside = (profile.units > self.least) & (profile.units < most)
        units = np.unique([self.least, *profile.units[inside], most])
        self._units = np.append(0, profile.units)
        self._energies = np.append(0.0, profile.retained)
        slopes = np.diff(self.at(units)) / np.diff(units)
        # Rounding must not change the order of the segments, and no unit without energy is bought.
        slopes = np.minimum.accumulate(slopes)
        slopes = slopes[slopes > 0]
        self.units, self.density = units[: len(slopes) + 1], slopes / profile.cost
        self._falling, self._retained = -self.density, self.at(self.units)

    def at(self, size: Any) -> Any:
        """Retained energy at a size."""
        return np.interp(size, self._units, self._energies)

    def best(self, price: float) -> tuple[float, int]:
        """The largest energy less its price, and the size that has it."""
        bought = int(np.searchsorted(self._falling, -price))
        size = int(self.units[bought])
        value = float(self._retained[bought]) - price * self.profile.cost_of(size)
        return (0.0, 0) if value <= 0 and not self.least else (value, size)

    def above(self, size: int) -> tuple[float, int]:
        """Gain per cost of the units above a size, and how many have it."""
        at = int(np.searchsorted(self.units, size, side="right"))
        is_last = at == len(self.units)
        return (0.0, 0) if is_last else (float(self.density[at - 1]), int(self.units[at]) - size)

    def affordable(self, size: int, left: float) -> float:
        """Number of units above a size that the rest of a total pays for."""
        return (left - (0 if size else self.profile.entry_cost)) / self.profile.cost


def fraction(part: float, whole: float) -> float:
    """The fraction that a part is of a whole, up to rounding; 0 of nothing."""
    return min(float(part) / whole, 1.0) if whole else 0.0
