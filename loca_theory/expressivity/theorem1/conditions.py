r"""The conditions under which the bounds prove Theorem 1 for all large sizes at once.

Two polynomials bound the energy of low rank from above and from below. Their signs are decided in
exact rational arithmetic by Sturm's theorem, all other comparisons in interval arithmetic. The page
"A proof of Theorem 1" derives the conditions.

Source: this package.
"""

# sympy and mpmath declare wider types than these functions return.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOperatorIssue=false
# pyright: reportReturnType=false, reportCallIssue=false
from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import isqrt
from typing import Any

from mpmath import iv
from scipy import special
from sympy import Poly, Rational
from sympy.abc import x

from loca_theory.expressivity.theorem1.bounds import (
    LAST,
    LOWER,
    LOWER_FROM,
    STEEPEST,
    UPPER,
    UPPER_FROM,
    UPPER_THRESHOLD,
    trace_moment,
)

# Below this fraction of K the bound by the largest singular value is used.
_SMALL_RANKS = Rational(93, 1000)
_THIRD = Rational(1, 3)


def is_positive(polynomial: Poly, low: Rational, high: Rational | None = None) -> bool:
    """Whether a polynomial is positive on [low, high], or on [low, ∞) if high is None.

    Sturm's theorem in rational arithmetic: the answer is exact.
    """
    return bool(polynomial.eval(low) > 0) and polynomial.count_roots(low, high) == 0


def failed_conditions(
    upper: Poly = UPPER, threshold: Rational = UPPER_THRESHOLD, lower: Poly = LOWER
) -> list[str]:
    """The conditions of the proof for all large K that a pair of polynomials does not meet.

    Every condition is decided by exact rational arithmetic or by intervals that enclose the exact
    numbers; one that an interval leaves undecided is not met.
    """
    conditions = [*_upper_conditions(upper, threshold), *_lower_conditions(lower), *_second()]
    return [name for name, holds in conditions if not holds]


def _upper_conditions(upper: Poly, threshold: Rational) -> Iterator[tuple[str, Any]]:
    zero, first = Rational(0), Rational(1, UPPER_FROM)
    yield "P > 0 for x ≥ 0", is_positive(upper, zero)
    yield "x − P(x) < t for x ≥ 0", is_positive(upper - x + threshold, zero)
    mean = trace_moment(upper)
    yield "the mean of P falls as K grows", is_positive(mean.diff(), zero, first)
    for fraction in (_SMALL_RANKS, _THIRD):
        bound = _enclosed(fraction * threshold + mean.eval(first))
        name = f"R > F2 at r/K = {float(fraction):.4g}, by moments"
        yield name, bound < _smallest_m1(UPPER_FROM, fraction)
    for fraction in (first, _SMALL_RANKS):
        name = f"R > F2 at r/K = {float(fraction):.4g}, by the largest singular value"
        yield name, _enclosed(fraction * (4 + first)) < _smallest_m1(UPPER_FROM, fraction)


def _smallest_m1(size: int, fraction: Rational) -> Any:
    """A bound from below on M1/K² at r = fraction·K that grows with K and is concave in r."""
    chosen = (2 * fraction * size**2 - 2) / 3
    ratio = (Rational(size**2, 2) - 1) / (chosen + 1)
    return _enclosed(2 * chosen / size**2) * (1 + iv.log(_enclosed(ratio)))


def _lower_conditions(lower: Poly) -> Iterator[tuple[str, Any]]:
    zero, first = Rational(0), Rational(1, LOWER_FROM)
    slope = lower.diff()
    yield "θ > 0 up to the last point", is_positive(lower, zero, LAST)
    yield "θ < 1", is_positive(1 - lower, zero)
    yield "the polynomial falls beyond the last point", is_positive(-slope, LAST)
    yield "√x |θ'| is below its bound", is_positive(STEEPEST**2 - slope**2 * x, zero, LAST)
    # E N ≤ K/3 − 1 ≤ r, with room for the tail; the tail falls as K grows.
    tail = Rational(1, 10)
    number = _THIRD - trace_moment(lower) - (1 + tail) * x
    yield "E N ≤ r", is_positive(number, zero, first)
    yield "the tail beyond the last point is small", _tail(lower, LOWER_FROM) < _enclosed(tail)
    # The largest correction is that of the smallest K; here its square, and a number above it.
    square = (4 * STEEPEST / LOWER_FROM) ** 2 / (Rational(LOWER_FROM, 3) - 1)
    correction = Rational(isqrt(int(square * 10**24)) + 1, 10**12)
    excess = trace_moment(lower, 1) - 2 * _THIRD - correction
    yield "F1 > R at the largest r", is_positive(excess, zero, first)


