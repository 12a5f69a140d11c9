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
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from loca_theory.checkpoints.form.profile import EnergyProfile, fraction
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


@dataclass(frozen=True)
class Allocation:
    """Split of a total among matrices, beside the uniform one.

    The uniform split gives every matrix the same size, the largest that the total pays for; a
    smaller matrix gets as much as it can have. It seldom spends the whole total.

    Attributes:
        matrices: Size of each matrix.
        equal_retained: Fraction of the energy that a split retains which has only what the uniform
            sizes cost.
        bound: Upper bound of the fraction that any split of the total retains.
    """

    matrices: tuple[AllocatedSize, ...]
    equal_retained: float
    bound: float


_Choice = list[tuple[EnergyProfile, int]]


@dataclass(frozen=True)
class _Problem:
    """Methods that each matrix can have, and how much to spend, or how much energy to retain."""

    profiles: Sequence[Sequence[EnergyProfile]]
    total: float = math.inf
    energy: float = math.inf

    def solve(self) -> _Choice:
        """The best choice that is found, or the cheapest if there is no total."""
        found = [choice for one in (self, *self._settled()) for choice in one._choices()]
        if self.total < math.inf:
            return max(found, key=_retained)
        return min(found, key=lambda one: (_retained(one) < self.energy, _cost(one)))

    def _settled(self) -> Iterator[_Problem]:
        """Methods that are settled first: as bought at either price, and one for all."""
        most = max(map(len, self.profiles))
        if most > 1:
            for price in self.prices():
                yield replace(self, profiles=[[one] for one, _ in self._bought(price)])
            for i in range(most):
                yield replace(self, profiles=[[own[min(i, len(own) - 1)]] for own in self.profiles])

    def _choices(self) -> Iterator[_Choice]:
        """A cheap unit with a high gain can leave too little for a dear one that gains more.

        So the matrices with the cheaper units are also left for last.
        """
        for least_cost in sorted({one.cost for several in self.profiles for one in several}):
            found = self._bought(self.prices(least_cost)[0], least_cost)
            yield self._filled(found, least_cost)
            if self.total < math.inf:
                yield _uniform([one for one, _ in found], self.total)

    def bound(self) -> float:
        """Upper bound of the energy that any choice within the total retains."""
        price = self.prices()[0]
        values = (max(one.best(price)[0] for one in several) for several in self.profiles)
        return price * self.total + sum(values)

    def prices(self, least_cost: int = 0) -> tuple[float, float]:
        """The lowest price at which no more is bought than wanted, and the next lower one.

        Between the two a matrix may change its method.
        """

        def is_enough(price: float) -> bool:
            found = self._bought(price, least_cost)
            return _cost(found) <= self.total and _retained(found) < self.energy

        densities = [one.density for several in self.profiles for one in several]
        prices = np.unique(np.concatenate([[0.0], *densities])).tolist()
        lowest = bisect_left(prices, x=True, hi=len(prices) - 1, key=is_enough)
        return prices[lowest], prices[max(lowest - 1, 0)]

    def _bought(self, price: float, least_cost: int = 0) -> _Choice:
        """The best method of each matrix at a price, and what is bought of it."""
        chosen = []
        for several in self.profiles:
            offers = [(*one.best(price), one) for one in several]
            _, size, one = max(offers, key=lambda offer: offer[0])
            chosen.append((one, size if one.cost >= least_cost else one.least))
        return chosen

    def _filled(self, found: _Choice, least_cost: int) -> _Choice:
        """Spend what is left: on the dearer units first, and there on those that gain most."""
        profiles, sizes = [one for one, _ in found], [size for _, size in found]
        segments = [one.above(size) for one, size in found]
        left, missing = self.total - _cost(found), self.energy - _retained(found)
        while missing > 0:
            possible = [
                (one.cost >= least_cost, density, -i)
                for i, (one, (density, units)) in enumerate(zip(profiles, segments, strict=True))
                if units and one.affordable(sizes[i], left) >= 1
            ]
            if not possible:
                break
            i = -max(possible)[2]
            one, (density, units) = profiles[i], segments[i]
            wanted = max(1, np.ceil(missing / (density * one.cost)))
            size = sizes[i] + int(min(units, one.affordable(sizes[i], left), wanted))
            left -= one.cost_of(size) - one.cost_of(sizes[i])
            missing -= one.at(size) - one.at(sizes[i])
            sizes[i], segments[i] = size, one.above(size)
        return list(zip(profiles, sizes, strict=True))


