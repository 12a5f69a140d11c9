r"""Random matrices W with dependent or unequal entries, set by one parameter.

A structure is one kind of dependence. From a single set of random numbers it computes W for any
value of the parameter. Losses at different values, and crossings, are therefore compared with
common random numbers.

============================= ========== ==================================================
structure                     parameter  law of W
============================= ========== ==================================================
``shared-mean``               rho        Σ = I + ρ 11ᵀ
``equicorrelated``            rho        Σ = (1−ρ) I + ρ 11ᵀ (unit variances)
``row-equicorrelated``        rho        independent rows with covariance (1−ρ) I + ρ 11ᵀ
``ar1``                       rho        Σ = A_p(ρ) ⊗ A_q(ρ), A(ρ)_ij = ρ^|i−j|
``blocks``                    rho        Σ = E_p(ρ) ⊗ E_q(ρ), exchangeable within blocks
``scaled``                    exponent   Σ = D_p ⊗ D_q, D diagonal with D_ii ∝ i^{-exponent}
``spiked``                    fraction   Z + θ (u_1 v_1ᵀ + u_2 v_2ᵀ + …), random directions
``power-law``                 exponent   Z Λ^{1/2} Qᵀ, λ_j ∝ j^{-exponent}, Q random orthogonal
============================= ========== ==================================================

Σ is the covariance of all pq entries, 1 is a vector of ones, and Z is a p×q matrix of independent
N(0, 1) entries. The u_k and the v_k are orthonormal, and :func:`spike_strength` gives θ. E(ρ) is
block diagonal, with (1−ρ) I + ρ 11ᵀ of :func:`blocks`' order in every block; D_p and D_q have mean
1. The paper's appendix prints the formula of ``shared-mean``, but its text describes
``equicorrelated``.

Four structures are separable: Σ = A ⊗ B with A between rows and B between columns, that is
:math:`W = A^{1/2} Z B^{1/2}`. They are ``row-equicorrelated`` (A = I), ``ar1``, ``blocks`` and
``scaled``; :mod:`loca_theory.dependence.separable` gives the errors of selections under them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loca_theory import _arguments
from loca_theory._lookup import find
from loca_theory.dependence import maps
from loca_theory.errors import InvalidArgumentError

# How far a parameter must stay from an end of its range that does not belong to the range.
_OPEN = 1e-9

# The largest block by default.
_LARGEST_BLOCK = 16

_Array = NDArray[np.float64]
Family = Callable[[float], _Array]


@dataclass(frozen=True)
class Structure:
    r"""A kind of dependence between the entries of a matrix.

    Attributes:
        name: Short name.
        parameter: Name of the parameter: ``rho``, ``fraction`` or ``exponent``.
        title: Title in a few words.
        reference: Publication.
        bounds: Function of (p, q) that returns the smallest and the largest value of the parameter.
        family: Function of (p, q, generator) that draws random numbers once and returns a function
            from values of the parameter to matrices.
        energy: Function of (p, q, value) that returns :math:`E\|W\|^2`.
        factors: Function of (p, q, value) that returns A (p×p) and B (q×q) of the covariance
            Σ = A ⊗ B; None if Σ is not separable.
        option: The argument of the function that made the structure, if it has one.
    """

    name: str
    parameter: str
    title: str
    reference: str
    bounds: Callable[[int, int], tuple[float, float]] = field(compare=False)
    family: Callable[[int, int, np.random.Generator], Family] = field(compare=False)
    energy: Callable[[int, int, float], float] = field(compare=False)
    factors: Callable[[int, int, float], tuple[_Array, _Array]] | None = field(
        default=None, compare=False
    )
    option: float | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to workers by name and option, because closures cannot be pickled."""
        return _find_structure, (
            self.name if self.option is None else f"{self.name}:{self.option}",
        )

    def describe(self) -> dict[str, Any]:
        """What distinguishes the structure from every other."""
        return {"name": self.name, "option": self.option}

    def check(self, p: int, q: int, value: float) -> None:
        """Check that a value of the parameter is in range for p×q matrices."""
        low, high = self.bounds(p, q)
        if not low <= value <= high:
            beyond = (low, high) == (-1 + _OPEN, 1 - _OPEN), high == 1 - _OPEN
            left, right = ("<" if is_open else "<=" for is_open in beyond)
            msg = f"{self.name} at {p}x{q} needs {low:.6g} {left} {self.parameter} {right} "
            msg += f"{high:.6g}, not {value:.6g}"
            if self.parameter == "rho":
                msg += ": the covariance would not be positive definite"
            raise InvalidArgumentError(msg)


