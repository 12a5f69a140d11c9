"""Expected sums of the largest χ² variables, against other routes to the same numbers.

Tolerances: the functions promise a relative 1e-13 beyond the few ulps of their sums; references
computed by adaptive quadrature are asked for 1e-11 and so are the comparisons.
"""

import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy import integrate, special, stats

from loca_theory.expressivity.laws.order_statistics import (
    expected_location_sum,
    expected_top_sum,
    expected_top_sum_with_outlier,
)
from loca_theory.expressivity.laws.unequal_variances import expected_top_sum_of_unequal
from loca_theory.transforms.half_spectrum import HalfSpectrum

PROMISED = 1e-13
BY_QUADRATURE = 1e-11


def harmonic_sum(n, count):
    """2(N + N(H_n − H_N)): the l-th largest of n Exp(1) is on average H_n − H_{l−1}."""
    with mpmath.workdps(30):
        difference = mpmath.harmonic(n) - mpmath.harmonic(count)
        return float(2 * (count + count * difference)) if count else 0.0


def by_exceedances(singles, pairs):
    """E of the sum of the N largest of up to 1000 χ²_1 and χ²_2 variables, for every N = 0, 1, …

    ∫ E min(N, B(x)) dx with B(x) the number of variables above x, every probability P(B = k)
    written out and x = z² cut into many short Gauss–Legendre panels.
    """
    nodes, weights = np.polynomial.legendre.leggauss(24)
    edges = np.concatenate([[0.0, 1e-3, 1e-2], np.linspace(0.05, 12.0, 120)])
    half = np.diff(edges)[:, None] / 2
    z = (edges[:-1, None] + half * (1 + nodes)).ravel()
    measure = 2 * z * (half * weights).ravel()
    singles_pmf = stats.binom.pmf(
        np.arange(singles + 1), singles, special.chdtrc(1, z * z)[:, None]
    )
    pairs_pmf = stats.binom.pmf(np.arange(pairs + 1), pairs, special.chdtrc(2, z * z)[:, None])
    short, long = sorted([singles_pmf, pairs_pmf], key=lambda pmf: pmf.shape[1])
    law = np.zeros((len(z), singles + pairs + 1))
    for k in range(short.shape[1]):
        law[:, k : k + long.shape[1]] += short[:, k, None] * long
    at_least = np.cumsum(law[:, :0:-1], axis=1)[:, ::-1]
    return np.append(0.0, np.cumsum(measure @ at_least))


