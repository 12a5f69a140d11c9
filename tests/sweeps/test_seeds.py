"""Generators depend on the root seed and on the path, and on nothing else."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loca_theory import InvalidArgumentError
from loca_theory.sweeps import generator

reproducible = settings(deadline=None, derandomize=True, database=None)
parts = st.integers(0, 2**32 - 1) | st.text(max_size=8)
paths = st.lists(parts, max_size=4)
roots = st.integers(0, 2**63 - 1)


def first_words(rng):
    return rng.integers(0, 2**63, size=4).tolist()


@reproducible
@given(roots, st.lists(st.integers(0, 2**32 - 1), max_size=4))
def test_integers_are_the_spawn_key(root, path):
    oracle = np.random.default_rng(np.random.SeedSequence(root, spawn_key=tuple(path)))
    assert first_words(generator(root, *path)) == first_words(oracle)


@reproducible
@given(roots, st.text(max_size=20))
def test_strings_enter_by_the_first_four_bytes_of_their_sha256(root, name):
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    assert first_words(generator(root, name)) == first_words(generator(root, number))


@reproducible
@given(roots, paths, paths)
def test_different_paths_give_different_streams(root, one, other):
    assert (first_words(generator(root, *one)) == first_words(generator(root, *other))) == (
        one == other
    )


def test_taking_from_one_generator_leaves_others_alone():
    before = first_words(generator(0, "a", 1))
    generator(0, "a", 0).normal(size=100)
    assert first_words(generator(0, "a", 1)) == before


def test_global_generator_is_neither_read_nor_moved():
    state = np.random.get_state()[1].tolist()  # noqa: NPY002
    generator(3, "x").normal(size=10)
    assert np.random.get_state()[1].tolist() == state  # noqa: NPY002


def test_streams_are_those_of_the_first_release():
    """Stored results and published numbers rest on these."""
    drawn = generator(7, "expressivity.monte-carlo", 64, 64, 3).integers(0, 10**9, 3)
    assert drawn.tolist() == [950809317, 125833285, 682023132]


@pytest.mark.parametrize("root", [-1, 2**128], ids=["negative", "too large"])
def test_a_root_outside_its_range_is_refused(root):
    with pytest.raises(InvalidArgumentError, match=r"the seed must lie between 0 and 2\*\*128 - 1"):
        generator(root, 1)


@pytest.mark.parametrize("path", [(-1,), ("a", -2), (2**32,)], ids=["negative", "later", "large"])
def test_a_number_that_could_be_mistaken_for_two_is_refused(path):
    """numpy reads 2**32 in a spawn key as the two words 0, 1."""
    with pytest.raises(InvalidArgumentError, match=r"must lie between 0 and 2\*\*32 - 1"):
        generator(0, *path)
