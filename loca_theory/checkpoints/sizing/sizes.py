r"""Sizes of the adapters of several matrices that share a total.

Matrix i retains :math:`E_i(u)` with u units: singular values of LoRA, coefficients of LoCA. The
best sizes for a total T solve

.. math:: \max_u \sum_i E_i(u_i) \quad\text{with}\quad \sum_i \mathrm{cost}_i(u_i) \le T.

At a price λ of a unit of cost, each matrix takes the method and the size with the largest
:math:`E(u) - λ\,\mathrm{cost}(u)`. The price is the lowest at which the total pays for all; what is
left buys the next segments. For every λ, :math:`λ T + \sum_i \max_u (E_i - λ\,\mathrm{cost}_i)` is
an upper bound of what any split retains.

Source: H. Everett, Oper. Res. 11 (1963); G. B. Dantzig, Oper. Res. 5 (1957), for the bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loca_theory._arguments import real_number, whole_number
from loca_theory.checkpoints.statistics.energy_profile import EnergyProfile
from loca_theory.errors import InvalidArgumentError

# Sums of many terms differ from the energy by rounding, in units of the energy.
_ROUNDING = 1e-10


@dataclass(frozen=True)
class AllocatedSize:
    """Size that one matrix gets.

    Attributes:
        profile: The profile of the matrix, by the method that it gets.
        size: Allocated number of units: LoRA's rank or LoCA's number of coefficients.
        uniform_size: Number of units if all matrices get the same size.
    """

    profile: EnergyProfile
    size: int
    uniform_size: int

    @property
    def name(self) -> str:
        """Name of the matrix."""
        return self.profile.name

    @property
    def retained(self) -> float:
        """Fraction of the matrix's energy that the allocated size retains."""
        return _fraction(self.profile.at(self.size), self.profile.energy)

    @property
    def uniform_retained(self) -> float:
        """Fraction of the matrix's energy that the uniform size retains."""
        return _fraction(self.profile.at(self.uniform_size), self.profile.energy)


@dataclass(frozen=True)
class Allocation:
    """Split of a total among matrices, beside the uniform one.

    The uniform split gives every matrix the same size, the largest that the total pays for; a
    smaller matrix gets as much as it can have. It seldom spends the whole total.

    Attributes:
        total: The total, in the units of the costs.
        matrices: Size of each matrix.
        retained: Fraction of the energy that the allocated sizes retain.
        equal_retained: The same if the split has only what the uniform sizes cost.
        bound: Upper bound of the fraction that any split of the total retains.
    """

    total: int
    matrices: tuple[AllocatedSize, ...]
    retained: float
    equal_retained: float
    bound: float

    @property
    def sizes(self) -> dict[str, int]:
        """Allocated number of units by name."""
        return {one.name: one.size for one in self.matrices}

    @property
    def spent(self) -> int:
        """Cost of the allocated sizes."""
        return sum(one.profile.cost_of(one.size) for one in self.matrices)

    @property
    def uniform_spent(self) -> int:
        """Cost of the uniform sizes."""
        return sum(one.profile.cost_of(one.uniform_size) for one in self.matrices)

    @property
    def uniform_retained(self) -> float:
        """Fraction of the energy that the uniform sizes retain."""
        energy = sum(one.profile.energy for one in self.matrices)
        same = sum(one.profile.at(one.uniform_size) for one in self.matrices)
        return _fraction(same, energy)


class _Offer:
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

    def best(self, price: float) -> tuple[float, int, float, int]:
        """The largest energy less its price; the size that has it, its energy and its cost."""
        bought = int(np.searchsorted(self._falling, -price))
        size, retained = int(self.units[bought]), float(self._retained[bought])
        cost = self.profile.cost_of(size)
        value = retained - price * cost
        return (0.0, 0, 0.0, 0) if value <= 0 and not self.least else (value, size, retained, cost)

    def above(self, size: int) -> tuple[float, int]:
        """Gain per cost of the units above a size, and how many have it."""
        at = int(np.searchsorted(self.units, size, side="right"))
        is_last = at == len(self.units)
        return (0.0, 0) if is_last else (float(self.density[at - 1]), int(self.units[at]) - size)

    def affordable(self, size: int, left: float) -> float:
        """Number of units above a size that the rest of a total pays for."""
        return (left - (0 if size else self.profile.entry_cost)) / self.profile.cost


