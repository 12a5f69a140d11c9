r"""Large-matrix limits of the errors, and the ranks at which the ordering of Theorem 1 fails.

As p, q → ∞ with q/p and r/p fixed, the fraction of the energy of an i.i.d. N(0, 1) matrix that a
method retains tends to a limit. φ and Φ are the standard normal density and distribution function:

- a fraction f of single coefficients (LoCA, Fourier, entries) retains :math:`f + 2 z φ(z)`, where
  :math:`2(1-Φ(z)) = f`;
- a fraction g of the locations (Fourier pairs and its bounds) retains :math:`g (1 - \ln g)`;
- a fraction of the singular values (LoRA) retains :func:`low_rank_fraction`.

Source: consequences of the paper's proof of Theorem 1; V. A. Marchenko and L. A. Pastur
(1967) for the spectrum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from scipy import optimize, special

from loca_theory._lookup import member
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Accounting
from loca_theory.increments import MarchenkoPastur


def low_rank_fraction(rank_fraction: float, aspect: float = 1.0) -> float:
    r"""Limit of the fraction of the energy that the largest singular values carry.

    This is the fraction of the Marchenko–Pastur law's mean above its upper ``rank_fraction``
    quantile. For square matrices the singular values follow the quarter-circle law.

    Returns:
        The fraction of ‖W‖² that the best rank-r approximation retains, in [0, 1].
    """
    if rank_fraction == 0.0:
        return 0.0
    law = MarchenkoPastur(aspect)
    return float(law.energy_fraction_above(law.isf(rank_fraction)))


def coefficient_fraction(fraction: float) -> float:
    r"""Limit of the fraction of the energy that the largest coefficients carry.

    If a fraction f = ``fraction`` of i.i.d. N(0, 1) coefficients is retained, the limit is
    :math:`f + 2 z φ(z)` with :math:`2(1 - Φ(z)) = f`. It applies to LoCA, Fourier and entries.
    """
    if fraction <= 0 or fraction >= 1:
        return float(np.clip(fraction, 0, 1))
    z = -special.ndtri(fraction / 2)
    return float(fraction + 2 * z * np.exp(-z * z / 2) / np.sqrt(2 * np.pi))


def location_fraction(fraction: float) -> float:
    r"""Limit of the fraction of the energy that the strongest locations carry.

    If a fraction g = ``fraction`` of the locations is retained, the limit is
    :math:`g(1 - \ln g)`. It applies to Fourier pairs and their two bounds; in the limit, the
    energies of their locations are exponential (χ²_2).
    """
    if fraction <= 0 or fraction >= 1:
        return float(np.clip(fraction, 0, 1))
    return float(fraction * (1 - np.log(fraction)))


@dataclass(frozen=True)
class LimitCrossing:
    """A rank at which the errors of two methods are equal, in the limit of large square matrices.

    Attributes:
        lower: Method with the smaller error for ranks below the crossing.
        upper: The other method, which has the smaller error above the crossing.
        ratio: ρ = r/K of the crossing.
        error: Their common relative error.
    """

    lower: str
    upper: str
    ratio: float
    error: float


# Fractions of all locations and of all coefficients that are chosen, per number of the budget.
_CHOSEN = {
    Accounting.PAPER: (2 / 3, 1 / 2),
    Accounting.MAIN_TEXT: (4 / 3, 1 / 2),
    Accounting.TRAINABLE: (1.0, 1.0),
    Accounting.DOF: (2 / 3, 1 / 2),
}


def limit_crossings(accounting: Accounting = Accounting.PAPER) -> list[LimitCrossing]:
    """Find all crossings of the printed line, LoRA, Fourier pairs and LoCA, 0 < r/K < 1/2.

    Theorem 1 assumes only r < K/3. In the limit its order of the errors, in this order, holds
    up to the first of these crossings and fails beyond it, if it holds for small ranks.

    Returns:
        The crossings in increasing order of r/K, to about 1e-12.

    Raises:
        InvalidArgumentError: an unknown accounting, or one that has no limit.
    """
    accounting = member(Accounting, "accounting", accounting)
    if accounting not in _CHOSEN:
        raise InvalidArgumentError(
            f'accounting="{accounting}" has no limit: an index costs more in a larger matrix; '
            f"choose from {', '.join(_CHOSEN)}"
        )
    locations, coefficients = _CHOSEN[accounting]

    def budget(rho: float) -> float:
        return rho * (2 - rho) if accounting is Accounting.DOF else 2 * rho

    fraction: Mapping[str, Callable[[float], float]] = {
        "printed line": budget,
        "LoRA": low_rank_fraction,
        "Fourier pairs": lambda rho: location_fraction(locations * budget(rho)),
        "LoCA": lambda rho: coefficient_fraction(coefficients * budget(rho)),
    }
    grid = np.linspace(1e-3, 0.5 - 1e-9, 400)
    crossings = []
    for worse, better in combinations(fraction, 2):

        def gap(rho: float, worse: str = worse, better: str = better) -> float:
            return fraction[better](rho) - fraction[worse](rho)

        values = [gap(rho) for rho in grid]
        for (left, a), (right, b) in pairwise(zip(grid, values, strict=True)):
            if a > 0 >= b:
                ratio = optimize.brentq(gap, left, right, xtol=1e-15)
                crossings.append(
                    LimitCrossing(better, worse, float(ratio), 1 - fraction[worse](ratio))
                )
    return sorted(crossings, key=lambda crossing: crossing.ratio)
