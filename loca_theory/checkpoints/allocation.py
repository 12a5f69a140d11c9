"""Split of one total among matrices, so that together they retain the most energy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loca_theory._arguments import real_number, whole_number
from loca_theory.checkpoints.energy_profile import EnergyProfile
from loca_theory.checkpoints.knapsack import Knapsack
from loca_theory.errors import InvalidArgumentError


@dataclass(frozen=True)
class AllocatedSize:
    """Size that one matrix gets.

    Attributes:
        name: Name of the matrix.
        size: Allocated number of units: LoRA's rank or LoCA's number of coefficients.
        uniform_size: Number of units if all matrices get the same size.
        cost: Cost of one unit.
        energy: Energy of the matrix.
        retained: Retained energy with the allocated size.
        uniform_retained: Retained energy with the uniform size.
    """

    name: str
    size: int
    uniform_size: int
    cost: int
    energy: float
    retained: float
    uniform_retained: float


@dataclass(frozen=True)
class Allocation:
    """Split of a total among matrices, beside the uniform one.

    The uniform split gives every matrix the same size, the largest that the total pays for; a
    smaller matrix gets as much as it can have. What is left buys one more unit for each of the
    first matrices, so that both splits spend the total up to less than a unit.

    Attributes:
        total: The total, in the units of the costs.
        matrices: Size of each matrix.
        bound: Upper bound of the energy that any split of the total retains, from the linear
            relaxation of the given profiles.
    """

    total: int
    matrices: tuple[AllocatedSize, ...]
    bound: float

    @property
    def sizes(self) -> dict[str, int]:
        """Allocated number of units by name."""
        return {one.name: one.size for one in self.matrices}

    @property
    def spent(self) -> int:
        """Cost of the allocated sizes."""
        return sum(one.size * one.cost for one in self.matrices)

    @property
    def energy(self) -> float:
        """Energy of all matrices."""
        return sum(one.energy for one in self.matrices)

    @property
    def retained(self) -> float:
        """Fraction of the energy that the allocated sizes retain."""
        return _fraction(sum(one.retained for one in self.matrices), self.energy)

    @property
    def uniform_retained(self) -> float:
        """Fraction of the energy that the uniform sizes retain."""
        return _fraction(sum(one.uniform_retained for one in self.matrices), self.energy)

    @property
    def gap(self) -> float:
        """How much more of the energy the best split can retain at most, as a fraction."""
        return max(0.0, _fraction(self.bound, self.energy) - self.retained)


def allocate(
    profiles: Sequence[EnergyProfile], total: int, *, floor: int = 0, cap: int | None = None
) -> Allocation:
    """Split a total among matrices so that they retain the most energy.

    Optimal if all units cost the same; otherwise see :attr:`Allocation.gap`. Units that retain no
    energy are not bought.

    Args:
        profiles: Retained energy of each matrix by size.
        total: The total to spend, in the units of the profiles' costs.
        floor: Every matrix gets at least this many units, or all it can have.
        cap: No matrix gets more units.

    Raises:
        InvalidArgumentError: the total does not pay for the floors, or for a single unit; there are
            no profiles; or the floor is negative or above the cap.

    Example:
        >>> one = EnergyProfile.of_components("a", [9.0, 4.0, 1.0])
        >>> two = EnergyProfile.of_components("b", [8.0, 0.5, 0.1])
        >>> found = allocate([one, two], 3)
        >>> found.sizes, round(found.retained, 3)
        ({'a': 2, 'b': 1}, 0.929)
    """
    problem = Knapsack(profiles, floor, cap)
    total = whole_number("total", total)
    if total < (least := problem.smallest_total()):
        what = f"{problem.floor} of every matrix" if problem.floor else "a single unit"
        msg = f"a total of {total} is too small: {what} costs {least}; pass a total of at "
        msg += f"least {least}"
        raise InvalidArgumentError(msg)
    return _allocation(problem, total)


def allocate_energy(
    profiles: Sequence[EnergyProfile], fraction: float, *, floor: int = 0, cap: int | None = None
) -> Allocation:
    """Find the smallest sizes that together retain a fraction of the energy.

    The smallest total if all units cost the same. Otherwise it is larger than the smallest by less
    than the cost of one unit.

    Args:
        profiles: Retained energy of each matrix by size.
        fraction: Fraction of the energy of all matrices, above 0 and at most 1.
        floor: Every matrix gets at least this many units, or all it can have.
        cap: No matrix gets more units.

    Raises:
        InvalidArgumentError: no sizes retain this fraction; the fraction is not between 0 and 1; or
            an argument is wrong as for :func:`allocate`.

    Example:
        >>> one = EnergyProfile.of_components("a", [9.0, 4.0, 1.0])
        >>> two = EnergyProfile.of_components("b", [8.0, 0.5, 0.1])
        >>> allocate_energy([one, two], 0.9).sizes
        {'a': 2, 'b': 1}
    """
    check_fraction(fraction)
    problem = Knapsack(profiles, floor, cap)
    return _allocation(problem, problem.total_for(fraction))


def check_fraction(fraction: float) -> None:
    """Check a fraction of the energy.

    Raises:
        InvalidArgumentError: it is not above 0 and at most 1.
    """
    if not 0 < real_number("energy", fraction) <= 1:
        msg = f"the fraction of the energy must be above 0 and at most 1, not {fraction}"
        raise InvalidArgumentError(msg)


def _allocation(problem: Knapsack, total: int) -> Allocation:
    """The best split of a total beside the uniform one."""
    (sizes, bound), uniform = problem.solve(total), problem.uniform(total)
    columns = (sizes, uniform, problem.retained(sizes), problem.retained(uniform))
    matrices = tuple(
        AllocatedSize(
            name=one.name,
            size=int(size),
            uniform_size=int(same),
            cost=one.cost,
            energy=one.energy,
            retained=float(retained),
            uniform_retained=float(uniform_retained),
        )
        for one, size, same, retained, uniform_retained in zip(
            problem.profiles, *columns, strict=True
        )
    )
    return Allocation(total, matrices, bound)


def _fraction(part: float, whole: float) -> float:
    return min(part / whole, 1.0) if whole else 0.0