_Choice = list[tuple[_Offer, int]]


@dataclass(frozen=True)
class _Problem:
    """Offers for each matrix, and how much to spend, or how much energy to retain."""

    offers: list[list[_Offer]]
    total: float = math.inf
    energy: float = math.inf

    def solve(self) -> _Choice:
        """The best choice that is found, or the cheapest if there is no total.

        A cheap unit with a high gain per cost can leave too little for a dear one that gains more.
        So the matrices with the cheaper units are also left for last.
        """
        costs = {one.profile.cost for several in self.offers for one in several}
        found = [self._filled(cost) for cost in sorted(costs)]
        if self.total < math.inf:
            found += [_uniform([one for one, _ in choice], self.total) for choice in found]
            return max(found, key=_retained)
        return min(found, key=lambda one: (_retained(one) < self.energy, _cost(one)))

    def bound(self, price: float) -> float:
        """Upper bound of the energy that any choice within the total retains."""
        values = (max(one.best(price)[0] for one in several) for several in self.offers)
        return price * self.total + sum(values)

    def price(self, least_cost: int = 0) -> float:
        """The lowest price at which no more is bought than wanted."""
        densities = [one.density for several in self.offers for one in several]
        prices = np.unique(np.concatenate([[0.0], *densities]))
        low, high = 0, len(prices) - 1
        while low < high:
            middle = (low + high) // 2
            found = self._bought(float(prices[middle]), least_cost)
            fits = sum(one[3] for _, one in found) <= self.total
            fits = fits and sum(one[2] for _, one in found) < self.energy
            low, high = (low, middle) if fits else (middle + 1, high)
        return float(prices[low])

    def _bought(
        self, price: float, least_cost: int
    ) -> list[tuple[_Offer, tuple[float, int, float, int]]]:
        """The best method of each matrix at a price, and what is bought of it."""
        chosen = []
        for several in self.offers:
            found = [(one, one.best(price)) for one in several]
            one, best = max(found, key=lambda offer: offer[1][0])
            if one.profile.cost < least_cost:
                best = (0.0, one.least, one.at(one.least), one.profile.cost_of(one.least))
            chosen.append((one, best))
        return chosen

    def _filled(self, least_cost: int) -> _Choice:
        """Buy at the best price, then spend what is left: the dearer units first."""
        found = self._bought(self.price(least_cost), least_cost)
        offers, sizes = [one for one, _ in found], [best[1] for _, best in found]
        left = self.total - sum(best[3] for _, best in found)
        missing = self.energy - sum(best[2] for _, best in found)
        segments = [one.above(size) for one, size in zip(offers, sizes, strict=True)]
        while missing > 0:
            possible = [
                (one.profile.cost >= least_cost, density, -i)
                for i, (one, (density, units)) in enumerate(zip(offers, segments, strict=True))
                if units and one.affordable(sizes[i], left) >= 1
            ]
            if not possible:
                break
            i = -max(possible)[2]
            one, (density, units) = offers[i], segments[i]
            wanted = max(1, np.ceil(missing / (density * one.profile.cost)))
            size = sizes[i] + int(min(units, one.affordable(sizes[i], left), wanted))
            left -= one.profile.cost_of(size) - one.profile.cost_of(sizes[i])
            missing -= one.at(size) - one.at(sizes[i])
            sizes[i], segments[i] = size, one.above(size)
        return list(zip(offers, sizes, strict=True))


