r"""Laws of numbers that a scalar quantiser sees, by their partial moments.

A quantiser of single numbers has the error of its law alone, so that the same formulas give its
expectation for normal entries and its error on the entries of a matrix.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, gammaln, ndtr

from loca_theory._types import Array

# Thresholds are searched up to this multiple of the root mean square, by this many halvings: a
# number with more than 1/10⁸ of the energy per entry would lie beyond.
_FARTHEST, _HALVINGS = 1e4, 70


Law = Callable[[ArrayLike], Array]
"""A law of one real number X: from x, P(X ≤ x), E[X; X ≤ x] and E[X²; X ≤ x] in three rows."""


def normal(x: ArrayLike) -> Array:
    """The standard normal :data:`Law`."""
    x = np.clip(x, -40.0, 40.0)  # beyond, all three are those at infinity
    mass, density = ndtr(x), np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
    return np.stack([mass, -density, mass - x * density])


def sphere(m: int) -> Law:
    r"""The law of one of m coordinates of a uniform point with squared norm m.

    So are m independent normal numbers distributed after division by their root mean square. The
    density is :math:`c (1 - x^2/m)^{(m-3)/2}`.
    """
    if m == 1:
        return entries([-1.0, 1.0])
    half = (m - 1) / 2
    log_c = gammaln(m / 2) - gammaln(half) - np.log(np.pi * m) / 2

    def law(x: ArrayLike) -> Array:
        x = np.clip(x, -np.sqrt(m), np.sqrt(m))
        square = np.minimum(x**2 / m, 1.0)
        first = -np.exp(log_c) * m / (m - 1) * (1 - square) ** half
        mass, second = ((1 + np.sign(x) * betainc(shape, half, square)) / 2 for shape in (0.5, 1.5))
        return np.stack([mass, first, second])

    return law


def entries(values: ArrayLike) -> Law:
    """The law of a number drawn from given ones."""
    ordered = np.sort(np.asarray(values, dtype=np.float64), axis=None)
    powers = np.stack([np.ones_like(ordered), ordered, ordered**2])
    sums = np.concatenate([np.zeros((3, 1)), np.cumsum(powers, axis=1) / len(ordered)], axis=1)
    return lambda x: sums[:, np.searchsorted(ordered, x, side="right")]


def tail(law: Law, beyond: float) -> Law:
    """The numbers of a law beyond a threshold on either side; their probability is below 1."""

    def outside(x: ArrayLike) -> Array:
        return law(np.minimum(x, -beyond)) + (law(np.maximum(x, beyond)) - law([beyond]))

    return outside


def moment(law: Law, power: int) -> float:
    """The total probability, E[X] or E[X²]."""
    return float(law([np.inf])[power, 0])


def threshold(law: Law, fraction: float) -> float:
    """The least t, to rounding, for which X ≤ −t or X > t has at most this probability."""
    low, high = 0.0, _FARTHEST * np.sqrt(moment(law, 2))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below, above = law([-middle, middle])[0]
        low, high = (low, middle) if below + 1 - above <= fraction else (middle, high)
    return high
