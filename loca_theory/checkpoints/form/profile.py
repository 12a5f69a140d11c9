"""What one matrix retains by the size of its adapter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

# A large spectrum is summarised at every count up to the first number, and then at counts that grow
# by the second factor.
_EVERY_UP_TO, _GROWTH = 64, 1.03


@dataclass(eq=False)
class EnergyProfile:
    """Retained energy of one matrix as a function of the size of its adapter.

    Between the given sizes it is interpolated linearly. That is a lower bound, because the exact
    function is concave.

    Args:
        layer: What it is the profile of.
        form: Key of the adapter's form.
        units: Increasing numbers of units; the last is the largest possible size.
        retained: Retained energy at these sizes, of which the last is the energy of the matrix.
        cost: Cost of one unit, in trainable numbers or in bytes.
        entry_cost: Cost of any size above 0, besides that of the units.
        floor: The matrix gets at least this many units, or all it can have.
        cap: It gets no more units.
    """

    layer: Any
    form: str
    units: Any
    retained: Any
    cost: int
    entry_cost: int = 0
    floor: int = 0
    cap: int | None = None

    def __post_init__(self) -> None:
        self.energy = float(self.retained[-1])
        self.most = min(int(self.units[-1]), self.cap or int(self.units[-1]))
        self.units, self.retained = np.append(0.0, self.units), np.append(0.0, self.retained)
        self.least = min(self.floor, self.most)
        inside = self.units[(self.units > self.least) & (self.units < self.most)]
        sizes = np.unique([self.least, *inside, self.most])
        gains = np.diff(self.at(sizes)) / np.diff(sizes)
        # Rounding must not change the order of the segments, and no unit without energy is bought.
        gains = np.minimum.accumulate(gains)
        gains = gains[gains > 0]
        self._sizes, self.density = sizes[: len(gains) + 1], gains / self.cost
        self._falling, self._energies = -self.density, self.at(self._sizes)

    def at(self, size: Any) -> Any:
        """Retained energy at a size."""
        return np.interp(size, self.units, self.retained)

    def fraction(self, size: int) -> float:
        """Fraction of the energy that a size retains."""
        return fraction(self.at(size), self.energy)

    def cost_of(self, size: int) -> int:
        """Cost of a size."""
        return self.cost * size + (self.entry_cost if size else 0)

    def best(self, price: float) -> tuple[float, int]:
        """The largest energy less its price, and the size that has it."""
        bought = np.searchsorted(self._falling, -price)
        size = int(self._sizes[bought])
        value = float(self._energies[bought]) - price * self.cost_of(size)
        return (0.0, 0) if value <= 0 and not self.least else (value, size)

    def above(self, size: int) -> tuple[float, int]:
        """Gain per cost of the units above a size, and how many have it."""
        at = int(np.searchsorted(self._sizes, size, side="right"))
        is_last = at == len(self._sizes)
        return (0.0, 0) if is_last else (float(self.density[at - 1]), int(self._sizes[at]) - size)

    def affordable(self, size: int, left: float) -> float:
        """Number of units above a size that the rest of a total pays for."""
        return (left - (0 if size else self.entry_cost)) / self.cost


def fraction(part: float, whole: float) -> float:
    """A part as a fraction of a whole, up to rounding; 0 if the whole is 0."""
    return min(float(part) / whole, 1.0) if whole else 0.0


def largest_energies(squares: torch.Tensor) -> NDArray[np.float64]:
    """The energy of the largest coefficients, at the counts of :func:`unit_counts`."""
    # NumPy sorts large arrays several times as fast as torch on the CPU.
    ordered = np.sort(squares.flatten().cpu().numpy())[::-1]
    return np.cumsum(ordered, dtype=np.float64)[unit_counts(len(ordered)) - 1]


def unit_counts(most: int) -> NDArray[np.int64]:
    """Counts at which a spectrum is summarised.

    Every count up to 64; then each is about 3% larger than the one before.

    >>> unit_counts(70).tolist()[-4:]
    [64, 66, 68, 70]
    """
    start = min(most, _EVERY_UP_TO)
    steps = max(0, int(np.ceil(np.log(most / start) / np.log(_GROWTH))))
    grown = np.ceil(start * _GROWTH ** np.arange(1, steps + 1)).astype(np.int64)
    return np.union1d(np.arange(1, start + 1), np.append(grown[grown < most], most))
