"""The size of a whole adapter, as users write it."""

import pytest

from loca_theory.checkpoints.sizing.adapter_size import TotalSize
from loca_theory.errors import InvalidArgumentError

SIZES = {
    "200000": (200_000, False),
    "200k": (200_000, False),
    "1.5M": (1_500_000, False),
    "2g": (2 * 10**9, False),
    "300B": (300, True),
    "500kB": (500_000, True),
    "500KB": (500_000, True),
    "4 MB": (4_000_000, True),
    "1MiB": (2**20, True),
    "0.5KiB": (512, True),
    200_000: (200_000, False),
    TotalSize(7, in_bytes=True): (7, True),
}


@pytest.mark.parametrize(("given", "expected"), SIZES.items(), ids=map(str, SIZES))
def test_numbers_and_bytes_are_read(given, expected):
    found = TotalSize.parse(given)
    assert (found.amount, found.in_bytes) == expected


@pytest.mark.parametrize(
    "given", ["", "many", "4MX", "1Mi", "1iB", "-5", "1e6", "0.3", "nan", "12 apples"]
)
def test_another_text_is_refused_with_examples(given):
    with pytest.raises(InvalidArgumentError, match=r"is not a size .* 500kB, 4MB or 1MiB"):
        TotalSize.parse(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [(0, "at least 1, not 0"), ("0kB", "at least 1, not 0"), (1.5, "a whole number, not 1.5")],
)
def test_a_size_is_a_positive_whole_number(given, message):
    with pytest.raises(InvalidArgumentError, match=f"allocate must be {message}"):
        TotalSize.parse(given)


def test_a_location_costs_bytes_but_is_not_trained():
    numbers, size = TotalSize.parse(100), TotalSize.parse("100B")
    assert (numbers.costs("lora", (3, 4), 2), numbers.costs("loca", (3, 4), 2)) == ((7, 0), (1, 0))
    # With its location, and the shape of each matrix.
    assert (size.costs("lora", (3, 4), 2), size.costs("loca", (3, 4), 2)) == ((14, 0), (18, 16))
    assert (str(numbers), str(size)) == ("100 trainable numbers", "100 bytes")
