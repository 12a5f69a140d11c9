"""Theory beyond the paper: the law of one coordinate, and its fourth moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from loca_theory.claims.checks.theory_bases import named_spectrum, random_matrices
from loca_theory.claims.estimates import Estimate, Returned, Rng, Tier
from loca_theory.expressivity.energy_bounds import KAPPA
from loca_theory.expressivity.limits import coefficient_fraction
from loca_theory.transforms import dct2

_Array = NDArray[np.float64]
_NODES = 40
# Values of |x|; P(|x| > 4) is below 1e-4 for a normal x.
_GRID = np.linspace(0.0, 4.0, 101)
# Fractions of the coordinates that selections retain.
_SMALLEST, _LARGEST = 0.001, 0.5


class EqualSingularValues:
    r"""The law of a coordinate x of a K×K matrix with N equal singular values, for a rank-one atom.

    x is distributed like √V ξ with independent V and ξ, where
    :math:`ξ^2/K \sim \mathrm{Beta}(\tfrac12, \tfrac{K-1}2)` is the first entry of a unit vector,
    squared, and :math:`NV/K \sim \mathrm{Beta}(\tfrac N2, \tfrac{K-N}2)` the energy of its first N
    entries. Expectations over V are evaluated by Gauss–Jacobi quadrature.

    Args:
        count: N, from 1 to K.
        size: K.
    """

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size
        self._v, self._weights = np.ones(1), np.ones(1)
        if count < size:
            y, weights = special.roots_jacobi(_NODES, (size - count) / 2 - 1, count / 2 - 1)
            self._v, self._weights = (1 + y) / 2 * size / count, weights / weights.sum()

    def tail(self, t: _Array) -> _Array:
        """P(x² > t)."""
        return special.betaincc(0.5, (self.size - 1) / 2, self._beyond(t)) @ self._weights

    def energy_above(self, t: _Array) -> _Array:
        """E[x²; x² > t]: what a selection retains in the limit if it retains the x² above t."""
        energy = special.betaincc(1.5, (self.size - 1) / 2, self._beyond(t))
        return energy @ (self._weights * self._v)

    def distance(self, absolute: _Array) -> float:
        """Total variation distance to the normal law on the cells of a grid of |x|.

        It is at most the distance itself, and tends to it as the grid becomes finer.
        """
        own, normal = self.tail(absolute**2), special.chdtrc(1, absolute**2)
        cells = [-np.diff(one, append=0.0) for one in (own, normal)]
        return float(np.abs(cells[0] - cells[1]).sum() / 2)

    def _beyond(self, t: _Array) -> _Array:
        return np.minimum(t[:, None] / (self.size * self._v), 1.0)


def _laws(sizes: Sequence[int]) -> list[EqualSingularValues]:
    return [
        EqualSingularValues(count, size)
        for size in sizes
        for count in sorted({1, 2, 4, size // 4, size // 2, size})
    ]


def _selections(law: EqualSingularValues) -> tuple[_Array, _Array, _Array]:
    """Fractions f, what a selection of f retains beyond f + 2zφ(z), and z."""
    t = _GRID**2
    f, energy = law.tail(t), law.energy_above(t)
    chosen = (f >= _SMALLEST) & (f <= _LARGEST)
    f, energy = f[chosen], energy[chosen]
    normal = np.array([coefficient_fraction(one) for one in f])
    return f, energy - normal, -special.ndtri(f / 2)


def normal_value(*, sizes: Sequence[int], corrections: float = 1.0) -> Returned:
    """What selections retain of matrices with equal singular values, between the proven bounds.

    The atoms have rank one. For each size K, the matrices have 1, 2, 4, K/4, K/2 or K equal
    singular values.

    Args:
        sizes: Values of K, at least 10.
        corrections: Factor of the corrections −1.2/K and 2κ Σw² of the two bounds.

    Returns:
        The retained fraction less the lower bound, and the upper bound less the retained fraction,
        the smallest over all fractions f from 0.001 to 0.5.
    """
    above, below = {}, {}
    for law in _laws(sizes):
        _, excess, _ = _selections(law)
        at = f"N = {law.count}, K = {law.size}"
        above[at] = float(excess.min() + corrections * 1.2 / law.size)
        below[at] = float(corrections * 2 * KAPPA / law.count - excess.max())
    return _smallest({"retained less the lower bound": above, "upper bound less it": below})


def normal_law(*, sizes: Sequence[int], spectral: float = 1.0) -> Returned:
    """Distance of the law of a coordinate from the normal law, and what it implies for selections.

    The matrices and atoms are those of :func:`normal_value`.

    Args:
        sizes: Values of K.
        spectral: Factor of the term 5.4 Σw² of the bound on the distance.

    Returns:
        The proven bound less the distance d; then, with the retained fraction m(f) less
        f + 2zφ(z), the bound z²d less it, and it less the bound −d/f. Each is the smallest over all
        f from 0.001 to 0.5 and all matrices.
    """
    bounds, below, above = {}, {}, {}
    for law in _laws(sizes):
        at = f"N = {law.count}, K = {law.size}"
        d = law.distance(_GRID)
        f, excess, z = _selections(law)
        bounds[at] = spectral * 5.4 / law.count + 2 * np.sqrt(3) / (law.size - 1) - d
        below[at] = float((z**2 * d - excess).min())
        above[at] = float((excess + d / f).min())
    found = {"bound less the distance": bounds, "z²d less the excess": below, "it less −d/f": above}
    return _smallest(found)


def _smallest(found: dict[str, dict[str, Any]]) -> Returned:
    at = {name: min(values, key=lambda one: values[one]) for name, values in found.items()}
    cases = "; ".join(f"{name}: {one}" for name, one in at.items())
    least = {name: found[name][one] for name, one in at.items()}
    return least, f"The smallest is at: {cases}."


def fourth_moment(
    *, tier: Tier, rng: Rng, spectra: Sequence[str], size: int, limit: bool = False
) -> Returned:
    """E x⁴ of cosine coefficients of matrices with random singular vectors, over its formula.

    Args:
        tier: 500, 2000 or 20,000 matrices.
        spectra: Names as for :func:`loca_theory.claims.checks.theory_bases.difference`.
        size: K.
        limit: Whether to use the formula's limit for large K.
    """
    found, draws = {}, tier.scaled(500, 2000, 20_000)
    for name in spectra:
        values = named_spectrum(name, size)
        w = values**2 / np.square(values).sum()
        formula = 3 * (1 + 2 * float(w @ w)) * (1.0 if limit else (size / (size + 2)) ** 2)
        # Singular values of the energy K², so that E x² = 1.
        matrices = random_matrices(rng, size * np.sqrt(w), draws)
        fourth = (dct2(matrices) ** 4).mean(dim=(1, 2)).numpy()
        found[name] = Estimate.mean(fourth / formula)
    return found
