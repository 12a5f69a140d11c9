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
:func:`failed_conditions` checks everything that the proof asks of them, the signs of polynomials in
exact rational arithmetic by Sturm's theorem.

Source: this package; the moments are sums over pairings (Isserlis 1918, Wick), and the bound on the
largest singular value is that of Gordon, and of Davidson and Szarek (2001).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from math import exp, log, sqrt

import numpy as np
from scipy import integrate, special

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.limits import coefficient_fraction
from loca_theory.expressivity.order_statistics import upper_quantile

Polynomial = tuple[Fraction, ...]

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


def _decimals(*digits: int) -> Polynomial:
    return tuple(Fraction(one, 100_000) for one in digits)


UPPER_THRESHOLD = Fraction(17584, 10_000)
"""t, which belongs to :data:`UPPER`."""
UPPER = _decimals(361, -6414, 39055, -70979, 50081, -13269, 1206)
"""P, from the constant term up."""
LOWER = _decimals(2339, -27773, 89471, -40152, 6955, -427)
"""The polynomial B of which θ consists up to :data:`LAST`; from there on θ is constant."""
LAST, STEEPEST = Fraction(5), Fraction(13, 20)
"""Where θ becomes constant, and a bound on √x |θ'(x)|."""
UPPER_FROM, LOWER_FROM = 30, 100
"""The sizes from which the two polynomials prove their inequalities."""
# Below this fraction of K the bound by the largest singular value is used.
_SMALL_RANKS = Fraction(93, 1000)


# --- Polynomials in exact arithmetic -------------------------------------------------------------


def _value(polynomial: Polynomial, x: Fraction) -> Fraction:
    total = Fraction(0)
    for coefficient in reversed(polynomial):
        total = total * x + coefficient
    return total


def _derivative(polynomial: Polynomial) -> Polynomial:
    return tuple(k * c for k, c in enumerate(polynomial))[1:]


def _sum(first: Polynomial, second: Polynomial, factor: int = 1) -> Polynomial:
    length = max(len(first), len(second))
    padded = [(*one, *[Fraction(0)] * (length - len(one))) for one in (first, second)]
    return tuple(a + factor * b for a, b in zip(*padded, strict=True))


def _product(first: Polynomial, second: Polynomial) -> Polynomial:
    found = [Fraction(0)] * (len(first) + len(second) - 1)
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            found[i + j] += a * b
    return tuple(found)


def _remainder(numerator: Polynomial, denominator: Polynomial) -> Polynomial:
    rest = list(numerator)
    while len(rest) >= len(denominator):
        factor = rest[-1] / denominator[-1]
        shift = len(rest) - len(denominator)
        for k, c in enumerate(denominator):
            rest[shift + k] -= factor * c
        rest.pop()
    while rest and rest[-1] == 0:
        rest.pop()
    return tuple(rest)


def is_positive(polynomial: Polynomial, low: Fraction, high: Fraction | None = None) -> bool:
    """Whether a polynomial is positive on [low, high], or on [low, ∞) if high is None.

    Sturm's theorem in rational arithmetic: the answer is exact.
    """
    chain = [polynomial, _derivative(polynomial)]
    while rest := _remainder(chain[-2], chain[-1]):
        chain.append(tuple(-c for c in rest))

    def changes(x: Fraction | None) -> int:
        values = [one[-1] if x is None else _value(one, x) for one in chain]
        signs = [value > 0 for value in values if value]
        return sum(a != b for a, b in pairwise(signs))

    return _value(polynomial, low) > 0 and changes(low) == changes(high)


def _moment(polynomial: Polynomial, power: int = 0) -> Polynomial:
    """E Σ x_i^power P(x_i) / K, as a polynomial in 1/K."""
    total: Polynomial = (Fraction(0),)
    for j, c in enumerate(polynomial):
        total = _sum(total, tuple(c * one for one in TRACE_MOMENTS[j + power]))
    return total


# --- Bounds, relative to K² ----------------------------------------------------------------------


def low_rank_at_most(size: int, r: int) -> float:
    """A bound from above on E S(r)/K², for every K and r."""
    by_moments = r * UPPER_THRESHOLD / size + _value(_moment(UPPER), Fraction(1, size))
    return min(r * (4 * size + 1) / size**2, float(by_moments))


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
    energy = float(_value(_moment(LOWER, 1), Fraction(1, size)))
    return energy - 4 * float(STEEPEST) * sqrt(1 / (size / 3 - 1)) / size


def locations_at_least(size: int, r: int) -> float:
    """The mean energy of the best N₂ = ⌊2Kr/3⌋ of the pairs alone, which is M1, over K²."""
    half = Budget(size, size, r).half_spectrum
    count = 2 * size * r // 3
    harmonic = special.digamma(half.pair_count + 1) - special.digamma(count + 1)
    return float(2 * count * (1 + harmonic) / size**2)


