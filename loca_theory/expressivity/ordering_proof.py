r"""A proof of the ordering of Theorem 1: bounds on the four expected energies.

W is K×K with independent N(0, 1) entries, λ_1 ≥ λ_2 ≥ … are the squares of its singular values,
x_i = λ_i/K and S(r) = λ_1 + … + λ_r. The page "A proof of Theorem 1" derives the bounds below.

- **S(r) from above.** For t and a polynomial P with P ≥ 0 and x − P(x) ≤ t for all x ≥ 0,
  :math:`S(r) \le K\,(r t + \sum_i P(x_i))`. The expectation needs only moments of the trace. For
  small r, E λ_1 ≤ 4K + 1 is better.
- **S(r) from below.** For a function θ with values in [0, 1] and N = Σ θ(x_i),
  :math:`S(r) \ge \sum_i θ(x_i) λ_i + λ_r (r - N)`. For r ≤ 0.29 K, projections give
  :math:`E\,S(r) \ge 2Kr - r^2 + r(K-r)^2/(2K-r)` as well.
- **Locations.** The energies of pairs are exponential, whose order statistics have the means
  :math:`2(1/i + … + 1/m)`.
- **Coefficients.** The quantile function of χ²_1 is convex, so that the i-th largest of n has at
  least the mean :math:`Q(i/(n+1))`.

Two fixed polynomials with rational coefficients, :data:`UPPER` and :data:`LOWER`, prove the two
inequalities about low rank for all K from :data:`UPPER_FROM` and :data:`LOWER_FROM` on.
:func:`failed_conditions` checks everything that the proof asks of them: the signs of polynomials in
exact rational arithmetic by Sturm's theorem, all other comparisons in interval arithmetic.

Source: this package; the moments are sums over pairings (Isserlis 1918, Wick), and the bound on the
largest singular value is that of Gordon, and of Davidson and Szarek (2001).
"""

# sympy and mpmath declare wider types than these functions return.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOperatorIssue=false
# pyright: reportReturnType=false, reportCallIssue=false
from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from math import isqrt, log, sqrt
from typing import Any

import numpy as np
from mpmath import iv
from scipy import special
from sympy import QQ, Poly, Rational
from sympy.abc import x

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.limits import coefficient_fraction
from loca_theory.expressivity.order_statistics import upper_quantile

# E Σ λ_i^j = K^{j+1} Σ_k c_k K^{−k}: the pairings of 2j factors by their number of loops.
TRACE_MOMENTS = (
    (1,),
    (1,),
    (2, 1),
    (5, 6, 4),
    (14, 29, 42, 20),
    (42, 130, 305, 320, 148),
    (132, 562, 1884, 3229, 3240, 1348),
)


def _decimals(*digits: int) -> Poly:
    return Poly([Rational(one, 100_000) for one in reversed(digits)], x, domain=QQ)


UPPER_THRESHOLD = Rational(17584, 10_000)
"""t, which belongs to :data:`UPPER`."""
UPPER = _decimals(361, -6414, 39055, -70979, 50081, -13269, 1206)
"""P, from the constant term up."""
LOWER = _decimals(2339, -27773, 89471, -40152, 6955, -427)
"""The polynomial B of which θ consists up to :data:`LAST`; from there on θ is constant."""
LAST, STEEPEST = Rational(5), Rational(13, 20)
"""Where θ becomes constant, and a bound on √x |θ'(x)|."""
UPPER_FROM, LOWER_FROM = 30, 100
"""The sizes from which the two polynomials prove their inequalities."""
# Below this fraction of K the bound by the largest singular value is used.
_SMALL_RANKS = Rational(93, 1000)
_THIRD = Rational(1, 3)


def is_positive(polynomial: Poly, low: Rational, high: Rational | None = None) -> bool:
    """Whether a polynomial is positive on [low, high], or on [low, ∞) if high is None.

    Sturm's theorem in rational arithmetic: the answer is exact.
    """
    return bool(polynomial.eval(low) > 0) and polynomial.count_roots(low, high) == 0


def _moment(polynomial: Poly, power: int = 0) -> Poly:
    """E Σ x_i^power P(x_i) / K, as a polynomial in 1/K."""
    moments = (Poly(one[::-1], x, domain=QQ) for one in TRACE_MOMENTS[power:])
    coefficients = polynomial.all_coeffs()[::-1]
    return sum((c * one for c, one in zip(coefficients, moments, strict=False)), Poly(0, x))


