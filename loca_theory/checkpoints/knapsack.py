r"""Knapsack problem of the sizes of adapters.

Matrix i retains :math:`E_i(u)` with u units: singular values of LoRA, coefficients of LoCA. A unit
of matrix i costs :math:`c_i`. The best sizes for a total T solve

.. math:: \max_{u} \sum_i E_i(u_i) \quad\text{with}\quad \sum_i c_i u_i \le T,
          \quad f \le u_i \le g.

Every :math:`E_i` is concave, because a method takes the largest components first. So units are
taken in the order of their gain per cost. If all units cost the same, the result is optimal.
Otherwise the unit that no longer fits is passed over for cheaper ones, and a few other orders are
tried. The first order with a fraction of that unit solves the linear relaxation, whose value is an
upper bound.

Source: G. B. Dantzig, Oper. Res. 5 (1957), for the relaxation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from loca_theory._arguments import whole_number
from loca_theory.checkpoints.energy_profile import EnergyProfile
from loca_theory.errors import InvalidArgumentError

_Array = NDArray[np.float64]
_Counts = NDArray[np.int64]

# Sums of many terms differ from the energy by rounding, in units of the energy.
_ROUNDING = 1e-10


class Knapsack:
    """Segments of all profiles between floors and caps, in the order of gain per cost.

    Args:
        profiles: Retained energy of each matrix by size.
        floor: Smallest number of units, or all that a matrix can have.
        cap: Largest number of units; None for no limit.

    Raises:
        InvalidArgumentError: there are no profiles, or the floor is negative or above the cap.
    """

    def __init__(self, profiles: Sequence[EnergyProfile], floor: int, cap: int | None) -> None:
        self.profiles, self.floor = profiles, whole_number("floor", floor)
        cap = None if cap is None else whole_number("cap", cap)
        if not profiles:
            msg = "there is no matrix to allocate to; pass at least one energy profile"
            raise InvalidArgumentError(msg)
        if self.floor < 0 or (cap is not None and cap < max(self.floor, 1)):
            msg = f"floor must be at least 0, and cap at least 1 and the floor, not {floor} and "
            msg += f"{cap}"
            raise InvalidArgumentError(msg)
        largest = np.array([one.units[-1] for one in profiles])
        self.caps = largest if cap is None else np.minimum(largest, cap)
        self.floors = np.minimum(self.caps, self.floor)
        self.costs = np.array([one.cost for one in profiles], dtype=np.int64)
        self.energy = sum(one.energy for one in profiles)
        self._sort_segments()

    def _sort_segments(self) -> None:
        owners, widths, slopes = [], [], []
        for i, one in enumerate(self.profiles):
            knots = np.concatenate([[0], one.units])
            bounded = np.clip(knots, self.floors[i], self.caps[i])
            slope = np.diff(one.retained, prepend=0) / np.diff(knots)
            # Rounding must not change the order of the segments of one matrix.
            slope = np.minimum.accumulate(slope)
            chosen = (np.diff(bounded) > 0) & (slope > 0)
            widths.append(np.diff(bounded)[chosen])
            slopes.append(slope[chosen])
            owners.append(np.full(int(chosen.sum()), i))
        owner, slope = np.concatenate(owners), np.concatenate(slopes)
        order = np.argsort(-slope / self.costs[owner], kind="stable")
        self.owner, self.slope = owner[order], slope[order]
        self.width = np.concatenate(widths)[order]
        self.unit_cost = self.costs[self.owner]

    def retained(self, sizes: _Counts) -> _Array:
        """Retained energy of each matrix."""
        return np.array(
            [
                np.interp(size, np.append(0, one.units), np.append(0.0, one.retained))
                for size, one in zip(sizes, self.profiles, strict=True)
            ]
        )

    def smallest_total(self) -> int:
        """Cost of the floors, or of the cheapest unit if there are none."""
        floors = int((self.floors * self.costs).sum())
        return floors or int(self.unit_cost.min(initial=self.costs.max()))

    def solve(self, total: int) -> tuple[_Counts, float]:
        """Sizes for a total that pays for the floors, and the bound of the relaxation.

        A cheap unit with a high gain per cost can leave too little for an expensive one that gains
        more. So units below a cost are also taken only after all others, for each cost; and no
        result is worse than the same size for every matrix.
        """
        left = total - int((self.floors * self.costs).sum())
        bound = float(self.retained(self.floors).sum()) + self._relaxed_gain(left)
        candidates = [self._taken_in_order(left, int(cost)) for cost in np.unique(self.unit_cost)]
        candidates.append(self.uniform(total))
        return max(candidates, key=lambda sizes: float(self.retained(sizes).sum())), bound

    def _taken_in_order(self, left: int, least_cost: int) -> _Counts:
        """Sizes if units of at least a cost are taken first, each in the order of its gain."""
        sizes = self.floors.copy()
        waiting = np.argsort(self.unit_cost < least_cost, kind="stable")
        # Each round ends with a unit that costs more than what is left, so there are at most twice
        # as many rounds as different costs.
        while (waiting := waiting[self.unit_cost[waiting] <= left]).size:
            spent = np.cumsum(self.width[waiting] * self.unit_cost[waiting])
            whole = int(np.searchsorted(spent, left, side="right"))
            np.add.at(sizes, self.owner[waiting[:whole]], self.width[waiting[:whole]])
            left -= int(spent[whole - 1]) if whole else 0
            if whole < len(waiting):
                split = waiting[whole]
                units, left = divmod(left, int(self.unit_cost[split]))
                sizes[self.owner[split]] += units
            waiting = waiting[whole + 1 :]
        return sizes

    def _relaxed_gain(self, left: int) -> float:
        """Largest gain above the floors if units can be divided."""
        spent = np.concatenate([[0], np.cumsum(self.width * self.unit_cost)])
        gained = np.concatenate([[0.0], np.cumsum(self.width * self.slope)])
        return float(np.interp(left, spent, gained))

    def total_for(self, fraction: float) -> int:
        """Cost of the first units that together retain a fraction of the energy.

        Raises:
            InvalidArgumentError: no sizes retain it.
        """
        target = fraction * self.energy
        gained = float(self.retained(self.floors).sum()) + np.cumsum(self.width * self.slope)
        start = float(self.retained(self.floors).sum())
        floors = int((self.floors * self.costs).sum())
        if start >= target:
            return floors
        slack = _ROUNDING * self.energy
        index = int(np.searchsorted(gained, target - slack))
        if index == len(gained):
            most = (float(gained[-1]) if len(gained) else start) / self.energy
            msg = f"no sizes retain {fraction} of the energy: the largest retain {most:.6g}; ask "
            msg += "for less, or leave out the cap"
            raise InvalidArgumentError(msg)
        before = start if index == 0 else float(gained[index - 1])
        needed = np.ceil((target - slack - before) / self.slope[index])
        units = int(np.clip(needed, 1, self.width[index]))
        spent = int((self.width[:index] * self.unit_cost[:index]).sum())
        return floors + spent + units * int(self.unit_cost[index])

    def uniform(self, total: int) -> _Counts:
        """The same size for every matrix, and one more unit for the first ones."""
        low, high = self.floor, int(self.caps.max())
        while low < high:
            middle = (low + high + 1) // 2
            fits = (np.clip(middle, self.floors, self.caps) * self.costs).sum() <= total
            low, high = (middle, high) if fits else (low, middle - 1)
        sizes = np.clip(low, self.floors, self.caps)
        left = total - int((sizes * self.costs).sum())
        for i, cost in enumerate(self.costs.tolist()):
            if cost <= left and sizes[i] < self.caps[i]:
                sizes[i] += 1
                left -= cost
        return sizes
