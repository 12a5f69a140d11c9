"""Histogram and tests of normality: exact pieces exactly, size, power, coverage by simulation."""

import numpy as np
import pytest
import torch
from scipy import stats

from loca_theory.increments import calibrated_test
from loca_theory.increments.histogram import cell_probabilities, grid_edges, histogram, normal_cells


def rng(seed=0):
    return np.random.default_rng(seed)


def counted(x):
    return histogram(torch.from_numpy(np.asarray(x)))


# --- histogram ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_counts_and_moments_are_those_of_numpy(dtype):
    x = torch.from_numpy(rng().standard_normal((70, 50)) * 3 + 1).to(dtype)
    counts, y = histogram(x), x.double().numpy().ravel()
    assert counts.size == 3500
    assert counts.mean == pytest.approx(y.mean(), rel=1e-6)
    assert counts.standard_deviation == pytest.approx(y.std(), rel=1e-6)
    assert counts.excess_kurtosis == pytest.approx(stats.kurtosis(y), abs=1e-5)
    z = (y - y.mean()) / y.std()
    expected = np.histogram(z, [-np.inf, *grid_edges(), np.inf])[0]
    # Entries within rounding of an edge may fall to either side.
    assert np.abs(counts.counts - expected).sum() <= 4


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [(torch.float32, 100), (torch.float32, -120), (torch.float64, 1000), (torch.float64, -1000)],
)
def test_a_power_of_two_changes_only_what_has_units(dtype, scale):
    x = torch.randn(999, dtype=dtype, generator=torch.Generator().manual_seed(0))
    # Rounded to 1/256, so that the smallest scale loses no digit.
    x = (x * 256).round() / 256
    plain, scaled = (
        histogram(x),
        histogram(x.ldexp(torch.tensor(scale / 2)).ldexp(torch.tensor(scale / 2))),
    )
    np.testing.assert_array_equal(scaled.counts, plain.counts)
    assert scaled.excess_kurtosis == pytest.approx(plain.excess_kurtosis, rel=1e-6)
    assert scaled.zeros == plain.zeros
    assert scaled.mean == pytest.approx(np.ldexp(plain.mean, scale), rel=1e-6)
    expected = np.ldexp(plain.standard_deviation, scale)
    assert scaled.standard_deviation == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_entries_that_differ_in_the_last_digit_have_their_own_standard_deviation(dtype):
    """Half of them 0.1 and half the next number: rounding their mean would be as large."""
    step = torch.nextafter(torch.tensor(0.1, dtype=dtype), torch.tensor(1.0, dtype=dtype))
    x = torch.full((1000,), 0.1, dtype=dtype)
    x[::2] = step
    counts = histogram(x)
    assert counts.standard_deviation == pytest.approx((float(step) - float(x[1])) / 2, rel=1e-6)
    assert counts.excess_kurtosis == pytest.approx(-2, abs=1e-6)
    assert sorted(counts.counts[counts.counts > 0]) == [500, 500]


def test_zeros_are_counted_before_small_entries_vanish_beside_large_ones():
    x = torch.tensor([1e30, -1e30, 1e-20, 0.0])
    assert histogram(x).zeros == 1


def test_cells_have_normal_probabilities():
    np.testing.assert_allclose(np.cumsum(normal_cells())[:-1], stats.norm.cdf(grid_edges()))
    far = cell_probabilities(np.array([7.0, 7.5]))
    assert far[1] == pytest.approx(stats.norm.sf(7.0) - stats.norm.sf(7.5), rel=1e-10)


# --- the calibrated test --------------------------------------------------------------------


def total_variation(law):
    """Distance of a law with mean 0 and variance 1 from N(0, 1), by the cell."""
    x = np.linspace(-15, 15, 300_001)
    return np.abs(np.diff(law(x)) - np.diff(stats.norm.cdf(x))).sum() / 2


def test_the_estimate_has_no_bias_and_the_interval_covers():
    truth, runs = total_variation(lambda x: stats.laplace.cdf(x * np.sqrt(2))), 60
    tests = [
        calibrated_test(counted(rng(seed).laplace(size=60_000)), rng(seed), replicates=99)
        for seed in range(runs)
    ]
    estimates = np.array([test.estimate for test in tests])
    error = estimates.std(ddof=1) / np.sqrt(runs)
    # Bins lose about 2% of the distance at most.
    assert abs(estimates.mean() - truth) < 4 * error + 0.02 * truth
    covered = sum(test.low <= truth <= test.high for test in tests)
    # At least 0.9 of the nominal 0.95, at a false positive of 1e-4.
    assert covered >= stats.binom.ppf(1e-4, runs, 0.90)
    assert all(test.p_value <= 0.05 for test in tests)


def test_normal_entries_are_not_rejected_and_their_distance_is_small():
    runs, n = 60, 20_000
    tests = [
        calibrated_test(
            counted(rng(seed).standard_normal(n)), rng(seed), replicates=99, epsilon=0.0
        )
        for seed in range(runs)
    ]
    rejected = sum(test.p_value <= 0.05 for test in tests)
    assert stats.binom.cdf(rejected - 1, runs, 0.05) < 1 - 1e-4
    # The plug-in value is far above, from counting alone.
    plug_in = np.mean([test.statistic for test in tests])
    assert np.mean([test.estimate for test in tests]) < 0.4 * plug_in
    assert np.mean([test.low == 0 for test in tests]) > 0.8
