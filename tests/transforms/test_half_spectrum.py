"""The bookkeeping of conjugate pairs, against brute force."""

import numpy as np
import pytest

from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms.half_spectrum import HalfSpectrum

SIDES = range(1, 13)


def partner(i, j, p, q):
    return (p - i) % p, (q - j) % q


def as_pairs(indices):
    return [(int(i), int(j)) for i, j in indices]


@pytest.mark.parametrize("p", SIDES, ids=lambda p: f"{p} rows")
def test_every_entry_is_its_own_partner_or_in_one_pair(p):
    for q in SIDES:
        half = HalfSpectrum(p, q)
        locations = [(i, j) for i in range(p) for j in range(q)]
        self_conjugate = [
            location for location in locations if partner(*location, p, q) == location
        ]
        assert as_pairs(half.self_conjugate) == self_conjugate
        assert half.self_conjugate_count == len(self_conjugate)
        chosen = as_pairs(half.representatives)
        partners = [partner(i, j, p, q) for i, j in chosen]
        assert sorted(chosen + partners + self_conjugate) == locations
        assert chosen == sorted(chosen)
        assert half.pair_count == len(chosen)
        assert half.location_count == len(self_conjugate) + len(chosen)
        # In the columns of a real FFT.
        assert max(j for _, j in self_conjugate + chosen) <= q // 2


def test_locations_are_integer_arrays_also_where_there_are_none():
    half = HalfSpectrum(2, 2)
    assert half.representatives.shape == (0, 2)
    assert half.self_conjugate.shape == (4, 2)
    assert half.representatives.dtype == half.self_conjugate.dtype == np.int64


@pytest.mark.parametrize(("p", "q"), [(0, 3), (3, 0), (-1, 2)])
def test_a_shape_without_entries_is_refused(p, q):
    with pytest.raises(InvalidArgumentError, match=f"one row and one column, not {p}x{q}"):
        HalfSpectrum(p, q)
