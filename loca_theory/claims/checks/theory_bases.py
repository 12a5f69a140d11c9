"""Theory beyond the paper: any basis on random singular vectors, and the law of one coordinate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import special

from loca_theory.claims.checks.empirical import load
from loca_theory.claims.estimates import Estimate, Named, Returned, Rng, Tier, extreme
from loca_theory.expressivity import Budget, retained_energies
from loca_theory.expressivity.energy_bounds import KAPPA, selection_bound
from loca_theory.expressivity.limits import coefficient_fraction
from loca_theory.expressivity.methods.names import known_name
from loca_theory.transforms import dct2

_Array = NDArray[np.float64]
# Singular values of an atom of the largest rank.
_ATOMS = {"LoCA": (1.0,), "Fourier": (0.5**0.5, 0.5**0.5)}


def named_spectrum(name: str, size: int) -> _Array:
    """Singular values by name: ``rank-N`` (N equal ones) or ``power-A`` (i^−A)."""
    kind, _, number = name.partition("-")
    i = np.arange(1, size + 1)
    values = i <= int(number) if kind == "rank" else i ** -float(number)
    return values.astype(np.float64)


def random_matrices(rng: Rng, singular_values: _Array, count: int) -> _Array:
    """Matrices with these singular values and uniformly random singular vectors, (count, K, K)."""
    size = len(singular_values)
    q, r = np.linalg.qr(rng.standard_normal((2, count, size, size)))
    left, right = q * np.sign(np.diagonal(r, axis1=-2, axis2=-1))[..., None, :]
    return (left * singular_values) @ right.mT


def fractions(matrices: _Array, method: str, budget: Budget) -> _Array:
    """Retained energies as fractions of the energies of the matrices."""
    batch = torch.from_numpy(matrices)
    energies = [retained_energies(matrix, method, [budget])[0] for matrix in batch]
    return np.array(energies) / np.square(matrices).sum(axis=(1, 2))


def fourth_powers(method: str, size: int) -> float:
    """The mean over the atoms of a basis of Σ a_k⁴, a_k the singular values of an atom.

    Atoms of rank one have 1. Those of F3 have rank two and ½, except the atoms that have a
    frequency 0 or K/2, which have rank one.
    """
    if known_name(method) != "Fourier":
        return 1.0
    lone = 1 if size % 2 else 2
    return 1 - (1 - lone / size) ** 2 / 2


def difference(
    *, tier: Tier, rng: Rng, first: str, second: str, spectrum: str, size: int, r: int
) -> Returned:
    """Mean difference of the energy fractions that two bases retain of the same random matrices.

    The singular values are given, the singular vectors uniformly random.

    Args:
        tier: 200, 400 or 4000 matrices.
        first: ``LoCA``, ``entries`` or ``Fourier``.
        second: The other basis.
        spectrum: ``rank-N`` or ``power-A``.
        size: K.
        r: LoRA's rank, which sets the budget.
    """
    values, budget = named_spectrum(spectrum, size), Budget(size, size, r)
    matrices = random_matrices(rng, values, tier.scaled(200, 400, 4000))
    gaps = fractions(matrices, first, budget) - fractions(matrices, second, budget)
    return {f"{known_name(first)} minus {known_name(second)}": Estimate.mean(gaps)}


def selection(
    *,
    tier: Tier,
    rng: Rng,
    methods: Sequence[str],
    spectra: Sequence[str],
    size: int,
    r: int,
    kappa: float = KAPPA,
) -> Named:
    """The proven bound on the retained energy less the mean that is retained.

    There is one estimate per method and spectrum; the singular vectors are uniformly random.

    Args:
        tier: 30, 60 or 1000 matrices.
        methods: ``LoCA``, ``Fourier``, or both.
        spectra: Names as for :func:`difference`.
        size: K.
        r: LoRA's rank, which sets the budget.
        kappa: The constant of the bound.
    """
    budget = Budget(size, size, r)
    draws = tier.scaled(30, 60, 1000)
    for name in spectra:
        values = named_spectrum(name, size)
        matrices = random_matrices(rng, values, draws)
        for method in map(known_name, methods):
            arguments = {"fourth_powers": fourth_powers(method, size), "kappa": kappa}
            bound = selection_bound(values**2, budget, _ATOMS[method], **arguments)
            gaps = bound - fractions(matrices, method, budget)
            yield f"{method}, {name}", Estimate.mean(gaps)


def criterion(*, results: Path | None, matrices: str, errors: str, r: int) -> Returned:
    """Retained energy of low rank less the bound for any basis of rank-one atoms, the smallest.

    The bound needs Σ w², which is at most the largest w, the reciprocal of the stable rank.

    Args:
        matrices: Pattern of the names of the tables of statistics.
        errors: Pattern of the names of the tables of errors.
        r: LoRA's rank.
    """
    rows = load(results, matrices, ("name", "kind", "shape", "stable_rank"), ("name",))
    table = load(results, errors, ("name", "r", "method", "error"), ("name", "r", "method"))
    low_rank = table[(table["r"] == r) & (table["method"] == "LoRA")].set_index("name")["error"]
    rows = rows[rows["kind"] != "embedding"].join(low_rank, on="name")
    if rows.empty:
        return {}, f"{matrices}.parquet has embeddings alone."
    if len(lacking := rows.loc[rows["error"].isna(), "name"]):
        return {}, f"{errors}.parquet has no error of LoRA at r = {r} for {lacking.min()}."
    gaps = {}
    for name, _, (p, q), stable_rank, error in rows.itertuples(index=False):
        # Weights with this largest one and the largest possible sum of squares.
        count = int(stable_rank)
        weights = [1.0] * count + [stable_rank - count]
        gaps[name] = 1 - error - selection_bound(weights, Budget(int(p), int(q), r))
    return extreme(min, gaps, "{count} matrices; the smallest at {at}.")


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
        law, normal = self.tail(absolute**2), special.chdtrc(1, absolute**2)
        cells = [-np.diff(tail, append=0.0) for tail in (law, normal)]
        return float(np.abs(cells[0] - cells[1]).sum() / 2)

    def _beyond(self, t: _Array) -> _Array:
        return np.minimum(t[:, None] / (self.size * self._v), 1.0)


def _selections(law: EqualSingularValues) -> tuple[_Array, _Array, _Array]:
    """Fractions f, what a selection of f retains beyond f + 2zφ(z), and z."""
    t = _GRID**2
    f, energy = law.tail(t), law.energy_above(t)
    chosen = (f >= _SMALLEST) & (f <= _LARGEST)
    f, energy = f[chosen], energy[chosen]
    normal = np.array([coefficient_fraction(fraction) for fraction in f])
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

    def measured(law: EqualSingularValues) -> dict[str, float]:
        _, excess, _ = _selections(law)
        return {
            "retained less the lower bound": excess.min() + corrections * 1.2 / law.size,
            "upper bound less it": corrections * 2 * KAPPA / law.count - excess.max(),
        }

    return _smallest(sizes, measured)


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

    def measured(law: EqualSingularValues) -> dict[str, float]:
        d, (f, excess, z) = law.distance(_GRID), _selections(law)
        return {
            "bound less the distance": spectral * 5.4 / law.count
            + 2 * np.sqrt(3) / (law.size - 1)
            - d,
            "z²d less the excess": (z**2 * d - excess).min(),
            "it less −d/f": (excess + d / f).min(),
        }

    return _smallest(sizes, measured)


def _smallest(
    sizes: Sequence[int], measured: Callable[[EqualSingularValues], dict[str, float]]
) -> Returned:
    """The smallest of each number over the matrices of :func:`normal_value`."""
    columns = {
        f"N = {count}, K = {size}": measured(EqualSingularValues(count, size))
        for size in sizes
        for count in sorted({1, 2, 4, size // 4, size // 2, size})
    }
    measurements = pd.DataFrame(columns)
    cases = "; ".join(f"{name}: {at}" for name, at in measurements.idxmin(axis=1).items())
    smallest = {str(name): float(gap) for name, gap in measurements.min(axis=1).items()}
    return smallest, f"The smallest is at: {cases}."


def fourth_moment(
    *, tier: Tier, rng: Rng, spectra: Sequence[str], size: int, limit: bool = False
) -> Named:
    """E x⁴ of cosine coefficients of matrices with random singular vectors, over its formula.

    Args:
        tier: 500, 2000 or 20,000 matrices.
        spectra: Names as for :func:`loca_theory.claims.checks.theory_bases.difference`.
        size: K.
        limit: Whether to use the formula's limit for large K.
    """
    draws = tier.scaled(500, 2000, 20_000)
    for name in spectra:
        values = named_spectrum(name, size)
        w = values**2 / np.square(values).sum()
        formula = 3 * (1 + 2 * float(w @ w)) * (1.0 if limit else (size / (size + 2)) ** 2)
        # Singular values of the energy K², so that E x² = 1.
        matrices = random_matrices(rng, size * np.sqrt(w), draws)
        fourth = (dct2(matrices) ** 4).mean(dim=(1, 2)).numpy()
        yield name, Estimate.mean(fourth / formula)