def _of_normals(
    matrix: Callable[[_Array, float], _Array],
) -> Callable[[int, int, np.random.Generator], Family]:
    """The family that computes every W from one Z."""

    def family(p: int, q: int, rng: np.random.Generator) -> Family:
        z = rng.standard_normal((p, q))
        return lambda value: matrix(z, value)

    return family


def ar1(rho_columns: float | None = None) -> Structure:
    """Make the structure ``ar1``: neighbours are correlated along rows and columns.

    Args:
        rho_columns: Correlation of neighbouring columns; None for ρ, that of neighbouring rows.

    Raises:
        InvalidArgumentError: ``rho_columns`` is not a number strictly between −1 and 1.
    """
    if rho_columns is not None:
        rho_columns = _arguments.real_number("rho_columns", rho_columns)
        if not -1 < rho_columns < 1:
            msg = "the correlation of neighbouring columns must lie strictly between -1 and 1, not "
            msg += f"{rho_columns:g}: the covariance would not be positive definite"
            raise InvalidArgumentError(msg)

    def between_columns(rho: float) -> float:
        return rho if rho_columns is None else rho_columns

    def matrix(z: _Array, rho: float) -> _Array:
        return maps.autoregression(maps.autoregression(z, rho, 0), between_columns(rho), 1)

    def factors(p: int, q: int, rho: float) -> tuple[_Array, _Array]:
        return maps.powers_of_lag(p, rho), maps.powers_of_lag(q, between_columns(rho))

    return Structure(
        "ar1",
        "rho",
        "AR(1) ⊗ AR(1): neighbouring rows have correlation ρ, neighbouring columns "
        + ("ρ" if rho_columns is None else f"{rho_columns:g}"),
        "R. J. Martin, Biometrika 66 (1979)",
        lambda p, q: (-1 + _OPEN, 1 - _OPEN),
        _of_normals(matrix),
        _unit_energy,
        factors,
        rho_columns,
    )


def blocks(block: int | None = None) -> Structure:
    """Make the structure ``blocks``: exchangeable blocks of rows and of columns.

    Args:
        block: Rows, and columns, of a block, a divisor of p and q; None for the largest common
            divisor up to 16. Two entries in the same blocks of rows and columns have correlation ρ²
            if they share neither row nor column, and ρ if they share one.

    Raises:
        InvalidArgumentError: ``block`` is not a whole number of at least 1.
    """
    if block is not None and _arguments.whole_number("block", block) < 1:
        msg = f"a block must have at least 1 row and column, not {block}"
        raise InvalidArgumentError(msg)

    def order(p: int, q: int) -> int:
        common = math.gcd(p, q)
        divisors = [d for d in range(1, common + 1) if common % d == 0]
        if block is None:
            return max(d for d in divisors if d <= _LARGEST_BLOCK)
        if block not in divisors:
            msg = f"blocks of {block} do not divide both sides of a {p}x{q} matrix; choose from "
            msg += ", ".join(map(str, divisors))
            raise InvalidArgumentError(msg)
        return block

    def matrix(z: _Array, rho: float) -> _Array:
        b = order(*z.shape)
        return maps.exchangeable(maps.exchangeable(z, rho, b, 0), rho, b, 1)

    def factors(p: int, q: int, rho: float) -> tuple[_Array, _Array]:
        b = order(p, q)
        return maps.exchangeable_covariance(p, rho, b), maps.exchangeable_covariance(q, rho, b)

    return Structure(
        "blocks",
        "rho",
        f"correlation ρ within blocks of {block or f'up to {_LARGEST_BLOCK}'} rows and columns",
        "D. F. Votaw, Ann. Math. Stat. 19 (1948), for compound symmetry",
        lambda p, q: (-1 / max(order(p, q) - 1, 1), 1.0),
        _of_normals(matrix),
        _unit_energy,
        factors,
        block,
    )


def spike_strength(p: int, q: int, fraction: float, spikes: int) -> float:
    """The strength θ of ``spikes`` equal spikes that together have a given fraction of the energy.

    With s spikes, fraction = sθ²/(pq + sθ²).
    """
    return float(np.sqrt(fraction / (1 - fraction) * p * q / spikes))