def _tail(lower: Poly, size: int) -> Any:
    """A bound on K ∫ |B'(x)| P(λ_1 > K x) dx beyond the last point, if B falls there.

    By Gaussian concentration of σ_1 the probability is at most e^(−K(√x−2)²/2), which falls: on a
    cell [a, b] the integral is at most B(a) − B(b) times its value at a. Beyond the last cell, at
    x = 30, |B'(x)| ≤ Σ k|b_k| 30^(k−1) e^(x−30) and (√x − 2)² > x/3.
    """
    end, cells = 30, 16
    edges = [LAST + Rational(k, cells) for k in range((end - int(LAST)) * cells + 1)]
    total = iv.mpf(0)
    for a, b in pairwise(edges):
        probability = iv.exp(-size * (iv.sqrt(_enclosed(a)) - 2) ** 2 / 2)
        total += _enclosed(lower.eval(a) - lower.eval(b)) * probability
    coefficients = enumerate(reversed(lower.all_coeffs()))
    slope = sum(k * abs(c) * Rational(end) ** (k - 1) for k, c in coefficients)
    remainder = _enclosed(slope / (Rational(size, 6) - 1)) * iv.exp(iv.mpf(-size * end) / 6)
    return size * (total + remainder)


def _second() -> Iterator[tuple[str, Any]]:
    """F2 > D from K = UPPER_FROM on: the gap in the limit exceeds all corrections."""
    size = UPPER_FROM
    correction = iv.mpf(34) / 9 + iv.log(size**2 + 1)
    for fraction, where in ((_THIRD, "K/3"), (Rational(1, size), "1")):
        z, g = _normal_quantile(fraction), _enclosed(4 * fraction / 3)
        energy = _enclosed(fraction) + 2 * z * _normal_density(z)
        yield f"F2 > D at r = {where}", (energy - g * (1 - iv.log(g))) * size**2 > correction
    # The gap in the limit rises and then falls, so it is smallest at the ends of an interval.
    end = iv.log(iv.mpf(9) / 4) * 4 / 3
    yield "the gap in the limit falls at r = K/3", _normal_quantile(_THIRD) ** 2 < end
    # Where the failure rate of χ²_1 is below 3/4 the gap is concave: it grows at least like r.
    z = _normal_quantile(Rational(1, size))
    yield "the gap is concave up to r = 1", _normal_density(z) / z * size < iv.mpf(3) / 4


def _enclosed(number: Rational) -> Any:
    return iv.mpf(int(number.p)) / int(number.q)


def _normal_density(z: Any) -> Any:
    return iv.exp(-z * z / 2) / iv.sqrt(2 * iv.pi)


def _normal_quantile(fraction: Rational) -> Any:
    """An interval that contains the z with 2(1 − Φ(z)) = fraction."""
    near, width = Rational(float(-special.ndtri(float(fraction) / 2))), Rational(1, 10**9)
    low, high = _enclosed(near - width), _enclosed(near + width)
    enclosed = _enclosed(fraction)
    if not (_beyond(high) < enclosed and enclosed < _beyond(low)):
        raise ArithmeticError(
            f"the enclosure of the quantile at {fraction} failed; use a higher iv.prec"
        )
    return iv.mpf([low.a, high.b])


def _beyond(z: Any) -> Any:
    """2(1 − Φ(z)) for 0 < z < 4, by the alternating series Σ (−1)^n z^(2n+1)/(2^n n! (2n+1))."""
    power, total = z, z
    for n in range(1, 60):
        power *= -z * z / (2 * n)
        total += power / (2 * n + 1)
    # The terms fall from n = 8 on, so the last one bounds the rest.
    total += power * iv.mpf([-1, 1])
    return 1 - 2 * total / iv.sqrt(2 * iv.pi)
