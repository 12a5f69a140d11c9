"""Formats against rational arithmetic, and against torch's own conversions."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from loca_theory.errors import InvalidArgumentError
from loca_theory.rounding import FORMATS, find_format, format_of

from .rational import FORMATS as RATIONAL
from .rational import rounded, step


@pytest.mark.parametrize("name", FORMATS)
def test_bits_and_ends_are_those_of_the_standard(name):
    form = FORMATS[name]
    bits, smallest, largest = RATIONAL[name]
    assert (form.significant_bits, form.smallest_exponent) == (bits, smallest)
    assert Fraction(form.largest) == largest


@given(
    st.sampled_from(sorted(FORMATS)),
    st.floats(-70000, 70000) | st.floats(-1e-4, 1e-4) | st.floats(-1e-38, 1e-38),
)
def test_rounding_and_steps_are_those_of_rational_arithmetic(name, value):
    form, tensor = FORMATS[name], torch.tensor([value], dtype=torch.float64)
    image = float(form.round(tensor))
    assert image == rounded(value, name)
    if math.isfinite(image):
        number = torch.tensor([image, abs(image)], dtype=torch.float64)
        assert Fraction(float(form.steps(number)[0])) == step(Fraction(image), name)
        for midpoints, direction in ((form.midpoint_above, 1), (form.midpoint_below, -1)):
            for exact, middle in zip(number, midpoints(number), strict=True):
                exact, middle = Fraction(float(exact)), Fraction(float(middle))
                assert direction * (middle - exact) > 0
                # The tie is to one of its ends, and anything beyond rounds to the other end.
                beyond = middle + (middle - exact) / 1024
                assert rounded(middle - (middle - exact) / 1024, name) == exact
                assert rounded(beyond, name) in (2 * middle - exact, direction * math.inf)
        assert float(form.is_odd(number)[0]) == Fraction(image) / step(Fraction(image), name) % 2
    below = form.floor(tensor)
    assert 0 <= Fraction(value) - Fraction(float(below)) < step(Fraction(value), name)
    assert form.holds(below.clamp(-form.largest, form.largest))


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_every_number_of_sixteen_bits_is_held(name):
    form = FORMATS[name]
    bits = torch.arange(2**16, dtype=torch.int32).to(torch.int16)
    numbers = bits.view(form.dtype)
    numbers = numbers[numbers.isfinite()].double()
    assert form.holds(numbers)
    assert torch.equal(form.round(numbers), numbers)
    assert not form.holds(numbers + form.steps(numbers) / 2)


@pytest.mark.parametrize("name", FORMATS)
def test_values_decide_the_format(name):
    weights = torch.randn(40, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    numbers = FORMATS[name].round(weights)
    assert format_of(numbers) is FORMATS[name]
    assert format_of(numbers.float()) is FORMATS[name]
    assert format_of(weights) is None


def test_a_format_of_eight_bits_is_read_from_its_type():
    numbers = torch.tensor([1.125, -0.5]).to(torch.float8_e4m3fn)
    assert format_of(numbers) is FORMATS["float8_e4m3"]


def test_what_is_not_a_tensor_of_numbers_is_refused():
    with pytest.raises(InvalidArgumentError, match="did you mean bfloat16"):
        find_format("bfloat")
    with pytest.raises(InvalidArgumentError, match="base must be of a floating type"):
        format_of(torch.zeros(2, 2, dtype=torch.int8), "base")
    with pytest.raises(InvalidArgumentError, match="base must be finite: 1 of 2 entries"):
        format_of(torch.tensor([0.0, math.nan]), "base")