@pytest.mark.parametrize("n", [1, 2, 3, 7, 24, 101, 8192, 294_914, 8_388_610, 10**10], ids=str)
def test_two_degrees_of_freedom_are_harmonic_numbers(n):
    parts = (10**5, 10**4, 1000, 10, 3, 2)
    counts = {0, 1, 2, 5, *(n // part for part in parts), (9 * n) // 10, n - 2, n - 1, n}
    for count in sorted(count for count in counts if 0 <= count <= n):
        expected = harmonic_sum(n, count)
        assert expected_top_sum(n, count, 2) == pytest.approx(expected, rel=PROMISED, abs=0)


@pytest.mark.parametrize(("n", "df"), [(2, 1), (30, 1), (1000, 1), (30, 2)])
def test_every_count_by_exceedances(n, df):
    expected = by_exceedances(n, 0) if df == 1 else by_exceedances(0, n)
    got = [expected_top_sum(n, count, df) for count in range(n + 1)]
    np.testing.assert_allclose(got, expected, rtol=BY_QUADRATURE)


@pytest.mark.parametrize("n", [4096**2, 10**9], ids=["4096 squared", "a billion"])
@pytest.mark.parametrize("fraction", [1 / 512, 0.02, 0.2, 0.7])
def test_huge_n_meets_the_expansion_in_one_over_n(n, fraction):
    """n E[G(U)] with G(f) = ∫₀^f Q and U ~ Beta(N, n − N), expanded at its mean f = N/n.

    G(f) = f + 2zφ, Q = z² and dz/df = −1/2φ give the derivatives −z/φ, (1 + z²)/2φ² and
    −z(2 + z²)/2φ³ of Q. With the beta's moments to 1/n², a relative O(1/n³) is left out.
    """
    count = int(fraction * n)
    with mpmath.workdps(40):
        f = mpmath.mpf(count) / n
        z = mpmath.sqrt(2) * mpmath.erfinv(1 - f)
        phi = mpmath.npdf(z)
        variance = f * (1 - f) / (n + 1)
        third_moment = 2 * (1 - 2 * f) * variance / (n + 2)
        retained = f + 2 * z * phi - z / phi * variance / 2
        retained += (1 + z**2) / (2 * phi**2) * third_moment / 6
        retained -= z * (2 + z**2) / (2 * phi**3) * 3 * variance**2 / 24
        expected = float(n * retained)
    assert expected_top_sum(n, count, 1) == pytest.approx(expected, rel=PROMISED, abs=0)


@pytest.mark.parametrize("df", [1, 2], ids=["one degree", "two degrees"])
def test_edges(df):
    assert expected_top_sum(0, 0, df) == 0
    assert expected_top_sum(0, 5, df) == 0
    assert expected_top_sum(9, 0, df) == 0
    assert expected_top_sum(9, 9, df) == 9 * df
    assert expected_top_sum(9, 40, df) == 9 * df
    assert expected_top_sum(10**12, 10**12, df) == df * 10**12


SHAPES = [(1, 1), (1, 2), (2, 2), (1, 7), (3, 3), (2, 5), (4, 4), (5, 6), (9, 8), (31, 20)]


@pytest.mark.parametrize(("p", "q"), SHAPES, ids=[f"{p}x{q}" for p, q in SHAPES])
def test_the_strongest_locations_by_exceedances(p, q):
    half = HalfSpectrum(p, q)
    expected = by_exceedances(half.self_conjugate_count, half.pair_count)
    got = [expected_location_sum(half, count) for count in range(half.location_count + 1)]
    np.testing.assert_allclose(got, expected, rtol=BY_QUADRATURE)


@pytest.mark.parametrize("K", [768, 4095, 4096], ids=lambda K: f"K = {K}")
def test_the_few_self_conjugate_entries_of_a_large_matrix_add_their_excess(K):
    """Beside m pairs, s single entries add s·E(X − t)⁺ above the pairs' threshold t.

    The threshold itself varies by a relative 1/√N, which changes the excess by a relative O(1/N);
    the difference of two large sums carries their rounding.
    """
    half = HalfSpectrum(K, K)
    s, m = half.self_conjugate_count, half.pair_count
    count = 16 * K // 3
    pairs_alone = expected_top_sum(m, count, 2)
    added = expected_location_sum(half, count) - pairs_alone
    threshold = -2 * math.log(count / m)
    excess = stats.chi2(3).sf(threshold) - threshold * stats.chi2(1).sf(threshold)
    tolerance = 10 * s * excess / count + 2 * PROMISED * pairs_alone
    assert abs(added - s * excess) < tolerance


# --- one variable of another variance --------------------------------------------------------


@pytest.mark.parametrize(("n", "count"), [(2, 1), (7, 3), (1000, 1), (90000, 2400), (90000, 89000)])
def test_an_outlier_of_variance_one_is_no_outlier(n, count):
    got = expected_top_sum_with_outlier(n, count, 1.0)
    assert got == pytest.approx(expected_top_sum(n, count, 1), rel=1e-11)


@pytest.mark.parametrize(
    ("n", "count", "variance"),
    [(2, 1, 9.0), (2, 1, 0.2), (6, 2, 30.0), (60, 7, 500.0), (60, 1, 4.0), (5, 0, 3), (5, 5, 3)],
)
def test_an_outlier_is_one_of_unequal_variances(n, count, variance):
    expected = expected_top_sum_of_unequal([variance, *[1.0] * (n - 1)], count)
    # The precision that the function of unequal variances promises for few variances.
    assert expected_top_sum_with_outlier(n, count, variance) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(
    ("n", "count", "df"), [(9, 2, 3), (40, 7, 24), (256, 15, 256), (30, 29, 5)]
)
def test_many_degrees_of_freedom_by_tail_integrals(n, count, df):
    """∫ E min(N, B(x)) dx, with B(x) the number of variables above x."""

    def above(x):
        chance = stats.chi2.sf(x, df)
        return float(
            np.minimum(np.arange(n + 1), count) @ stats.binom.pmf(np.arange(n + 1), n, chance)
        )

    points = stats.chi2.isf([1 - 1e-9, 0.5, 0.05, 1e-3, 1e-6, 1e-12, 1e-25], df)
    low = float(points[0])
    parts = [integrate.quad(above, a, b, epsabs=0, epsrel=1e-12)[0] for a, b in pairwise(points)]
    first = integrate.quad(above, 0, low, epsabs=0, epsrel=1e-12)[0]
    assert expected_top_sum(n, count, df) == pytest.approx(first + sum(parts), rel=BY_QUADRATURE)
