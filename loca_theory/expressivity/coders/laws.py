r"""Laws of numbers that a scalar quantiser sees, by their partial moments.

A quantiser of single numbers has the error of its law alone, so that the same formulas give its
expectation for normal entries and its error on the entries of a matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, gammaln, ndtr

from loca_theory._types import Array

# Thresholds are searched up to this multiple of the root mean square, by so many halvings: a
# number with more than 1/10⁸ of the energy per entry would lie beyond.
_FARTHEST, _HALVINGS = 1e4, 70


class Law(Protocol):
    """A law of one real number X."""

    def below(self, x: ArrayLike) -> Array:
        """P(X ≤ x), E[X; X ≤ x] and E[X²; X ≤ x] in three rows."""
        ...


class Normal:
    """The standard normal law."""

    def below(self, x: ArrayLike) -> Array:
        """See :class:`Law`."""
        x = np.clip(x, -40.0, 40.0)  # beyond, all three are those at infinity
        mass, density = ndtr(x), np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
        return np.stack([mass, -density, mass - x * density])


@dataclass(frozen=True)
class Sphere:
    r"""The law of one of m coordinates of a uniform point with squared norm m.

    So are m independent normal numbers distributed after division by their root mean square. The
    density is :math:`c (1 - x^2/m)^{(m-3)/2}`.
    """

    m: int

    def below(self, x: ArrayLike) -> Array:
        """See :class:`Law`."""
        if self.m == 1:
            return Entries([-1.0, 1.0]).below(x)
        x = np.clip(x, -np.sqrt(self.m), np.sqrt(self.m))
        square, half = np.minimum(x**2 / self.m, 1.0), (self.m - 1) / 2
        log_c = gammaln(self.m / 2) - gammaln(half) - np.log(np.pi * self.m) / 2
        first = -np.exp(log_c) * self.m / (self.m - 1) * (1 - square) ** half
        mass, second = ((1 + np.sign(x) * betainc(shape, half, square)) / 2 for shape in (0.5, 1.5))
        return np.stack([mass, first, second])


class Entries:
    """The law of a number drawn from given ones."""

    def __init__(self, values: ArrayLike) -> None:
        self._values = np.sort(np.asarray(values, dtype=np.float64), axis=None)
        powers = np.stack([np.ones_like(self._values), self._values, self._values**2])
        sums = np.cumsum(powers, axis=1) / len(self._values)
        self._sums = np.concatenate([np.zeros((3, 1)), sums], axis=1)

    def below(self, x: ArrayLike) -> Array:
        """See :class:`Law`."""
        return self._sums[:, np.searchsorted(self._values, x, side="right")]


@dataclass(frozen=True)
class Tail:
    """The numbers of a law beyond a threshold on either side; their probability is below 1."""

    law: Law
    beyond: float

    def below(self, x: ArrayLike) -> Array:
        """See :class:`Law`."""
        left = self.law.below(np.minimum(x, -self.beyond))
        right = self.law.below(np.maximum(x, self.beyond)) - self.law.below([self.beyond])
        return left + right


def moment(law: Law, power: int) -> float:
    """The total probability, E[X] or E[X²]."""
    return float(law.below([np.inf])[power, 0])


def threshold(law: Law, fraction: float) -> float:
    """The least t, to rounding, for which X ≤ −t or X > t has at most this probability."""
    low, high = 0.0, _FARTHEST * np.sqrt(moment(law, 2))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below, above = law.below([-middle, middle])[0]
        low, high = (low, middle) if below + 1 - above <= fraction else (middle, high)
    return high