def allocate(
    profiles: Sequence[EnergyProfile | Sequence[EnergyProfile]],
    total: int | None = None,
    *,
    energy: float | None = None,
    floor: int = 0,
    cap: int | None = None,
) -> Allocation:
    """Split a total among matrices so that they retain the most energy.

    Optimal if all units cost the same; otherwise no split retains more than
    :attr:`Allocation.bound`. Units that retain no energy are not bought.

    Args:
        profiles: Retained energy of each matrix by size; or for each matrix the profiles of several
            methods, of which it gets the better one.
        total: The total to spend, in the units of the profiles' costs.
        energy: Instead of a total, a fraction of the energy of all matrices: the smallest sizes
            that together retain it. They cost less than a unit more than the smallest total, which
            they are if all units cost the same.
        floor: Every matrix gets at least this many units, or all it can have.
        cap: No matrix gets more units.

    Raises:
        InvalidArgumentError: the total does not pay for the floors, or for a single unit; no sizes
            retain the fraction, or it is not above 0 and at most 1; there are no profiles; or the
            floor is negative or above the cap.

    Example:
        >>> one = EnergyProfile.of_components("a", [9.0, 4.0, 1.0])
        >>> two = EnergyProfile.of_components("b", [8.0, 0.5, 0.1])
        >>> found = allocate([one, two], 3)
        >>> found.sizes, round(found.retained, 3)
        ({'a': 2, 'b': 1}, 0.929)
        >>> allocate([one, two], energy=0.9).sizes
        {'a': 2, 'b': 1}
    """
    floor = whole_number("floor", floor)
    cap = None if cap is None else whole_number("cap", cap)
    if not profiles:
        msg = "there is no matrix to allocate to; pass at least one energy profile"
        raise InvalidArgumentError(msg)
    if floor < 0 or (cap is not None and cap < max(floor, 1)):
        msg = f"floor must be at least 0, and cap at least 1 and the floor, not {floor} and {cap}"
        raise InvalidArgumentError(msg)
    several = [[one] if isinstance(one, EnergyProfile) else list(one) for one in profiles]
    offers = [[_Offer(one, floor, cap) for one in own] for own in several]
    # One method for all may fill the total better than the mixture does.
    most = max(map(len, offers))
    groups = [[[own[min(i, len(own) - 1)]] for own in offers] for i in range(most)]
    groups = groups if most == 1 else [offers, *groups]
    whole = sum(own[0].energy for own in several)
    if energy is not None:
        check_fraction(energy)
        wanted = energy * whole - _ROUNDING * whole
        choices = [_Problem(one, energy=wanted).solve() for one in groups]
        found = min(choices, key=lambda one: (_retained(one) < wanted, _cost(one)))
        if _retained(found) < wanted:
            msg = f"no sizes retain {energy} of the energy: the largest retain "
            msg += f"{_retained(found) / whole:.6g}; ask for less, or leave out the cap"
            raise InvalidArgumentError(msg)
        total = _cost(found)
    else:
        total = whole_number("total", total)
        _check_total(offers, total, floor)
        found = max((_Problem(one, total).solve() for one in groups), key=_retained)
    problem = _Problem(offers, total)
    uniform = _uniform([one for one, _ in found], total)
    equal = 0.0
    if spent := _cost(uniform):
        equal = max(_retained(_Problem(one, spent).solve()) for one in groups)
    rows = (
        AllocatedSize(one.profile, size, same)
        for (one, size), (_, same) in zip(found, uniform, strict=True)
    )
    retained = _fraction(_retained(found), whole)
    bound = max(retained, _fraction(problem.bound(problem.price()), whole))
    return Allocation(total, tuple(rows), retained, _fraction(equal, whole), bound)


def check_fraction(fraction: float) -> None:
    """Check a fraction of the energy."""
    if not 0 < real_number("energy", fraction) <= 1:
        msg = f"the fraction of the energy must be above 0 and at most 1, not {fraction}"
        raise InvalidArgumentError(msg)


def _check_total(offers: list[list[_Offer]], total: int, floor: int) -> None:
    least = _cost([(own[0], own[0].least) for own in offers])
    units = [one.profile.cost_of(1) for own in offers for one in own if len(one.units) > 1]
    what = f"{floor} of every matrix" if floor else "a single unit"
    least = least or min(units or [one.profile.cost_of(1) for own in offers for one in own])
    if total < least:
        msg = f"a total of {total} is too small: {what} costs {least}; pass a total of at "
        raise InvalidArgumentError(msg + f"least {least}")


def _uniform(offers: list[_Offer], total: float) -> _Choice:
    """The largest common size that the total pays for."""

    def common(size: int) -> _Choice:
        return [(one, min(max(size, one.least), one.most)) for one in offers]

    low, high = 0, max(one.most for one in offers)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _cost(common(middle)) <= total else (low, middle - 1)
    return common(low)


def _cost(chosen: _Choice) -> int:
    return sum(one.profile.cost_of(size) for one, size in chosen)


def _retained(chosen: _Choice) -> float:
    return sum(float(one.at(size)) for one, size in chosen)


def _fraction(part: float, whole: float) -> float:
    return min(float(part) / whole, 1.0) if whole else 0.0
