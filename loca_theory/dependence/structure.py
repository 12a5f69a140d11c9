"""What a structure is, and the structures that have an option.

A structure is one kind of dependence. From a single set of random numbers it computes W for any
value of its parameter. Losses at different values, and crossings, are therefore compared with
common random numbers. :mod:`loca_theory.dependence.structures` lists all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loca_theory import _arguments
from loca_theory._types import Array
from loca_theory.dependence import maps
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.methods.linear_families import divisors

# Distance of a parameter from an end of its range that does not belong to the range.
_OPEN = 1e-9
# The largest block by default.
_LARGEST_BLOCK = 16

Family = Callable[[float], Array]


@dataclass(frozen=True)
class Structure:
    r"""A kind of dependence between the entries of a matrix.

    Attributes:
        name: Short name.
        parameter: Name of the parameter: ``rho``, ``fraction`` or ``exponent``.
        title: Title in a few words.
        bounds: Function of (p, q) that returns the smallest and the largest value of the parameter.
        family: Function of (p, q, generator) that draws random numbers once and returns a function
            from values of the parameter to matrices.
        factors: Function of (p, q, value) that returns A (p×p) and B (q×q) of the covariance
            Σ = A ⊗ B; None if Σ is not separable.
        energy: Function of (p, q, value) that returns :math:`E\|W\|^2`; pq by default.
        option: The argument of the function that made the structure, if it has one.
    """

    name: str
    parameter: str
    title: str
    bounds: Callable[[int, int], tuple[float, float]] = field(compare=False)
    family: Callable[[int, int, np.random.Generator], Family] = field(compare=False)
    factors: Callable[[int, int, float], tuple[Array, Array]] | None = field(
        default=None, compare=False
    )
    energy: Callable[[int, int, float], float] = field(
        default=lambda p, q, _: float(p * q), compare=False
    )
    option: float | None = None

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


def of_normals(
    matrix: Callable[[Array, float], Array],
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

    def matrix(z: Array, rho: float) -> Array:
        return maps.autoregression(maps.autoregression(z, rho, 0), between_columns(rho), 1)

    def factors(p: int, q: int, rho: float) -> tuple[Array, Array]:
        return maps.powers_of_lag(p, rho), maps.powers_of_lag(q, between_columns(rho))

    title = "AR(1) ⊗ AR(1): neighbouring rows have correlation ρ, neighbouring columns "
    title += "ρ" if rho_columns is None else f"{rho_columns:g}"
    bounds, family = (-1 + _OPEN, 1 - _OPEN), of_normals(matrix)
    return Structure("ar1", "rho", title, lambda *_: bounds, family, factors, option=rho_columns)


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
        common = divisors(math.gcd(p, q))
        if block is None:
            return max(d for d in common if d <= _LARGEST_BLOCK)
        if block not in common:
            msg = f"blocks of {block} do not divide both sides of a {p}x{q} matrix; choose from "
            msg += ", ".join(map(str, common))
            raise InvalidArgumentError(msg)
        return block

    def bounds(p: int, q: int) -> tuple[float, float]:
        return -1 / max(order(p, q) - 1, 1), 1.0

    def matrix(z: Array, rho: float) -> Array:
        b = order(*z.shape)
        return maps.exchangeable(maps.exchangeable(z, rho, b, 0), rho, b, 1)

    def factors(p: int, q: int, rho: float) -> tuple[Array, Array]:
        b = order(p, q)
        return maps.exchangeable_covariance(p, rho, b), maps.exchangeable_covariance(q, rho, b)

    title = f"correlation ρ within blocks of {block or f'up to {_LARGEST_BLOCK}'} rows and columns"
    return Structure("blocks", "rho", title, bounds, of_normals(matrix), factors, option=block)


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

        def matrix(fraction: float) -> Array:
            # Spikes of strength θ have the fraction spikes·θ² / (pq + spikes·θ²) of the energy.
            return z + np.sqrt(fraction / (1 - fraction) * p * q / spikes) * signal_part

        return matrix

    def energy(p: int, q: int, fraction: float) -> float:
        return p * q / (1 - fraction)

    title = f"independent entries plus {spikes} random rank-one term{'s' * (spikes > 1)}"
    return Structure("spiked", "fraction", title, bounds, family, energy=energy, option=spikes)
