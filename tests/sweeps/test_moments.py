"""Moments gathered block by block are those of the whole."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from loca_theory.sweeps import Moments

reproducible = settings(deadline=None, derandomize=True, database=None)
# Errors lie in [0, 1]; a wider range with both signs is harder.
numbers = st.floats(-1e3, 1e3, allow_subnormal=False)


@st.composite
def blocks(draw):
    """Several blocks of replicates of one shape."""
    shape = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    counts = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    return [draw(arrays.arrays(np.float64, (n, *shape), elements=numbers)) for n in counts]


def exact(moments):
    return (
        moments.count,
        [float(x).hex() for x in np.ravel(moments.mean)],
        [float(x).hex() for x in np.ravel(moments.squares)],
    )


@reproducible
@given(blocks())
def test_merged_blocks_equal_the_whole(parts):
    merged = Moments.merge([Moments.of(part) for part in parts])
    whole = Moments.of(np.concatenate(parts))
    assert merged.count == whole.count
    # Rounding: a few units of the last location of values up to 1e3, and of their squares.
    np.testing.assert_allclose(merged.mean, whole.mean, rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(merged.squares, whole.squares, rtol=1e-9, atol=1e-7)


@reproducible
@given(blocks(), st.randoms())
def test_the_order_of_blocks_matters_to_rounding_only(parts, random):
    moments = [Moments.of(part) for part in parts]
    merged = Moments.merge(moments)
    random.shuffle(moments)
    shuffled = Moments.merge(moments)
    np.testing.assert_allclose(shuffled.mean, merged.mean, rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(shuffled.squares, merged.squares, rtol=1e-9, atol=1e-7)


@reproducible
@given(blocks())
def test_json_round_trip_is_exact(parts):
    moments = Moments.of(parts[0])
    read = Moments.from_json(json.loads(json.dumps(moments.to_json())))
    assert exact(read) == exact(moments)
    assert read.mean.shape == moments.mean.shape
    assert read.mean.dtype == read.squares.dtype == np.float64


@reproducible
@given(arrays.arrays(np.float64, st.tuples(st.integers(2, 30), st.just(2)), elements=numbers))
def test_standard_error_is_that_of_the_mean(values):
    oracle = np.std(values, axis=0, ddof=1) / np.sqrt(len(values))
    # Two summations of n ≤ 30 values up to 1e3 differ by at most 2 n u 1e3 = 7e-12 in the mean, and
    # the standard deviation by no more; relative to itself it loses a few n u.
    np.testing.assert_allclose(Moments.of(values).standard_error, oracle, rtol=1e-12, atol=1e-11)


def test_a_known_case():
    moments = Moments.of([[1.0], [2.0], [4.0], [5.0]])
    assert moments.mean.tolist() == [3.0]
    assert moments.squares.tolist() == [10.0]
    assert moments.standard_error == pytest.approx(np.sqrt(10 / 3 / 4))


def test_the_standard_error_estimates_the_spread_of_means():
    """E[standard_error²] = σ²/n: over 4000 experiments of n = 5 its mean is within 5 of its own
    standard errors (false positive 6e-7)."""
    values = np.random.default_rng(11).normal(scale=3.0, size=(4000, 5))
    squared = np.array([Moments.of(row).standard_error ** 2 for row in values])
    spread = squared.std(ddof=1) / np.sqrt(len(squared))
    assert abs(squared.mean() - 9.0 / 5) < 5 * spread


@pytest.mark.parametrize("shape", [(1,), (1, 3)], ids=["scalar", "vector"])
def test_a_single_replicate_has_no_standard_error(shape):
    moments = Moments.of(np.full(shape, 0.25))
    assert moments.count == 1
    assert moments.standard_error is None
    assert np.all(moments.mean == 0.25)
    assert np.all(moments.squares == 0.0)


def test_single_replicates_merge_to_a_standard_error():
    values = [0.25, 0.5, 0.75]
    merged = Moments.merge([Moments.of([value]) for value in values])
    assert merged.standard_error == pytest.approx(Moments.of(values).standard_error)


def test_equal_replicates_have_standard_error_zero():
    # Sums of quarters are exact.
    assert Moments.of([0.25] * 10).standard_error == 0.0


def test_a_small_spread_on_a_large_mean_survives_merging():
    """Sums of squares minus squared sums would lose it: 1e-8 of the mean."""
    values = 1e8 + np.random.default_rng(0).normal(size=1000)
    merged = Moments.merge([Moments.of(part) for part in values.reshape(40, 25)])
    oracle = np.std(values - 1e8, ddof=1) / np.sqrt(len(values))
    assert merged.standard_error == pytest.approx(oracle, rel=1e-6)
