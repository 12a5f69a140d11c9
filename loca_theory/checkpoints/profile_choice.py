"""Choice of one method per matrix, before a total is split among the matrices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loca_theory.checkpoints.energy_profile import EnergyProfile

_HALVINGS = 60


class _Priced:
    """A profile as a function of the price λ of a unit of cost."""

    def __init__(self, profile: EnergyProfile) -> None:
        widths = np.diff(profile.units, prepend=0)
        slopes = np.minimum.accumulate(np.diff(profile.retained, prepend=0) / widths)
        self.densities = slopes / profile.cost
        self._retained = np.append(0.0, profile.retained)
        self._costs = np.append(0, profile.units) * profile.cost

    def at(self, price: float) -> tuple[float, int, float]:
        """Value, cost and retained energy of the size that is best at a price."""
        bought = int(np.searchsorted(-self.densities, -price, side="left"))
        retained, cost = float(self._retained[bought]), int(self._costs[bought])
        return retained - price * cost, cost, retained


def choose_profiles(
    alternatives: Sequence[Sequence[EnergyProfile]], total: int | None, fraction: float | None
) -> list[int]:
    r"""Choose one of several profiles of each matrix.

    At the price λ, in energy per cost, each matrix takes the profile with the largest
    :math:`\max_u E(u) - λ c u`. The price is the lowest at which the total pays for all sizes, or
    the highest at which they retain the fraction of the energy.

    Args:
        alternatives: Profiles of each matrix by different methods, all in the same unit of cost.
        total: The total; None if the fraction is given.
        fraction: Fraction of the energy to retain; None if the total is given.

    Returns:
        Index of the chosen profile of each matrix.
    """
    priced = [[_Priced(one) for one in several] for several in alternatives]
    energy = sum(several[0].energy for several in alternatives)
    highest = max((one.densities[0] for several in priced for one in several), default=0.0)

    def chosen(price: float) -> tuple[list[int], bool]:
        """The choices at a price, and whether the price could be lower."""
        found = [[one.at(price) for one in several] for several in priced]
        which = [max(range(len(several)), key=lambda i: several[i][0]) for several in found]
        best = [several[i] for several, i in zip(found, which, strict=True)]
        if total is not None:
            return which, sum(cost for _, cost, _ in best) <= total
        return which, sum(retained for _, _, retained in best) < (fraction or 0) * energy

    # Halve the interval of the logarithm: prices differ by many powers of ten.
    low, high = np.log(max(highest, np.finfo(float).tiny)) - 80.0, np.log(max(highest, 1e-300))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if chosen(float(np.exp(middle)))[1] else (middle, high)
    return chosen(float(np.exp(high if total is not None else low)))[0]