def locations_at_most(size: int, r: int) -> float:
    """A bound from above on the energy of the best N₂ locations, over K²."""
    half = Budget(size, size, r).half_spectrum
    count, most = 2 * size * r // 3, half.pair_count + half.self_conjugate_count
    return 2 * count * (1 + log(most / count)) / size**2


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
    upper: Polynomial = UPPER,
    threshold: Fraction = UPPER_THRESHOLD,
    lower: Polynomial = LOWER,
) -> list[str]:
    """The conditions of the proof for all large K that a pair of polynomials does not meet."""
    conditions = [*_upper_conditions(upper, threshold), *_lower_conditions(lower), *_second()]
    return [name for name, holds in conditions if not holds]


def _upper_conditions(upper: Polynomial, threshold: Fraction) -> Iterator[tuple[str, bool]]:
    zero, first = Fraction(0), Fraction(1, UPPER_FROM)
    yield "P > 0 for x ≥ 0", is_positive(upper, zero)
    rest = _sum(upper, (threshold, Fraction(-1)))
    yield "x − P(x) < t for x ≥ 0", is_positive(rest, zero)
    mean = _moment(upper)
    yield "the mean of P falls as K grows", is_positive(_derivative(mean), zero, first)
    for fraction in (_SMALL_RANKS, Fraction(1, 3)):
        bound = fraction * threshold + _value(mean, first)
        name = f"R > F2 at r/K = {float(fraction):.4g}, by moments"
        yield name, float(bound) < _smallest_m1(UPPER_FROM, float(fraction))
    for fraction in (1 / UPPER_FROM, float(_SMALL_RANKS)):
        name = f"R > F2 at r/K = {fraction:.4g}, by the largest singular value"
        yield name, fraction * (4 + 1 / UPPER_FROM) < _smallest_m1(UPPER_FROM, fraction)


def _smallest_m1(size: int, fraction: float) -> float:
    """A bound from below on M1/K² at r = fraction·K that grows with K and is concave in r."""
    count = (2 * fraction * size**2 - 2) / 3
    return 2 * count * (1 + log((size**2 / 2 - 1) / (count + 1))) / size**2


def _lower_conditions(lower: Polynomial) -> Iterator[tuple[str, bool]]:
    zero, first, one = Fraction(0), Fraction(1, LOWER_FROM), (Fraction(1),)
    slope = _derivative(lower)
    yield "θ > 0 up to the last point", is_positive(lower, zero, LAST)
    yield "θ < 1", is_positive(_sum(one, lower, -1), zero)
    falling = tuple(-c for c in slope)
    yield "the polynomial falls beyond the last point", is_positive(falling, LAST)
    steep = _sum((STEEPEST**2,), _product((zero, Fraction(1)), _product(slope, slope)), -1)
    yield "√x |θ'| is below its bound", is_positive(steep, zero, LAST)
    # E N ≤ K/3 − 1 ≤ r, with room for the tail; the tail falls as K grows.
    tail = Fraction(1, 10)
    count = _sum((Fraction(1, 3),), _sum(_moment(lower), (zero, 1 + tail)), -1)
    yield "E N ≤ r", is_positive(count, zero, first)
    yield "the tail beyond the last point is small", _tail(lower, LOWER_FROM) < float(tail)
    # The largest correction is that of the smallest K.
    correction = 4 * float(STEEPEST) / LOWER_FROM * sqrt(1 / (LOWER_FROM / 3 - 1))
    least = Fraction(2, 3) + Fraction(correction)
    yield "F1 > R at the largest r", is_positive(_sum(_moment(lower, 1), (least,), -1), zero, first)


def _tail(lower: Polynomial, size: int) -> float:
    """K ∫ |B'(x)| P(λ_1 > K x) dx beyond the last point, by Gaussian concentration of σ_1."""
    slope = np.polynomial.Polynomial([float(c) for c in _derivative(lower)])
    last = float(LAST)

    def integrand(x: float) -> float:
        return float(-slope(x)) * exp(-size * (sqrt(x) - 2) ** 2 / 2)

    # Beyond 30 it is below e^(−600).
    return size * float(integrate.quad(integrand, last, 30.0, points=[6.0, 8.0, 12.0])[0])


def _second() -> Iterator[tuple[str, bool]]:
    """F2 > D from K = UPPER_FROM on: the gap in the limit exceeds all corrections."""
    size = UPPER_FROM

    def gap(fraction: float) -> float:
        g = 4 * fraction / 3
        return coefficient_fraction(fraction) - g * (1 - log(g))

    correction = 16 / 9 + 2 + log(size**2 + 1)
    yield "F2 > D at r = K/3", gap(1 / 3) * size**2 > correction
    yield "F2 > D at r = 1", gap(1 / size) * size**2 > correction
    # The gap in the limit rises and then falls, so it is smallest at the ends of an interval.
    quantile = float(upper_quantile(np.array(1 / 3), 1))
    yield "the gap in the limit falls at r = K/3", quantile < 4 / 3 * log(9 / 4)
    quantile = float(upper_quantile(np.array(1 / size), 1))
    # Where the failure rate of χ²_1 is below 3/4 the gap is concave: it grows at least like r.
    density = exp(-quantile / 2) / sqrt(2 * np.pi * quantile)
    yield "the gap is concave up to r = 1", density * size < 3 / 4
