"""The bookkeeping of conjugate pairs, against brute force and the appendix's condition U."""

import numpy as np
import pytest

from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms.half_spectrum import HalfSpectrum

SIDES = range(1, 13)
each_with_every_width = pytest.mark.parametrize("p", SIDES, ids=lambda p: f"{p} rows")


def partner(i, j, p, q):
    return (p - i) % p, (q - j) % q


def own_partners(p, q):
    return [(i, j) for i in range(p) for j in range(q) if partner(i, j, p, q) == (i, j)]


def as_pairs(indices):
    return [(int(i), int(j)) for i, j in indices]


@each_with_every_width
def test_self_conjugate_entries_are_those_brute_force_finds(p):
    for q in SIDES:
        half = HalfSpectrum(p, q)
        found = own_partners(p, q)
        assert as_pairs(half.self_conjugate) == found
        assert half.self_conjugate_count == len(found)


@each_with_every_width
def test_representatives_are_one_of_each_pair(p):
    for q in SIDES:
        half = HalfSpectrum(p, q)
        chosen = as_pairs(half.representatives)
        partners = [partner(i, j, p, q) for i, j in chosen]
        everything = [(i, j) for i in range(p) for j in range(q)]
        assert sorted(chosen + partners + own_partners(p, q)) == everything
        assert chosen == sorted(chosen)


@each_with_every_width
def test_counts(p):
    for q in SIDES:
        half = HalfSpectrum(p, q)
        s = len(own_partners(p, q))
        assert half.pair_count == len(half.representatives) == (p * q - s) / 2
        assert half.location_count == s + half.pair_count


@each_with_every_width
def test_every_kept_entry_lies_in_the_columns_of_a_real_fft(p):
    for q in SIDES:
        half = HalfSpectrum(p, q)
        columns = [j for _, j in as_pairs(half.self_conjugate) + as_pairs(half.representatives)]
        assert max(columns) <= q // 2


def condition_u(i, j, K):
    """The appendix's condition U as printed, with its n read as K."""
    return (
        (i == 0 and j > K - j)
        or (j == 0 and i > K - i)
        or (j > 0 and j > K - j)
        or (j == K - j and i > K - i)
    )


@pytest.mark.parametrize("K", range(1, 13))
def test_representatives_are_the_complement_of_condition_u(K):
    expected = [
        (i, j)
        for i in range(K)
        for j in range(K)
        if partner(i, j, K, K) != (i, j) and not condition_u(i, j, K)
    ]
    assert as_pairs(HalfSpectrum(K, K).representatives) == expected


@pytest.mark.parametrize(
    ("p", "q", "count"), [(5, 7, 1), (4, 7, 2), (5, 8, 2), (4, 8, 4), (1, 1, 1), (2, 2, 4)]
)
def test_self_conjugate_count_by_hand(p, q, count):
    assert HalfSpectrum(p, q).self_conjugate_count == count


def test_locations_are_integer_arrays_also_where_there_are_none():
    half = HalfSpectrum(2, 2)
    assert half.representatives.shape == (0, 2)
    assert half.self_conjugate.shape == (4, 2)
    assert half.representatives.dtype == half.self_conjugate.dtype == np.int64


@pytest.mark.parametrize(("p", "q"), [(0, 3), (3, 0), (-1, 2)])
def test_a_shape_without_entries_is_refused(p, q):
    with pytest.raises(InvalidArgumentError, match=f"one row and one column, not {p}x{q}"):
        HalfSpectrum(p, q)
