r"""The Marchenko–Pastur law, for any aspect ratio.

Let W be a p×q matrix of independent entries with mean 0 and variance σ². In the limit p, q → ∞ with
q/p → y, the eigenvalues of WᵀW/p have the density

.. math:: f(x) = \frac{\sqrt{(b-x)(x-a)}}{2π σ^2 y\, x}, \qquad
          a, b = σ^2 (1 \mp \sqrt y)^2 ,

and, if y > 1, a fraction 1 − 1/y of them is 0. Let c = min(y, 1/y), and write an eigenvalue as
:math:`x(θ) = σ^2 \max(1, y)\,(1 + c + 2\sqrt c\cos θ)`. Then the fraction of the eigenvalues above
x(θ), and the fraction of the energy, are elementary functions of the angle θ.

Source: V. A. Marchenko and L. A. Pastur, Math. USSR Sb. 1 (1967); the paper's preliminary analysis.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from loca_theory._types import Array
from loca_theory.errors import InvalidArgumentError

# Angles between which the first guess is interpolated; bisection alone would take 53 steps.
_GRID, _MOST_STEPS, _ROUNDING = 257, 60, 4e-15


@dataclass(frozen=True)
class MarchenkoPastur:
    """The Marchenko–Pastur law, with methods as in :mod:`scipy.stats`.

    Attributes:
        ratio: y = q/p > 0, columns over rows.
        sigma: σ > 0, the standard deviation of an entry.

    Raises:
        InvalidArgumentError: ratio or sigma is not positive and finite.
    """

    ratio: float
    sigma: float = 1.0

    def __post_init__(self) -> None:
        if not (0 < self.ratio < np.inf and 0 < self.sigma < np.inf):
            raise InvalidArgumentError(
                f"ratio and sigma must be positive and finite, not {self.ratio} and {self.sigma}"
            )

    @cached_property
    def atom(self) -> float:
        """P(X = 0): 1 − 1/y for y > 1, else 0."""
        return max(0.0, 1 - 1 / self.ratio)

    @property
    def support(self) -> tuple[float, float]:
        """The edges (a, b) of the continuous part."""
        root = np.sqrt(self.ratio)
        return float(self.sigma**2 * (1 - root) ** 2), float(self.sigma**2 * (1 + root) ** 2)

    @property
    def mean(self) -> float:
        """The mean, σ²."""
        return self.sigma**2

    @property
    def variance(self) -> float:
        """The variance, y σ⁴."""
        return self.ratio * self.sigma**4

    def pdf(self, x: ArrayLike) -> Array:
        """Density of the continuous part; it integrates to 1 − atom."""
        x = np.asarray(x, dtype=np.float64)
        a, b = self.support
        inside = (x > a) & (x < b) & (x > 0)
        safe = np.where(inside, x, 1.0)
        height = np.sqrt(np.maximum((b - safe) * (safe - a), 0.0))
        return np.where(inside, height / (2 * np.pi * self.sigma**2 * self.ratio * safe), 0.0)

    def cdf(self, x: ArrayLike) -> Array:
        """P(X ≤ x)."""
        return 1.0 - self.sf(x)

    def sf(self, x: ArrayLike) -> Array:
        """P(X > x)."""
        x = np.asarray(x, dtype=np.float64)
        beyond = (1 - self.atom) * fraction_up_to_angle(self._angle(x), self._aspect)
        return np.where(x < 0, 1.0, beyond)

    def energy_fraction_above(self, x: ArrayLike) -> Array:
        """Fraction of E X that comes from eigenvalues above x, (θ − sin θ cos θ)/π."""
        theta = self._angle(np.asarray(x, dtype=np.float64))
        return (theta - np.sin(theta) * np.cos(theta)) / np.pi

    def isf(self, probability: ArrayLike) -> Array:
        """The x with P(X > x) = probability; 0 if no x > 0 has this probability.

        Raises:
            InvalidArgumentError: a probability is not in [0, 1].
        """
        tail = np.asarray(probability, dtype=np.float64)
        if np.any(~((tail >= 0) & (tail <= 1))):
            raise InvalidArgumentError(f"probability must be between 0 and 1, not {probability}")
        theta = angle_at_fraction(np.minimum(tail / (1 - self.atom), 1.0), self._aspect)
        x = self._scale * (1 + self._aspect + 2 * np.sqrt(self._aspect) * np.cos(theta))
        x = np.maximum(x, self.support[0])
        return np.where(tail > 1 - self.atom, 0.0, x)

    def ppf(self, probability: ArrayLike) -> Array:
        """The x with P(X ≤ x) = probability; 0 if the probability is at most P(X = 0).

        Raises:
            InvalidArgumentError: a probability is not in [0, 1].
        """
        return self.isf(1.0 - np.asarray(probability, dtype=np.float64))

    @property
    def _aspect(self) -> float:
        return min(self.ratio, 1 / self.ratio)

    @property
    def _scale(self) -> float:
        return self.sigma**2 * max(1.0, self.ratio)

    def _angle(self, x: Array) -> Array:
        cosine = (x / self._scale - 1 - self._aspect) / (2 * np.sqrt(self._aspect))
        return np.arccos(np.clip(cosine, -1.0, 1.0))


def fraction_up_to_angle(theta: ArrayLike, aspect: float) -> Array:
    r"""Fraction of the nonzero eigenvalues whose angle is at most θ: those of at least x(θ).

    .. math:: \frac2π\Bigl[\frac{(1+c)θ}{4c} - \frac{\sin θ}{2\sqrt c}
              - \frac{1-c}{2c}\arctan\Bigl(\frac{1-\sqrt c}{1+\sqrt c}\tan\frac θ2\Bigr)\Bigr]
    """
    theta = np.asarray(theta, dtype=np.float64)
    root = np.sqrt(aspect)
    arc = np.arctan2((1 - root) * np.sin(theta / 2), (1 + root) * np.cos(theta / 2))
    straight = (1 + aspect) * theta / 2 - root * np.sin(theta) - (1 - aspect) * arc
    return straight / (np.pi * aspect)


def angle_at_fraction(fraction: ArrayLike, aspect: float) -> Array:
    r"""Inverse of :func:`fraction_up_to_angle`, up to rounding.

    Newton's method, with the derivative :math:`2\sin^2θ/(π(1 + c + 2\sqrt c\cos θ))`; a step that
    would leave the interval known to hold the angle is replaced by bisection.
    """
    fraction = np.asarray(fraction, dtype=np.float64)
    goal = np.clip(fraction.ravel(), 0.0, 1.0)
    low, high = np.zeros(len(goal)), np.full(len(goal), np.pi)
    # Near 0 the fraction is proportional to the cube of the angle.
    grid = np.linspace(0.0, np.pi, _GRID)
    theta = np.interp(np.cbrt(goal), np.cbrt(fraction_up_to_angle(grid, aspect)), grid)
    root = np.sqrt(aspect)
    for _ in range(_MOST_STEPS):
        excess = fraction_up_to_angle(theta, aspect) - goal
        low, high = np.where(excess <= 0, theta, low), np.where(excess >= 0, theta, high)
        half = np.cos(theta / 2) ** 2
        # 1 + c + 2√c cos θ without cancellation
        slope = 2 * np.sin(theta) ** 2 / (np.pi * ((1 - root) ** 2 + 4 * root * half))
        with np.errstate(divide="ignore", invalid="ignore"):
            next_theta = theta - excess / slope
        next_theta = np.where(
            (next_theta >= low) & (next_theta <= high), next_theta, (low + high) / 2
        )
        step, theta = np.abs(next_theta - theta).max(initial=0.0), next_theta
        if step <= _ROUNDING:
            break
    theta = np.where(goal >= fraction_up_to_angle(np.pi, aspect), np.pi, theta)
    return np.where(goal > 0, theta, 0.0).reshape(fraction.shape)
