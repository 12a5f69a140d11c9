r"""Sizes of the adapters of several matrices that share a total.

Matrix i retains :math:`E_i(u)` with u units: singular values of LoRA, coefficients of LoCA. The
best sizes for a total T solve

.. math:: \max_u \sum_i E_i(u_i) \quad\text{with}\quad \sum_i \mathrm{cost}_i(u_i) \le T.

At a price λ of a unit of cost, each matrix takes the form and the size with the largest
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
from itertools import chain

import numpy as np

from loca_theory.checkpoints.form.profile import EnergyProfile, fraction
from loca_theory.errors import InvalidArgumentError

# Sums of many terms differ from the energy by rounding, in units of the energy.
_ROUNDING = 1e-10


@dataclass(frozen=True)
class AllocatedSize:
    """Size that one matrix gets.

    Attributes:
        profile: The profile of the matrix, by the form that it gets.
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
    """Profiles that each matrix can have, and how much to spend, or how much energy to retain."""

    candidates: Sequence[Sequence[EnergyProfile]]
    total: float = math.inf
    energy: float = math.inf

    def solve(self) -> _Choice:
        """The best of several choices; the cheapest without a total."""
        problems = (self, *self._settled())
        choices = [choice for problem in problems for choice in problem._choices()]
        if self.total < math.inf:
            return max(choices, key=_retained)
        return min(choices, key=lambda choice: (_retained(choice) < self.energy, _cost(choice)))

    def _settled(self) -> Iterator[_Problem]:
        """Forms that are settled first: as bought at either price, and one for all."""
        forms = max(map(len, self.candidates))
        if forms > 1:
            for price in self.prices():
                yield replace(self, candidates=[[profile] for profile, _ in self._bought(price)])
            for i in range(forms):
                fixed = [[profiles[min(i, len(profiles) - 1)]] for profiles in self.candidates]
                yield replace(self, candidates=fixed)

    def _choices(self) -> Iterator[_Choice]:
        """The choices for each order of the matrices by the cost of their units.

        A cheap unit with a high gain can leave too little for an expensive one that gains more. So
        the matrices with the cheaper units are also left for last.
        """
        for least_cost in sorted({profile.cost for profile in chain(*self.candidates)}):
            choice = self._bought(self.prices(least_cost)[0], least_cost)
            yield self._filled(choice, least_cost)
            if self.total < math.inf:
                yield _uniform([profile for profile, _ in choice], self.total)

    def bound(self) -> float:
        """Upper bound of the energy that any choice within the total retains."""
        price = self.prices()[0]
        best = [max(profile.best(price) for profile in profiles) for profiles in self.candidates]
        return price * self.total + sum(value for value, _ in best)

    def prices(self, least_cost: int = 0) -> tuple[float, float]:
        """The lowest price at which no more is bought than wanted, and the next lower one.

        Between the two a matrix may change its form.
        """

        def is_enough(price: float) -> bool:
            choice = self._bought(price, least_cost)
            return _cost(choice) <= self.total and _retained(choice) < self.energy

        densities = [profile.density for profile in chain(*self.candidates)]
        prices = np.unique(np.concatenate([[0.0], *densities])).tolist()
        lowest = bisect_left(prices, x=True, hi=len(prices) - 1, key=is_enough)
        return prices[lowest], prices[max(lowest - 1, 0)]

    def _bought(self, price: float, least_cost: int = 0) -> _Choice:
        """The best form of each matrix at a price, and what is bought of it."""
        choice = []
        for profiles in self.candidates:
            offers = [(*profile.best(price), profile) for profile in profiles]
            _, size, profile = max(offers, key=lambda offer: offer[0])
            choice.append((profile, size if profile.cost >= least_cost else profile.least))
        return choice

    def _filled(self, choice: _Choice, least_cost: int) -> _Choice:
        """Spend the rest: on the more expensive units first, and there on those that gain most."""
        profiles, sizes = [profile for profile, _ in choice], [size for _, size in choice]
        segments = [profile.above(size) for profile, size in choice]
        left, missing = self.total - _cost(choice), self.energy - _retained(choice)
        while missing > 0:
            possible = [
                (profile.cost >= least_cost, density, -i)
                for i, (profile, (density, units)) in enumerate(
                    zip(profiles, segments, strict=True)
                )
                if units and profile.affordable(sizes[i], left) >= 1
            ]
            if not possible:
                break
            i = -max(possible)[2]
            profile, (density, units) = profiles[i], segments[i]
            needed = max(1, np.ceil(missing / (density * profile.cost)))
            size = sizes[i] + int(min(units, profile.affordable(sizes[i], left), needed))
            left -= profile.cost_of(size) - profile.cost_of(sizes[i])
            missing -= profile.at(size) - profile.at(sizes[i])
            sizes[i], segments[i] = size, profile.above(size)
        return list(zip(profiles, sizes, strict=True))


