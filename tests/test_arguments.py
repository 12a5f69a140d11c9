"""Arguments that take one value or several."""

import numpy as np
import pytest

from loca_theory import InvalidArgumentError
from loca_theory._arguments import as_tuple, integers, numbers


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (8, (8,)),
        (range(2, 4), (2, 3)),
        (np.int64(8), (8,)),
        (np.arange(2, 4), (2, 3)),
        ((), ()),
    ],
    ids=str,
)
def test_whole_numbers_are_plain(given, expected):
    found = integers("ranks", given)
    assert found == expected
    assert all(type(number) is int for number in found)


def test_numbers_are_plain():
    found = numbers("rho", [np.float32(0.5), 1])
    assert found == (0.5, 1.0)
    assert all(type(number) is float for number in found)
    assert numbers("rho", 0.25) == (0.25,)


def test_a_text_is_one_value():
    assert as_tuple("swap") == ("swap",)
    assert as_tuple(["swap", "central"]) == ("swap", "central")
    assert as_tuple(None) == (None,)


@pytest.mark.parametrize("given", [8.5, [8, 8.5], "8", None, [[8]]], ids=str)
def test_what_is_no_whole_number_is_refused(given):
    with pytest.raises(InvalidArgumentError, match=r"^ranks must be whole numbers, not "):
        integers("ranks", given)


@pytest.mark.parametrize("given", ["high", [None], [[0.1]]], ids=str)
def test_what_is_no_number_is_refused(given):
    with pytest.raises(InvalidArgumentError, match=r"^rho must be numbers, not "):
        numbers("rho", given)
