"""F₁ against published values and against the Painlevé equation."""

import numpy as np
import pytest

from loca_theory.errors import InvalidArgumentError
from loca_theory.increments.tracy_widom import edge_scaling, tracy_widom_cdf, tracy_widom_quantile


@pytest.mark.parametrize(
    ("probability", "quantile"),
    [
        # Published to four decimals (Johnstone, 2001, and later tables).
        pytest.param(0.90, 0.4501, id="0.90"),
        pytest.param(0.95, 0.9793, id="0.95"),
        pytest.param(0.99, 2.0234, id="0.99"),
    ],
)
def test_published_quantiles(probability, quantile):
    assert tracy_widom_quantile(probability) == pytest.approx(quantile, abs=6e-5)


def test_published_moments():
    # Gauss and Legendre on [−10, 8]: the function is smooth, and few nodes give all digits.
    nodes, weights = np.polynomial.legendre.leggauss(80)
    high, half = 8.0, 9.0
    s = half * nodes - 1
    cdf = np.array([tracy_widom_cdf(x) for x in s])
    mean = high - half * weights @ cdf
    second = high**2 - 2 * half * weights @ (s * cdf)
    # Bornemann (2010): mean −1.2065335745820, variance 1.6077810345810.
    assert mean == pytest.approx(-1.2065335745820, abs=1e-7)
    assert second - mean**2 == pytest.approx(1.6077810345810, abs=1e-6)


def test_is_a_distribution_function():
    values = [tracy_widom_cdf(s) for s in (-30, -12.5, -8, -4, 0, 4, 17)]
    assert values == sorted(values)
    assert values[0] == 0.0
    assert values[-1] == 1.0


def test_edge_scaling_is_johnstones_for_large_matrices():
    p, q = 4000, 1000
    centre, width = edge_scaling(p, q)
    # p − 1/2 and q − 1/2 in place of p − 1 and q change √p + √q by (1/√q − 1/√p)/4 to first order:
    # the centre by 8.4e-5 of itself, and the width, by the powers it has of both, by less.
    assert centre == pytest.approx((np.sqrt(p - 1) + np.sqrt(q)) ** 2, rel=1e-4)
    johnstone = (np.sqrt(p - 1) + np.sqrt(q)) * (1 / np.sqrt(p - 1) + 1 / np.sqrt(q)) ** (1 / 3)
    assert width == pytest.approx(johnstone, rel=2e-4)


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.1, float("nan")])
def test_a_quantile_needs_a_probability(probability):
    with pytest.raises(InvalidArgumentError, match="between 0 and 1"):
        tracy_widom_quantile(probability)