def allocate(
    candidates: Sequence[Sequence[EnergyProfile]],
    total: int | None = None,
    *,
    energy: float | None = None,
) -> Allocation:
    """Split a total among matrices so that they retain the most energy.

    Optimal if all units cost the same; otherwise no split retains more than
    :attr:`Allocation.bound`. Units that retain no energy are not bought.

    Args:
        candidates: For each matrix its profiles by one or several forms, of which it gets the best.
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
        >>> [(row.profile.layer, row.size) for row in allocate([[one], [two]], 3).matrices]
        [('a', 2), ('b', 1)]
    """
    whole = sum(profiles[0].energy for profiles in candidates)
    if total is None:
        goal = (energy or 0.0) * whole - _ROUNDING * whole
        choice = _Problem(candidates, energy=goal).solve()
        if _retained(choice) < goal:
            raise InvalidArgumentError(
                f"no sizes retain {energy} of the energy: the largest retain "
                f"{_retained(choice) / whole:.6g}; ask for less, or leave out the cap"
            )
        total = _cost(choice)
    else:
        _check_total(candidates, total)
        choice = _Problem(candidates, total).solve()
    uniform = _uniform([profile for profile, _ in choice], total)
    equal = _Problem(candidates, _cost(uniform)).solve() if _cost(uniform) else uniform
    matrices = (
        AllocatedSize(profile, size, uniform_size)
        for (profile, size), (_, uniform_size) in zip(choice, uniform, strict=True)
    )
    bound = max(_retained(choice), _Problem(candidates, total).bound())
    return Allocation(tuple(matrices), fraction(_retained(equal), whole), fraction(bound, whole))


def _check_total(candidates: Sequence[Sequence[EnergyProfile]], total: int) -> None:
    """Refuse a total that does not pay for the floors, or for a single unit."""
    floor = max(profiles[0].least for profiles in candidates)
    cost = _cost([(profiles[0], profiles[0].least) for profiles in candidates])
    cost = cost or min(profile.cost_of(1) for profiles in candidates for profile in profiles)
    if total < cost:
        text = f"{floor} of every matrix costs" if floor else "a single unit costs"
        raise InvalidArgumentError(
            f"a total of {total} is too small: {text} {cost}; pass a total of at least {cost}"
        )


def _uniform(profiles: Sequence[EnergyProfile], total: float) -> _Choice:
    """The largest common size that the total pays for."""

    def common(size: int) -> _Choice:
        return [(profile, min(max(size, profile.least), profile.most)) for profile in profiles]

    sizes = range(1, max(profile.most for profile in profiles) + 1)
    return common(bisect_right(sizes, total, key=lambda size: _cost(common(size))))


def _cost(choice: _Choice) -> int:
    return sum(profile.cost_of(size) for profile, size in choice)


def _retained(choice: _Choice) -> float:
    return sum(float(profile.at(size)) for profile, size in choice)
