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
:mod:`~loca_theory.expressivity.theorem1.conditions` checks everything that the proof asks of them.

Source: this package; the moments are sums over pairings (Isserlis 1918, Wick), and the bound on the
largest singular value is that of Gordon, and of Davidson and Szarek (2001).
"""

# sympy and mpmath declare wider types than these functions return.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOperatorIssue=false
# pyright: reportReturnType=false, reportCallIssue=false
from __future__ import annotations

from functools import lru_cache
from math import log, sqrt

import numpy as np
from scipy import special
from sympy import QQ, Poly, Rational
from sympy.abc import x

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.laws.order_statistics import upper_quantile
from loca_theory.expressivity.limits import coefficient_fraction

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
    return Poly([Rational(digit, 100_000) for digit in reversed(digits)], x, domain=QQ)


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


def trace_moment(polynomial: Poly, power: int = 0) -> Poly:
    """E Σ x_i^power P(x_i) / K, as a polynomial in 1/K."""
    moments = (Poly(moment[::-1], x, domain=QQ) for moment in TRACE_MOMENTS[power:])
    coefficients = polynomial.all_coeffs()[::-1]
    return sum((c * moment for c, moment in zip(coefficients, moments, strict=False)), Poly(0, x))


@lru_cache(maxsize=64)
def _moment_at(polynomial: Poly, power: int, size: int) -> float:
    return float(trace_moment(polynomial, power).eval(Rational(1, size)))


def low_rank_at_most(size: int, r: int) -> float:
    """A bound from above on E S(r)/K², for every K and r."""
    by_moments = r * float(UPPER_THRESHOLD) / size + _moment_at(UPPER, 0, size)
    return min(r * (4 * size + 1) / size**2, by_moments)


def low_rank_at_least(size: int, r: int) -> float:
    """A bound from below on E S(r)/K², for r < K/3; from K = LOWER_FROM on above 2r/K."""
    by_projection = (2 * size * r - r * r + r * (size - r) ** 2 / (2 * size - r)) / size**2
    if size < LOWER_FROM:
        return by_projection
    # S(r)/r falls with r; the largest r < K/3 is at least K/3 − 1.
    largest = (size - 1) // 3
    at_least = _moment_at(LOWER, 1, size) - 4 * float(STEEPEST) * sqrt(1 / (size / 3 - 1)) / size
    return max(by_projection, r / largest * at_least)


def locations_at_least(size: int, r: int) -> float:
    """The mean energy of the best N₂ = ⌊2Kr/3⌋ of the pairs alone, which is M1, over K²."""
    half = Budget(size, size, r).half_spectrum
    chosen = 2 * size * r // 3
    harmonic = special.digamma(half.pair_count + 1) - special.digamma(chosen + 1)
    return float(2 * chosen * (1 + harmonic) / size**2)


def locations_at_most(size: int, r: int) -> float:
    """A bound from above on the energy of the best N₂ locations, over K²."""
    half = Budget(size, size, r).half_spectrum
    chosen, locations = 2 * size * r // 3, half.pair_count + half.self_conjugate_count
    return 2 * chosen * (1 + log(locations / chosen)) / size**2


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
        raise InvalidArgumentError(
            f"the theorem is about 1 <= r < K/3, not about r = {r} and K = {size}"
        )
    locations = size**2 / 2 + 2 if size % 2 == 0 else (size**2 + 1) / 2
    return (
        low_rank_at_least(size, r) - size * r / locations,
        locations_at_least(size, r) - low_rank_at_most(size, r),
        coefficients_at_least(size, r) - locations_at_most(size, r),
    )