@lru_cache(maxsize=64)
def _moment_at(polynomial: Poly, power: int, size: int) -> float:
    return float(_moment(polynomial, power).eval(Rational(1, size)))


# --- Bounds, relative to K² ----------------------------------------------------------------------


def low_rank_at_most(size: int, r: int) -> float:
    """A bound from above on E S(r)/K², for every K and r."""
    by_moments = r * float(UPPER_THRESHOLD) / size + _moment_at(UPPER, 0, size)
    return min(r * (4 * size + 1) / size**2, by_moments)


def low_rank_at_least(size: int, r: int) -> float:
    """A bound from below on E S(r)/K², for r < K/3; from K = LOWER_FROM on above 2r/K."""
    by_projection = (2 * size * r - r * r + r * (size - r) ** 2 / (2 * size - r)) / size**2
    if size < LOWER_FROM:
        return by_projection
    # S(r)/r falls with r.
    largest = (size - 1) // 3
    return max(by_projection, r / largest * _lower_bound(size))


def _lower_bound(size: int) -> float:
    """The bound from below at the largest r < K/3; r ≥ K/3 − 1."""
    return _moment_at(LOWER, 1, size) - 4 * float(STEEPEST) * sqrt(1 / (size / 3 - 1)) / size


def locations_at_least(size: int, r: int) -> float:
    """The mean energy of the best N₂ = ⌊2Kr/3⌋ of the pairs alone, which is M1, over K²."""
    half = Budget(size, size, r).half_spectrum
    chosen = 2 * size * r // 3
    harmonic = special.digamma(half.pair_count + 1) - special.digamma(chosen + 1)
    return float(2 * chosen * (1 + harmonic) / size**2)


def locations_at_most(size: int, r: int) -> float:
    """A bound from above on the energy of the best N₂ locations, over K²."""
    half = Budget(size, size, r).half_spectrum
    chosen, most = 2 * size * r // 3, half.pair_count + half.self_conjugate_count
    return 2 * chosen * (1 + log(most / chosen)) / size**2


def coefficients_at_least(size: int, r: int) -> float:
    """A bound from below on the energy of the best Kr coefficients, over K²."""
    n, count = size**2, size * r
    first, last = 1 / (n + 1), count / (n + 1)
    between = coefficient_fraction(last) - coefficient_fraction(first)
    ends = upper_quantile(np.array([first, last]), 1).sum() / 2
    return float(((n + 1) * between + ends) / n)


def proven_gaps(size: int, r: int) -> tuple[float, float, float]:
    """Bounds from below on the gaps F1 − R, R − F2 and F2 − D of the relative errors.

    Returns:
        The three bounds. They are positive from K = :data:`LOWER_FROM` on; at smaller K a bound
        that is not positive decides nothing.
    """
    if not 1 <= r <= (size - 1) // 3:
        msg = f"the theorem is about 1 <= r < K/3, not about r = {r} and K = {size}"
        raise InvalidArgumentError(msg)
    locations = size**2 / 2 + 2 if size % 2 == 0 else (size**2 + 1) / 2
    return (
        low_rank_at_least(size, r) - size * r / locations,
        locations_at_least(size, r) - low_rank_at_most(size, r),
        coefficients_at_least(size, r) - locations_at_most(size, r),
    )


# --- All sizes at once ---------------------------------------------------------------------------


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
    mean = _moment(upper)
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
    number = _THIRD - _moment(lower) - (1 + tail) * x
    yield "E N ≤ r", is_positive(number, zero, first)
    yield "the tail beyond the last point is small", _tail(lower, LOWER_FROM) < _enclosed(tail)
    # The largest correction is that of the smallest K; here its square, and a number above it.
    square = (4 * STEEPEST / LOWER_FROM) ** 2 / (Rational(LOWER_FROM, 3) - 1)
    correction = Rational(isqrt(int(square * 10**24)) + 1, 10**12)
    excess = _moment(lower, 1) - 2 * _THIRD - correction
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
    rest = _enclosed(slope / (Rational(size, 6) - 1)) * iv.exp(iv.mpf(-size * end) / 6)
    return size * (total + rest)


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
    wanted = _enclosed(fraction)
    if not (_beyond(high) < wanted and wanted < _beyond(low)):
        msg = f"the enclosure of the quantile at {fraction} failed; use a higher iv.prec"
        raise ArithmeticError(msg)
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
