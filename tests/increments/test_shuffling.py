"""Orders of a small array, all of which must have the same probability."""

import itertools

import numpy as np
import pytest
from scipy import stats

from loca_theory.increments import shuffling
from loca_theory.increments.shuffling import shuffle


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        pytest.param(np.float32, 32, id="distinct keys"),
        pytest.param(np.float32, 1, id="keys of one bit"),
        pytest.param(np.float32, 0, id="no keys"),
        pytest.param(np.float64, 32, id="double precision"),
    ],
)
def test_every_order_has_the_same_probability(dtype, bits, monkeypatch):
    monkeypatch.setattr(shuffling, "_RANDOM", np.uint64((2**bits - 1) << (64 - bits)))
    rng, runs = np.random.default_rng(0), 4800
    counts = dict.fromkeys(itertools.permutations((-1.0, 0.0, 2.0, 5.0)), 0)
    for _ in range(runs):
        entries = np.array([5, -1, 0, 2], dtype=dtype)
        shuffle(entries, rng)
        counts[tuple(entries.tolist())] += 1
    assert len(counts) == 24
    assert stats.chisquare(list(counts.values())).pvalue > 1e-4


def test_the_order_does_not_depend_on_the_type():
    wide = np.random.default_rng(0).standard_normal(1000).astype(np.float32).astype(np.float64)
    narrow = wide.astype(np.float32)
    shuffle(wide, np.random.default_rng(1))
    shuffle(narrow, np.random.default_rng(1))
    np.testing.assert_array_equal(narrow, wide)