def spiked(spikes: int = 1) -> Structure:
    """Make the structure ``spiked``, which adds equally strong random rank-one terms to Z.

    Raises:
        InvalidArgumentError: the number of spikes is not a whole number of at least 1.
    """
    if _arguments.whole_number("spikes", spikes) < 1:
        msg = f"the number of spikes must be at least 1, not {spikes}"
        raise InvalidArgumentError(msg)

    def bounds(p: int, q: int) -> tuple[float, float]:
        if spikes > min(p, q):
            msg = f"a {p}x{q} matrix can have at most {min(p, q)} spikes, not {spikes}"
            raise InvalidArgumentError(msg)
        return 0.0, 1 - _OPEN

    def family(p: int, q: int, rng: np.random.Generator) -> Family:
        z = rng.standard_normal((p, q))
        signal_part = maps.directions(p, spikes, rng) @ maps.directions(q, spikes, rng).T
        return lambda fraction: z + spike_strength(p, q, fraction, spikes) * signal_part

    return Structure(
        "spiked",
        "fraction",
        f"independent entries plus {spikes} random rank-one term{'s' * (spikes > 1)}",
        "I. M. Johnstone, Ann. Stat. 29 (2001); F. Benaych-Georges and R. R. Nadakuditi, "
        "J. Multivar. Anal. 111 (2012)",
        bounds,
        family,
        lambda p, q, fraction: p * q / (1 - fraction),
        option=spikes,
    )


def _power_law(p: int, q: int, rng: np.random.Generator) -> Family:
    z = rng.standard_normal((p, q))
    rotation = maps.directions(q, q, rng).T
    return lambda exponent: (z * np.sqrt(maps.power_law_variances(q, exponent))) @ rotation


def _unit_energy(p: int, q: int, value: float) -> float:
    del value  # variances average to 1
    return float(p * q)


STRUCTURES: dict[str, Structure] = {
    structure.name: structure
    for structure in (
        Structure(
            "shared-mean",
            "rho",
            "all entries share a random mean of variance ρ, as the appendix prints: Σ = I + ρ 11ᵀ",
            "the paper's appendix on non-i.i.d. effects",
            lambda p, q: (-1 / (p * q), np.inf),
            _of_normals(maps.shared_mean),
            lambda p, q, rho: (1 + rho) * p * q,
        ),
        Structure(
            "equicorrelated",
            "rho",
            "all pairs of entries have correlation ρ, as the appendix's text says",
            "the paper's appendix on non-i.i.d. effects",
            lambda p, q: (-1 / max(p * q - 1, 1), 1.0),
            _of_normals(maps.equicorrelated),
            _unit_energy,
        ),
        Structure(
            "row-equicorrelated",
            "rho",
            "independent rows, correlation ρ within each",
            "T. W. Anderson, An Introduction to Multivariate Statistical Analysis, 3rd ed., 2003",
            lambda p, q: (-1 / max(q - 1, 1), 1.0),
            _of_normals(lambda z, rho: maps.exchangeable(z, rho, z.shape[1], 1)),
            _unit_energy,
            lambda p, q, rho: (np.eye(p), maps.exchangeable_covariance(q, rho, q)),
        ),
        ar1(),
        blocks(),
        Structure(
            "scaled",
            "exponent",
            "independent entries whose variances decay along rows and columns",
            "T. Dettmers et al., NeurIPS 35 (2022), for outlier dimensions",
            lambda p, q: (0.0, 10.0),
            _of_normals(maps.scaled),
            _unit_energy,
            lambda p, q, exponent: (
                np.diag(maps.power_law_variances(p, exponent)),
                np.diag(maps.power_law_variances(q, exponent)),
            ),
        ),
        spiked(),
        Structure(
            "power-law",
            "exponent",
            "column covariance with eigenvalues j^(−exponent), random directions",
            "C. H. Martin and M. W. Mahoney, J. Mach. Learn. Res. 22 (2021)",
            lambda p, q: (0.0, 10.0),
            _power_law,
            _unit_energy,
        ),
    )
}


# The structures that have an argument beside the parameter, and the type of the argument.
_MAKERS: dict[str, tuple[Callable[[Any], Structure], type]] = {
    "ar1": (ar1, float), "blocks": (blocks, int), "spiked": (spiked, int)
}  # fmt: skip


def find_structures(given: str | Structure | Iterable[str | Structure]) -> tuple[Structure, ...]:
    """Find structures by name; ``spiked:3`` is ``spiked(3)``. A structure stands for itself."""
    found = tuple(map(_find_structure, _arguments.as_tuple(given)))
    names = [structure.name for structure in found]
    if not names or len(set(names)) < len(names):
        msg = "structures must list at least one name and no name twice, not "
        raise InvalidArgumentError(msg + (", ".join(names) or "none"))
    return found


def _find_structure(given: str | Structure) -> Structure:
    if isinstance(given, Structure):
        return given
    name, option = given, ""
    if isinstance(given, str):
        name, _, option = given.partition(":")
    structure = find("structure", name, STRUCTURES)
    if not option:
        return structure
    if name not in _MAKERS:
        msg = f"structures: {name} has no argument; write {name}, not {given}"
        raise InvalidArgumentError(msg)
    make, kind = _MAKERS[name]
    try:
        value = kind(option)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        msg = f"structures: {name} takes {what} after its colon, not {option!r}"
        raise InvalidArgumentError(msg) from None
    return make(value)
