"""What every accounting lets a method keep, against counts worked out by hand."""

import math

import pytest

from loca_theory.expressivity import METHODS, Accounting, Budget
from loca_theory.expressivity.spending import off_budget, spent
from loca_theory.transforms.half_spectrum import HalfSpectrum

SQUARE = (768, 768, 8)  # N0 = 12288
ODD = (5, 5, 2)  # N0 = 20
UNEVEN = (7, 4, 1)  # N0 = 11, 15 locations
UNEVEN_2 = (7, 4, 2)  # N0 = 22

# Random locations, random coefficients, chosen locations, chosen coefficients, DoRA's rank.
HAND_COUNTED = {
    ("paper", SQUARE): (6144, 12288, 4096, 6144, 8),
    ("paper", ODD): (10, 20, 6, 10, 2),
    ("paper", UNEVEN): (5, 11, 3, 5, 1),
    ("paper", UNEVEN_2): (11, 22, 7, 11, 2),
    # Two thirds of N0, in locations.
    ("main-text", SQUARE): (6144, 12288, 8192, 6144, 8),
    ("main-text", ODD): (10, 20, 13, 10, 2),
    ("main-text", UNEVEN): (5, 11, 7, 5, 1),
    ("main-text", UNEVEN_2): (11, 22, 14, 11, 2),
    # Locations free: N0 numbers, two of them a location. DoRA's q magnitudes cost it a rank.
    ("trainable", SQUARE): (6144, 12288, 6144, 12288, 7),
    ("trainable", ODD): (10, 20, 10, 20, 1),
    ("trainable", UNEVEN): (5, 11, 5, 11, 0),
    ("trainable", UNEVEN_2): (11, 22, 11, 22, 1),
    # r(p + q - r) = 12224, 16, 10 and 18.
    ("dof", SQUARE): (6112, 12224, 4074, 6112, 7),
    ("dof", ODD): (8, 16, 5, 8, 1),
    ("dof", UNEVEN): (5, 10, 3, 5, 0),
    ("dof", UNEVEN_2): (9, 18, 6, 9, 1),
}


@pytest.mark.parametrize(("case", "expected"), HAND_COUNTED.items(), ids=str)
def test_counts_are_those_worked_out_by_hand(case, expected):
    accounting, shape = case
    budget = Budget(*shape, Accounting(accounting))
    counted = (
        budget.random_locations,
        budget.random_coefficients,
        budget.chosen_locations,
        budget.chosen_coefficients,
        METHODS["DoRA"].rank(budget),
    )
    assert counted == expected


LARGE = (4096, 1024, 8)  # N0 = 40960
SPENT = [
    *((accounting, "LoRA", SQUARE, 1) for accounting in Accounting),
    ("paper", "LoCA", SQUARE, 1),
    ("paper", "Fourier pairs", ODD, 3 * 6 / 20),
    ("main-text", "Fourier pairs", SQUARE, 2),
    ("trainable", "LoCA", SQUARE, 1),
    ("dof", "GraLoRA", SQUARE, 1),
    ("bits", "LoCA", SQUARE, 5590 * (16 + math.log2(768 * 768)) / (16 * 12288)),
    ("paper", "DoRA", SQUARE, 1 + 768 / 12288),
    ("trainable", "DoRA", (8, 8, 1), 8 / 16),
    ("paper", "LoKr", LARGE, (128 + 2**15) / 40960),
    ("paper", "VeRA", SQUARE, 1),
    ("paper", "VeRA", LARGE, (4096 + 2**33 // 2**22) / 40960),
    ("paper", "printed line", SQUARE, None),
]


@pytest.mark.parametrize(("accounting", "method", "shape", "expected"), SPENT, ids=str)
def test_what_a_method_spends_counts_its_numbers_and_the_indices_that_are_charged(
    accounting, method, shape, expected
):
    assert spent(METHODS[method], Budget(*shape, Accounting(accounting))) == (
        expected if expected is None else pytest.approx(expected, rel=1e-12)
    )


@pytest.mark.parametrize(
    ("fractions", "text"),
    [
        ([1.0, None, math.nan, 0.981, 1.019], ""),
        ([0.5], "50%"),
        ([1.0, 0.979], "98% to 100%"),
        ([1.03, 1.25], "103% to 125%"),
        ([], ""),
    ],
)
def test_what_is_off_the_budget_is_off_by_more_than_two_per_cent(fractions, text):
    assert off_budget(fractions) == text


def most_items(bits, value_bits, indices):
    """The most items of ``value_bits`` and an index of log2(locations) bits each, in integers."""
    count = 0
    while indices ** (count + 1) * 2 ** (value_bits * (count + 1)) <= 2**bits:
        count += 1
    return count


@pytest.mark.parametrize("value_bits", [1, 8, 16, 32], ids=lambda bits: f"{bits} bits")
@pytest.mark.parametrize(
    "shape", [(64, 64, 2), (5, 5, 2), (7, 4, 2), (24, 10, 3), (9, 30, 1)], ids=str
)
def test_bits_charge_values_and_indices(shape, value_bits):
    p, q, r = shape
    budget = Budget(p, q, r, Accounting.BITS, value_bits)
    bits = value_bits * (p + q) * r
    assert budget.bits == bits
    assert budget.random_coefficients == bits // value_bits
    assert budget.random_locations == bits // (2 * value_bits)
    assert budget.chosen_coefficients == most_items(bits, value_bits, p * q)
    locations = HalfSpectrum(p, q).location_count
    assert budget.chosen_locations == most_items(bits, 2 * value_bits, locations)
