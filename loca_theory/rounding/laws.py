r"""How much of independent changes survives rounding, as exact sums over binades and cells.

W is N(0, s²) rounded to the format, Δ is N(0, σ²) and independent of W, and d = rd(W + Δ) - W.

- Given a number w, Δ leaves its own cell with probability
  :math:`1 - \Phi((h - w)/\sigma) + \Phi((l - w)/\sigma)`, where l and h are the midpoints beside w.
- With the normal density :math:`φ_σ` and sums over the numbers c and their cells,
  :math:`\mathbb E[d\Delta \mid w] = \sum_c (c - w) \int (v - w) φ_σ(v - w)\,dv` and
  :math:`\mathbb E[(d - \Delta)^2 \mid w] = \sum_c \int (v - c)^2 φ_σ(v - w)\,dv`.

W is summed over the numbers of each binade. Of many numbers, those farther than 9σ from the ends of
the binade have one law, so that one stands for them. Where the step u is below σ/16, the errors of
rounding are uniform, with mean square u²/12 (Euler–Maclaurin: what this neglects is below 1e-4 of
the result), and so many numbers w are integrated by a quadrature. Subnormal numbers are a binade of
the smallest step.

Source: B. Widrow and I. Kollár, Quantization Noise, Cambridge University Press 2008, chapters 5 and
12, for the fine steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from loca_theory._arguments import real_number
from loca_theory._types import Array
from loca_theory.errors import InvalidArgumentError
from loca_theory.rounding.formats import Format

# Normal variables stay within this many standard deviations, up to 2e-19.
_REACH = 9
# Steps below this fraction of σ are fine.
_FINE = 1 / 16
# Numbers below this fraction of σ and of s are one interval around 0.
_LOWEST = 2.0**-14
# All numbers of a binade are summed if they are at most this many.
_FEW = 256
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)


@dataclass(frozen=True)
class RoundedChange:
    r"""Moments of the rounded change d of a normal change Δ of variance σ².

    Attributes:
        changed: Probability that a stored number changes.
        slope: :math:`c = \mathbb E\,d\Delta/σ^2`, the part of Δ that d contains: d = cΔ plus an
            uncorrelated error.
        error: :math:`\mathbb E(d - \Delta)^2/σ^2`.
    """

    changed: float
    slope: float
    error: float

    @property
    def energy(self) -> float:
        """E d²/σ²."""
        return self.error + 2 * self.slope - 1

    @property
    def noise(self) -> float:
        """Variance of d - cΔ, relative to σ²."""
        return self.energy - self.slope**2


def rounded_change(form: Format, change: float, weight: float = 1.0) -> RoundedChange:
    """How much of independent normal changes of independent normal weights survives in a format.

    Args:
        form: The format of weights before and after.
        change: σ, the standard deviation of the changes.
        weight: s, the standard deviation of the weights. Unless numbers are subnormal, the result
            depends on σ/s alone.

    Raises:
        InvalidArgumentError: a standard deviation is not positive, or nine of them are above the
            largest number of the format.
    """
    for name, value in (("change", change), ("weight", weight)):
        if not real_number(name, value) > 0 or not math.isfinite(value):
            raise InvalidArgumentError(
                f"{name} must be a positive standard deviation, not {value!r}"
            )
    if _REACH * (change + weight) > form.largest:
        raise InvalidArgumentError(
            f"{form.name} ends at {form.largest:g}: weights of standard deviation {weight:g} "
            f"with changes of {change:g} overflow; scale both down"
        )
    sums = np.zeros(3)
    grid = _Grid.of(form, change, weight)
    for numbers, probabilities in grid.weights(weight):
        sums += 2 * probabilities @ grid.moments(numbers)
    changed, slope, error = sums.tolist()
    return RoundedChange(changed, slope, error)


@dataclass(frozen=True)
class _Grid:
    """The binades of a format in units of σ; those below a lowest exponent are one."""

    lowest: int
    bits: int
    sigma: float

    @classmethod
    def of(cls, form: Format, change: float, weight: float) -> _Grid:
        lowest = math.floor(math.log2(_LOWEST * min(change, weight)))
        return cls(max(form.smallest_exponent, lowest), form.significant_bits, change)

    def binade(self, exponent: int) -> tuple[float, float, float]:
        """Start, end and step of a binade; that below the lowest begins at 0."""
        start = 2.0**exponent if exponent >= self.lowest else 0.0
        return start, 2.0 ** (exponent + 1), 2.0 ** (max(exponent, self.lowest) + 1 - self.bits)

    def exponents(self, largest: float) -> range:
        """Binades up to a number."""
        return range(self.lowest - 1, max(self.lowest, math.floor(math.log2(largest))) + 1)

    def weights(self, weight: float) -> Iterator[tuple[Array, Array]]:
        """Groups of numbers w ≥ 0 near each other, with their probabilities; half that of 0."""
        for exponent in self.exponents(2 * _REACH * weight):
            start, end, step = self.binade(exponent)
            count, near = round((end - start) / step), math.ceil(_REACH * self.sigma / step) + 1
            is_coarse = step >= _FINE * self.sigma
            if count <= _FEW or (is_coarse and count <= 2 * near):
                yield self._numbers(exponent, np.arange(count), weight)
            elif is_coarse:
                yield self._numbers(exponent, np.arange(near), weight)
                yield self._numbers(exponent, np.arange(count - near, count), weight)
                ends = start + (near - 0.5) * step, end - (near + 0.5) * step
                middle = np.array([start + (count // 2) * step])
                yield middle, np.array([ndtr(ends[1] / weight) - ndtr(ends[0] / weight)])
            else:
                yield from self._nodes(start, end, weight)

    def _numbers(
        self, exponent: int, indices: NDArray[np.int_], weight: float
    ) -> tuple[Array, Array]:
        """Numbers of a binade, with the probabilities of their cells; half that of 0."""
        start, _, step = self.binade(exponent)
        w: Array = start + step * indices.astype(np.float64)
        below = np.where((indices == 0) & (exponent > self.lowest), step / 4, step / 2)
        return w, ndtr((w + step / 2) / weight) - ndtr(np.maximum(w - below, 0) / weight)

    def _nodes(self, start: float, end: float, weight: float) -> Iterator[tuple[Array, Array]]:
        """Nodes in an interval, closer where other binades are in reach."""
        reach = _REACH * self.sigma
        edges = [start, end]
        if end - start > 4 * reach:
            edges = [start, start + reach, end - reach, end]
        for low, high in pairwise(edges):
            half = (high - low) / 2
            w = low + half * (1 + _NODES)
            yield w, half / weight * _WEIGHTS * _density(w / weight)

    def moments(self, w: Array) -> Array:
        """P(changed), E dΔ/σ² and E(d - Δ)²/σ² given each number w ≥ 0, shape (numbers, 3)."""
        low, high = float(w.min()) - _REACH * self.sigma, float(w.max()) + _REACH * self.sigma
        moments = np.stack([self._changed(w), np.zeros_like(w), np.zeros_like(w)], axis=1)
        for exponent in self.exponents(max(-low, high)):
            for sign in (1, -1):
                moments[:, 1:] += self._territory(w, exponent, sign, low, high)
        return moments

    def _fine_territory(self, w: Array, exponent: int, sign: int) -> Array:
        """The contribution of a binade of fine steps, with uniform errors.

        Two such binades meet at a number; a coarse one begins at the border of its first cell.
        What the errors have in common with Δ is due to the ends: the antiderivative of the error,
        which is u²/24 at numbers and -u²/12 at borders, times xφ(x).
        """
        start, end, step = self.binade(exponent)
        above = step if exponent < self.lowest else 2 * step
        unit = (step / self.sigma) ** 2 / 24
        factor = 1 - unit
        if above >= _FINE * self.sigma:
            end, factor = end - step / 2, 1 + 2 * unit
        a, b = sign * (start * sign - w) / self.sigma, sign * (end * sign - w) / self.sigma
        mass = ndtr(b) - ndtr(a)
        inner = mass + (1 - unit) * a * _density(a) - factor * b * _density(b)
        return np.stack([inner, 2 * unit * mass], axis=1)

    def _changed(self, w: Array) -> Array:
        """The probability that Δ leaves the cell of w."""
        exponent = np.floor(np.log2(np.maximum(w, 2.0**self.lowest)))
        step = 2.0 ** (exponent + 1 - self.bits)
        below = np.where((w == 2.0**exponent) & (exponent > self.lowest), step / 4, step / 2)
        return ndtr(-below / self.sigma) + ndtr(-step / 2 / self.sigma)

    def _territory(self, w: Array, exponent: int, sign: int, low: float, high: float) -> Array:
        """The contribution to E dΔ/σ² and E(d - Δ)²/σ² of the cells of a binade with one sign."""
        start, end, step = self.binade(exponent)
        border = start - step / 4 if exponent > self.lowest else start - step / 2
        if sign < 0:
            low, high = -high, -low
            # 0 and its cell belong to the positive numbers.
            border = max(border, step / 2)
        if border >= high or end <= low:
            return np.zeros((len(w), 2))
        if step < _FINE * self.sigma:
            return self._fine_territory(w, exponent, sign)
        first = max(0, math.floor((low - start) / step))
        last = min(round((end - start) / step), math.ceil((high - start) / step) + 1)
        numbers = start + step * np.arange(first, last)
        edges = np.append(numbers - step / 2, numbers[-1:] + step / 2)
        edges[:1] = max(float(edges[0]), border)
        if sign < 0 and numbers[0] == 0:
            numbers, edges = numbers[1:], edges[1:]
        c, x = ((sign * values - w[:, None]) / self.sigma for values in (numbers, edges))
        mass, density, moment = ndtr(x), _density(x), x * _density(x)
        mass, density, moment = (sign * np.diff(part, axis=1) for part in (mass, density, moment))
        # ∫x φ and ∫(x - c)² φ over each cell, from φ' = -xφ.
        inner, square = -c * density, (1 + c**2) * mass - moment + 2 * c * density
        return np.stack([inner.sum(axis=1), square.sum(axis=1)], axis=1)


def _density(x: Array) -> Array:
    return np.exp(-0.5 * x**2) / math.sqrt(2 * math.pi)
