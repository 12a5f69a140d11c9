"""Base class of random matrices with dependent entries, and the kinds that have an option.

A structure is one kind of dependence. From a single set of random numbers it computes W for any
value of its parameter. Losses at different values, and crossings, are therefore compared with
common random numbers. :mod:`loca_theory.dependence.structures` lists all.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
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

DrawFamily = Callable[[float], Array]


class Structure(ABC):
    r"""A kind of dependence between the entries of a matrix, which has one parameter.

    A subclass with ``name``, ``parameter``, :meth:`bounds` and :meth:`family` is enough.

    Attributes:
        name: Short name.
        parameter: Name of the parameter: ``rho``, ``fraction`` or ``exponent``.
        title: Title in a few words.
        option: What tells structures of one class apart, if anything does.

    >>> import numpy as np
    >>> from loca_theory.dependence import Structure, correlate
    >>> class RankOne(Structure):
    ...     name, parameter, title = "rank-one", "rho", "a random product of vectors"
    ...     def bounds(self, p, q):
    ...         return 0.0, 1.0
    ...     def family(self, p, q, rng):
    ...         z, u, v = (rng.standard_normal(shape) for shape in ((p, q), p, q))
    ...         return lambda rho: np.sqrt(1 - rho) * z + np.sqrt(rho) * np.outer(u, v)
    >>> found = correlate(16, ranks=2, structures=RankOne(), rho=[0, 0.9], draws=10)
    >>> [row.finding for row in found.crossings if row.protocol == "same-draw"]
    ['crossing']
    """

    name: str
    parameter: str
    title: str = ""
    option: Any = None

    @abstractmethod
    def bounds(self, p: int, q: int) -> tuple[float, float]:
        """The smallest and the largest value of the parameter."""

    @abstractmethod
    def family(self, p: int, q: int, rng: np.random.Generator) -> DrawFamily:
        """Draw random numbers once; return a function from values of the parameter to matrices."""

    def factors(self, p: int, q: int, value: float) -> tuple[Array, Array] | None:
        """A (p×p) and B (q×q) of the covariance Σ = A ⊗ B; None if Σ is not separable."""
        return None

    def energy(self, p: int, q: int, value: float) -> float:
        r""":math:`E\|W\|^2`; pq by default."""
        return float(p * q)

    def check(self, p: int, q: int, value: float) -> None:
        """Check that a value of the parameter is in range for p×q matrices.

        Raises:
            InvalidArgumentError: it is not.
        """
        low, high = self.bounds(p, q)
        if not low <= value <= high:
            beyond = (low, high) == (-1 + _OPEN, 1 - _OPEN), high == 1 - _OPEN
            left, right = ("<" if is_open else "<=" for is_open in beyond)
            msg = f"{self.name} at {p}x{q} needs {low:.6g} {left} {self.parameter} {right} "
            msg += f"{high:.6g}, not {value:.6g}"
            if self.parameter == "rho":
                msg += ": the covariance would not be positive definite"
            raise InvalidArgumentError(msg)


class OfNormals(Structure):
    """Base class of structures that compute every W from one Z; they override :meth:`matrix`."""

    def family(self, p: int, q: int, rng: np.random.Generator) -> DrawFamily:
        """The matrices of one Z."""
        z = rng.standard_normal((p, q))
        return lambda value: self.matrix(z, value)

    @abstractmethod
    def matrix(self, z: Array, value: float) -> Array:
        """W for a value of the parameter."""


@dataclass(frozen=True)
class _Autoregressive(OfNormals):
    name, parameter = "ar1", "rho"
    option: float | None  # the correlation of neighbouring columns
    title: str

    def bounds(self, p: int, q: int) -> tuple[float, float]:
        return -1 + _OPEN, 1 - _OPEN

    def matrix(self, z: Array, value: float) -> Array:
        return maps.autoregression(
            maps.autoregression(z, value, 0), self._between_columns(value), 1
        )

    def factors(self, p: int, q: int, value: float) -> tuple[Array, Array]:
        return maps.powers_of_lag(p, value), maps.powers_of_lag(q, self._between_columns(value))

    def _between_columns(self, rho: float) -> float:
        return rho if self.option is None else self.option


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
            raise InvalidArgumentError(
                "the correlation of neighbouring columns must lie strictly between -1 and 1, not "
                f"{rho_columns:g}: the covariance would not be positive definite"
            )
    title = "AR(1) ⊗ AR(1): neighbouring rows have correlation ρ, neighbouring columns "
    return _Autoregressive(
        rho_columns, title + ("ρ" if rho_columns is None else f"{rho_columns:g}")
    )


@dataclass(frozen=True)
class _Exchangeable(OfNormals):
    name, parameter = "blocks", "rho"
    option: int | None  # rows and columns of a block
    title: str

    def bounds(self, p: int, q: int) -> tuple[float, float]:
        return -1 / max(self._block(p, q) - 1, 1), 1.0

    def matrix(self, z: Array, value: float) -> Array:
        b = self._block(*z.shape)
        return maps.exchangeable(maps.exchangeable(z, value, b, 0), value, b, 1)

    def factors(self, p: int, q: int, value: float) -> tuple[Array, Array]:
        b = self._block(p, q)
        return maps.exchangeable_covariance(p, value, b), maps.exchangeable_covariance(q, value, b)

    def _block(self, p: int, q: int) -> int:
        common = divisors(math.gcd(p, q))
        if self.option is None:
            return max(d for d in common if d <= _LARGEST_BLOCK)
        if self.option not in common:
            raise InvalidArgumentError(
                f"blocks of {self.option} do not divide both sides of a {p}x{q} matrix; choose "
                f"from {', '.join(map(str, common))}"
            )
        return self.option


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
        raise InvalidArgumentError(f"a block must have at least 1 row and column, not {block}")
    largest = block or f"up to {_LARGEST_BLOCK}"
    return _Exchangeable(block, f"correlation ρ within blocks of {largest} rows and columns")


@dataclass(frozen=True)
class _Spiked(Structure):
    name, parameter = "spiked", "fraction"
    option: int  # the number of spikes
    title: str

    def bounds(self, p: int, q: int) -> tuple[float, float]:
        if self.option > min(p, q):
            raise InvalidArgumentError(
                f"a {p}x{q} matrix can have at most {min(p, q)} spikes, not {self.option}"
            )
        return 0.0, 1 - _OPEN

    def family(self, p: int, q: int, rng: np.random.Generator) -> DrawFamily:
        z = rng.standard_normal((p, q))
        rows, columns = (maps.directions(size, self.option, rng) for size in (p, q))
        signal_part = rows @ columns.T

        def matrix(fraction: float) -> Array:
            # Spikes of strength θ have the fraction spikes·θ² / (pq + spikes·θ²) of the energy.
            return z + np.sqrt(fraction / (1 - fraction) * p * q / self.option) * signal_part

        return matrix

    def energy(self, p: int, q: int, value: float) -> float:
        return p * q / (1 - value)


def spiked(spikes: int = 1) -> Structure:
    """Make the structure ``spiked``, which adds equally strong random rank-one terms to Z.

    Raises:
        InvalidArgumentError: the number of spikes is not a whole number of at least 1.
    """
    if _arguments.whole_number("spikes", spikes) < 1:
        raise InvalidArgumentError(f"the number of spikes must be at least 1, not {spikes}")
    terms = "term" if spikes == 1 else "terms"
    return _Spiked(spikes, f"independent entries plus {spikes} random rank-one {terms}")
