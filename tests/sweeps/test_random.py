"""Generators depend on root and path alone; moments of blocks are those of the whole."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from loca_theory import InvalidArgumentError
from loca_theory.sweeps import generator
from loca_theory.sweeps.random import Moments

reproducible = settings(deadline=None, derandomize=True, database=None)
roots = st.integers(0, 2**63 - 1)


def first_words(rng):
    return rng.integers(0, 2**63, size=4).tolist()


@reproducible
@given(roots, st.lists(st.integers(0, 2**32 - 1), max_size=4))
def test_integers_are_the_spawn_key(root, path):
    oracle = np.random.default_rng(np.random.SeedSequence(root, spawn_key=tuple(path)))
    assert first_words(generator(root, *path)) == first_words(oracle)


def test_streams_are_those_of_the_first_release():
    """Stored results and published numbers rest on these."""
    drawn = generator(7, "expressivity.monte-carlo", 64, 64, 3).integers(0, 10**9, 3)
    assert drawn.tolist() == [950809317, 125833285, 682023132]


SEED, PATH = r"the seed must lie between 0 and 2\*\*128 - 1", r"must lie between 0 and 2\*\*32 - 1"
# numpy reads 2**32 in a spawn key as the two words 0, 1.
REFUSED = [(-1, (1,), SEED), (2**128, (1,), SEED)]
REFUSED += [(0, (-1,), PATH), (0, ("a", -2), PATH), (0, (2**32,), PATH)]


@pytest.mark.parametrize(("root", "path", "message"), REFUSED)
def test_a_number_outside_its_range_is_refused(root, path, message):
    with pytest.raises(InvalidArgumentError, match=message):
        generator(root, *path)


# --- moments ---

# Errors lie in [0, 1]; a wider range with both signs is harder.
numbers = st.floats(-1e3, 1e3, allow_subnormal=False)


@st.composite
def blocks(draw):
    """Several blocks of replicates of as many numbers."""
    size = draw(st.integers(1, 3))
    counts = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    return [draw(arrays.arrays(np.float64, (n, size), elements=numbers)) for n in counts]


@reproducible
@given(blocks())
def test_merged_blocks_equal_the_whole(parts):
    merged = Moments.merge([Moments.of(part) for part in parts])
    joined = np.concatenate(parts)
    assert merged.count == len(joined)
    # Rounding: a few units of the last location of values up to 1e3, and of their squares.
    np.testing.assert_allclose(merged.mean, joined.mean(0), rtol=1e-12, atol=1e-11)
    squares = len(joined) * joined.var(0)
    np.testing.assert_allclose(merged.squares, squares, rtol=1e-9, atol=1e-7)


def test_a_small_spread_on_a_large_mean_survives_merging():
    """Sums of squares minus squared sums would lose it: 1e-8 of the mean."""
    values = 1e8 + np.random.default_rng(0).normal(size=1000)
    assert Moments.of(values[:1, None]).standard_error is None
    merged = Moments.merge([Moments.of(part) for part in values.reshape(40, 25, 1)])
    oracle = np.std(values - 1e8, ddof=1) / np.sqrt(len(values))
    assert merged.standard_error == pytest.approx(oracle, rel=1e-6)
