"""Sums of the largest squares of normals of unequal variances, against exact convolution."""

import numpy as np
import pytest
from scipy import special

from loca_theory.expressivity.laws import unequal_variances
from loca_theory.expressivity.laws.order_statistics import expected_top_sum
from loca_theory.expressivity.laws.unequal_variances import expected_top_sum_of_unequal


def by_convolution(variances, counts):
    """∫ E min(N, B(x)) dx, every probability P(B = k) from one convolution per variable."""
    nodes, weights = np.polynomial.legendre.leggauss(8)
    low, high = np.sqrt(variances.min()), np.sqrt(variances.max())
    edges = np.append(0.0, np.geomspace(1e-3 * low, 12 * high, 60 + 25 * int(np.log2(high / low))))
    half = np.diff(edges)[:, None] / 2
    z = (edges[:-1, None] + half * (1 + nodes)).ravel()
    law = np.zeros((len(variances) + 1, len(z)))
    law[0] = 1.0
    for j, v in enumerate(variances, 1):
        p = special.erfc(z / np.sqrt(2 * v))
        law[1 : j + 1] = law[1 : j + 1] * (1 - p) + law[:j] * p
        law[0] *= 1 - p
    at_least = np.cumsum(law[:0:-1], axis=0)[::-1]
    sums = np.cumsum(at_least @ (2 * z * (half * weights).ravel()))
    return sums[np.array(counts) - 1]


def profiles(n):
    rng = np.random.default_rng(0)
    return {
        "a decade": 10 ** rng.uniform(0, 1, n),
        "six decades": 10 ** rng.uniform(0, 6, n),
        "one outlier": np.append(np.ones(n - 1), 1e4),
        "two groups": np.repeat([100.0, 1.0], [n // 2, n - n // 2]),
        "one large": np.append(np.full(n - 1, 0.05), 1.0),
        "geometric": np.geomspace(1e-6, 1, n),
        "separable": np.outer(np.linspace(0.2, 3, n // 10), np.geomspace(0.1, 9, 10)).ravel(),
    }


# The errors that the docstring states.
EXACT, SMALL, LARGE = 1e-8, 6e-3, 2e-6


@pytest.mark.parametrize("name", profiles(20))
@pytest.mark.parametrize(
    "n", [20, *(pytest.param(n, marks=pytest.mark.deep) for n in (100, 400, 1000))]
)
def test_exact_convolution_gives_the_same(n, name):
    v = profiles(n)[name]
    counts = sorted({1, 2, n // 20, n // 3, n // 2, n - 1})
    for count, exact in zip(counts, by_convolution(v, counts), strict=True):
        bound = EXACT if n <= 400 else LARGE if count >= n // 20 else SMALL
        assert expected_top_sum_of_unequal(v, count) == pytest.approx(exact, rel=bound), count


@pytest.mark.parametrize(("n", "count"), [(1, 1), (7, 3), (900, 1), (900, 60), (65536, 2048)])
def test_equal_variances_are_independent_copies(n, count):
    got = expected_top_sum_of_unequal(np.full(n, 2.5), count)
    assert got == pytest.approx(2.5 * expected_top_sum(n, count, 1), rel=1e-12)


def test_the_unit_and_the_order_and_the_shape_do_not_matter():
    v = np.random.default_rng(2).uniform(0.1, 3, (12, 9))
    expected = expected_top_sum_of_unequal(v, 10)
    # Roots of the panels' edges are found to 1e-4 only, but the integral hardly depends on them.
    assert expected_top_sum_of_unequal(1e-7 * v, 10) == pytest.approx(1e-7 * expected, rel=1e-11)
    assert expected_top_sum_of_unequal(v.T[::-1], 10) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("spread", [1e-300, 1e-30, 1e30])
def test_variances_of_any_size(spread):
    v = np.append(np.full(50, spread), np.ones(50))
    assert expected_top_sum_of_unequal(v, 50) == pytest.approx(50 * max(spread, 1.0), rel=1e-9)
    assert expected_top_sum_of_unequal(v, 100) == pytest.approx(50 * (1 + spread), rel=1e-14)


def test_variables_of_no_variance_add_nothing():
    v = np.random.default_rng(3).uniform(0.1, 3, 40)
    padded = np.append(v, np.zeros(20))
    assert expected_top_sum_of_unequal(padded, 5) == expected_top_sum_of_unequal(v, 5)
    assert expected_top_sum_of_unequal(padded, 55) == pytest.approx(v.sum(), rel=1e-14)
    assert expected_top_sum_of_unequal(v, 0) == expected_top_sum_of_unequal([], 3) == 0.0


@pytest.mark.parametrize("name", profiles(20))
@pytest.mark.parametrize("count", [1, 60, 700])
def test_many_distinct_variances_are_binned_without_loss(monkeypatch, name, count):
    """Bins of width 1/128: h⁴/4320 = 9e-13, times the fourth powers of y ≤ 12 in the exponent."""
    v = profiles(900)[name]
    exact = expected_top_sum_of_unequal(v, count)
    monkeypatch.setattr(unequal_variances, "_MOST_DISTINCT", 1)
    assert expected_top_sum_of_unequal(v, count) == pytest.approx(exact, rel=2e-8)
