r"""Large-matrix limits of the errors, and where the ordering of Theorem 1 breaks in the limit.

As p, q → ∞ at fixed proportions, the energy that each method retains of an i.i.d. N(0, 1) matrix
tends to a function of the fraction it may keep. With φ, Φ the standard normal density and
distribution:

- single coefficients (D, F3, S), a fraction f of them: :math:`f + 2 z φ(z)`, :math:`2(1-Φ(z)) = f`;
- locations (F2, M1, M2), a fraction g of them: :math:`g (1 - \ln g)`;
- rank (R), a fraction of the singular values: :func:`low_rank_fraction`.

Source: consequences of the paper's proof of Theorem 1; V. A. Marchenko and L. A. Pastur
(1967) for the spectrum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from loca_theory.errors import InvalidArgumentError
from loca_theory.increments import MarchenkoPastur


def low_rank_fraction(rank_fraction: float, aspect: float = 1.0) -> float:
    r"""Limit of the energy's fraction in the largest ``rank_fraction`` of the singular values.

    The Marchenko–Pastur law's mass beyond the eigenvalue that a fraction of ``rank_fraction``
    exceeds; for square matrices the quarter-circle law.

    Args:
        rank_fraction: r / min(p, q), in [0, 1].
        aspect: c, in (0, 1].

    Returns:
        The fraction of ‖W‖² that the best rank-r approximation keeps, in [0, 1].

    Raises:
        InvalidArgumentError: an argument lies outside its range.
    """
    if not (0 <= rank_fraction <= 1 and 0 < aspect <= 1):
        msg = "needs 0 <= rank fraction <= 1 and 0 < aspect <= 1, "
        msg += f"not {rank_fraction} and {aspect}"
        raise InvalidArgumentError(msg)
    if rank_fraction == 0.0:
        return 0.0
    law = MarchenkoPastur(aspect)
    return float(law.mass_above(law.isf(rank_fraction)))


def coefficient_fraction(fraction: float) -> float:
    r"""Fraction of the energy in the largest fraction ``fraction`` of i.i.d. squared normals.

    :math:`f + 2 z φ(z)` with :math:`2(1 - Φ(z)) = f`, the limit of D, F3 and S.
    """
    if fraction <= 0 or fraction >= 1:
        return float(np.clip(fraction, 0, 1))
    z = -special.ndtri(fraction / 2)
    return float(fraction + 2 * z * np.exp(-z * z / 2) / np.sqrt(2 * np.pi))


def location_fraction(fraction: float) -> float:
    r"""Fraction of the energy in the largest ``fraction`` of the locations: :math:`g(1 - \ln g)`.

    The limit of F2, M1 and M2, whose locations carry exponential (χ²_2) energies.
    """
    if fraction <= 0 or fraction >= 1:
        return float(np.clip(fraction, 0, 1))
    return float(fraction * (1 - np.log(fraction)))


@dataclass(frozen=True)
class Crossing:
    """Where the errors of two methods meet in the limit of square matrices.

    Attributes:
        lower: Method with the smaller error for ranks below the crossing.
        upper: The other one, which overtakes there.
        ratio: ρ = r/K of the crossing.
        error: Their common relative error.
    """

    lower: str
    upper: str
    ratio: float
    error: float


def limit_crossings() -> list[Crossing]:
    """Every crossing of U, R, F2 and D for 0 < r/K < 1/2 under the paper's budget.

    Theorem 1 asks only for r < K/3. In the limit its ordering U > R > F2 > D of errors holds up to
    the first of these crossings and fails beyond.

    Returns:
        The crossings in increasing order of r/K, to about 1e-12.
    """
    fraction: Mapping[str, Callable[[float], float]] = {
        "U": lambda rho: 2 * rho,
        "R": low_rank_fraction,
        "F2": lambda rho: location_fraction(4 * rho / 3),
        "D": coefficient_fraction,
    }
    names = list(fraction)
    grid = np.linspace(1e-3, 0.5 - 1e-9, 400)
    found = []
    for i, worse in enumerate(names):
        for better in names[i + 1 :]:

            def gap(rho: float, worse: str = worse, better: str = better) -> float:
                return fraction[better](rho) - fraction[worse](rho)

            values = [gap(rho) for rho in grid]
            for left, right, a, b in zip(grid, grid[1:], values, values[1:], strict=False):
                if a > 0 >= b:
                    ratio = optimize.brentq(gap, left, right, xtol=1e-15)
                    found.append(Crossing(better, worse, float(ratio), 1 - fraction[worse](ratio)))
    return sorted(found, key=lambda crossing: crossing.ratio)
