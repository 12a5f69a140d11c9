"""The proof of Theorem 1: its ingredients against naive ones, and what a wrong certificate does."""

from collections import Counter

import numpy as np
import pytest
from scipy import integrate, special
from sympy import Poly, Rational
from sympy.abc import x

from loca_theory.expressivity import Budget, exact_error
from loca_theory.expressivity.theorem1.bounds import (
    LAST,
    LOWER,
    TRACE_MOMENTS,
    UPPER,
    UPPER_THRESHOLD,
    coefficients_at_least,
    locations_at_least,
    locations_at_most,
    low_rank_at_least,
    low_rank_at_most,
    proven_gaps,
)
from loca_theory.expressivity.theorem1.conditions import (
    _normal_quantile,
    _tail,
    failed_conditions,
    is_positive,
)


def pairings(items):
    if not items:
        yield []
        return
    for k in range(1, len(items)):
        for pairing in pairings(items[1:k] + items[k + 1 :]):
            yield [(items[0], items[k]), *pairing]


def trace_moment(j):
    """E tr(WWᵀ)^j of a K×K normal matrix: each pairing identifies indices and leaves K^loops."""
    counts = Counter()
    for pairs in pairings(list(range(2 * j))):
        # The factor at position 2i is W[a_i, b_i], that at 2i + 1 is W[a_(i+1), b_i].
        label = {("a", i): ("a", i) for i in range(j)} | {("b", i): ("b", i) for i in range(j)}
        for first, second in pairs:
            for kind, i, k in (
                ("a", (first + 1) // 2 % j, (second + 1) // 2 % j),
                ("b", first // 2, second // 2),
            ):
                old, new = label[kind, i], label[kind, k]
                label = {key: new if value == old else value for key, value in label.items()}
        counts[len(set(label.values()))] += 1
    return tuple(counts[j + 1 - k] for k in range(max(j, 1)))


@pytest.mark.parametrize("j", [1, 2, 3, 4, pytest.param(5, marks=pytest.mark.deep)])
def test_moments_are_those_of_all_pairings(j):
    assert TRACE_MOMENTS[j] == trace_moment(j)


@pytest.mark.parametrize("j", range(1, 7))
def test_moments_at_size_one_are_those_of_a_normal_variable(j):
    assert sum(TRACE_MOMENTS[j]) == np.prod(np.arange(1, 2 * j, 2))


def test_a_polynomial_is_positive_where_it_starts_above_0_and_has_no_root():
    touching = Poly((x - 2) ** 2, x, domain="QQ")
    assert not is_positive(touching, Rational(0))
    assert is_positive(touching, Rational(0), Rational(1))
    assert is_positive(touching + Rational(1, 10**12), Rational(0))
    assert not is_positive(-touching - 1, Rational(0))


@pytest.mark.parametrize("fraction", [Rational(1, 3), Rational(1, 30), Rational(999, 1000)])
def test_the_quantile_is_enclosed(fraction):
    z = -special.ndtri(float(fraction) / 2)
    quantile = _normal_quantile(fraction)
    assert z in quantile
    assert quantile.delta < 1e-8


def test_the_tail_is_bounded_from_above():
    slope = np.polynomial.Polynomial([float(c) for c in LOWER.diff().all_coeffs()[::-1]])

    def integrand(x):
        return -100 * slope(x) * np.exp(-50 * (np.sqrt(x) - 2) ** 2)

    exact = integrate.quad(integrand, float(LAST), np.inf)[0]
    assert exact < _tail(LOWER, 100)
    assert _tail(LOWER, 100) < 1.25 * exact


@pytest.mark.parametrize(("size", "r"), [(9, 2), (30, 3), (31, 9), (100, 1), (100, 20), (101, 33)])
def test_bounds_enclose_the_exact_energies(size, r):
    budget = Budget(size, size, r)
    low_rank, locations, coefficients = (
        1 - exact_error(m, budget) for m in ("LoRA", "Fourier pairs", "LoCA")
    )
    assert low_rank_at_least(size, r) < low_rank < low_rank_at_most(size, r)
    assert locations_at_least(size, r) < locations < locations_at_most(size, r)
    assert coefficients_at_least(size, r) < coefficients
    exact = [exact_error(m, budget) for m in ("random Fourier", "LoRA", "Fourier pairs", "LoCA")]
    # Rounding of exact expectations is below 1e-11.
    assert all(np.array(proven_gaps(size, r)) <= -np.diff(exact) + 1e-11)


def test_every_condition_holds():
    assert failed_conditions() == []


@pytest.mark.parametrize(
    ("changed", "failing"),
    [
        ({"threshold": UPPER_THRESHOLD - Rational(1, 1000)}, "x − P(x) < t for x ≥ 0"),
        ({"threshold": UPPER_THRESHOLD + Rational(1, 10)}, "R > F2 at r/K = 0.3333, by moments"),
        ({"upper": UPPER - Rational(1, 100)}, "P > 0 for x ≥ 0"),
        ({"lower": LOWER * Rational(101, 100)}, "θ < 1"),
        ({"lower": LOWER * Rational(95, 100)}, "F1 > R at the largest r"),
        ({"lower": LOWER + Rational(1, 50)}, "E N ≤ r"),
        ({"lower": LOWER * 3}, "the tail beyond the last point is small"),
    ],
)
def test_a_wrong_certificate_is_seen(changed, failing):
    assert failing in failed_conditions(**changed)