def allocate(
    profiles: Sequence[Sequence[EnergyProfile]],
    total: int | None = None,
    *,
    energy: float | None = None,
) -> Allocation:
    """Split a total among matrices so that they retain the most energy.

    Optimal if all units cost the same; otherwise no split retains more than
    :attr:`Allocation.bound`. Units that retain no energy are not bought.

    Args:
        profiles: For each matrix its profiles by one or several methods, of which it gets the best.
        total: The total to spend, in the units of the profiles' costs.
        energy: Instead of a total, a fraction of the energy of all matrices: the smallest sizes
            that together retain it. They cost less than a unit more than the smallest total, which
            they are if all units cost the same.

    Raises:
        InvalidArgumentError: the total does not pay for the floors, or for a single unit; or no
            sizes retain the fraction.

    Example:
        >>> one = EnergyProfile("a", "lora", np.array([1, 2, 3]), np.array([9.0, 13.0, 14.0]), 1)
        >>> two = EnergyProfile("b", "lora", np.array([1, 2, 3]), np.array([8.0, 8.5, 8.6]), 1)
        >>> [(each.profile.layer, each.size) for each in allocate([[one], [two]], 3).matrices]
        [('a', 2), ('b', 1)]
    """
    whole = sum(own[0].energy for own in profiles)
    if total is None:
        wanted = (energy or 0.0) * whole - _ROUNDING * whole
        found = _Problem(profiles, energy=wanted).solve()
        if _retained(found) < wanted:
            msg = f"no sizes retain {energy} of the energy: the largest retain "
            msg += f"{_retained(found) / whole:.6g}; ask for less, or leave out the cap"
            raise InvalidArgumentError(msg)
        total = _cost(found)
    else:
        _check_total(profiles, total)
        found = _Problem(profiles, total).solve()
    uniform = _uniform([one for one, _ in found], total)
    equal = _Problem(profiles, _cost(uniform)).solve() if _cost(uniform) else uniform
    rows = (
        AllocatedSize(one, size, same)
        for (one, size), (_, same) in zip(found, uniform, strict=True)
    )
    bound = max(_retained(found), _Problem(profiles, total).bound())
    return Allocation(tuple(rows), fraction(_retained(equal), whole), fraction(bound, whole))


def _check_total(profiles: Sequence[Sequence[EnergyProfile]], total: int) -> None:
    """Refuse a total that does not pay for the floors, or for a single unit."""
    floor = max(own[0].least for own in profiles)
    least = _cost([(own[0], own[0].least) for own in profiles])
    least = least or min(one.cost_of(1) for own in profiles for one in own)
    if total < least:
        what = f"{floor} of every matrix costs" if floor else "a single unit costs"
        msg = f"a total of {total} is too small: {what} {least}; pass a total of at least {least}"
        raise InvalidArgumentError(msg)


def _uniform(profiles: Sequence[EnergyProfile], total: float) -> _Choice:
    """The largest common size that the total pays for."""

    def common(size: int) -> _Choice:
        return [(one, min(max(size, one.least), one.most)) for one in profiles]

    sizes = range(1, max(one.most for one in profiles) + 1)
    return common(bisect_right(sizes, total, key=lambda size: _cost(common(size))))


def _cost(chosen: _Choice) -> int:
    return sum(one.cost_of(size) for one, size in chosen)


def _retained(chosen: _Choice) -> float:
    return sum(float(one.at(size)) for one, size in chosen)
