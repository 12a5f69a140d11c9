"""Cells of single entries, against rounding in rational arithmetic."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from loca_theory.errors import InvalidArgumentError
from loca_theory.rounding import FORMATS, Recipe, rounding_cells

from .rational import rounded, step

names = st.sampled_from(sorted(FORMATS))
dtypes = st.sampled_from([torch.float32, torch.float64])


@st.composite
def pairs(draw):
    """A format and two of its numbers, often near each other, subnormal or powers of two."""
    name = draw(names)
    form = FORMATS[name]
    smallest = form.smallest_exponent - form.significant_bits
    number = st.builds(
        lambda m, e, sign: float(rounded(sign * Fraction(m) * Fraction(2) ** e, name)),
        st.integers(0, 2**form.significant_bits),
        st.integers(smallest, smallest + 20) | st.integers(-12, 2),
        st.sampled_from([-1, 1]),
    )
    base = draw(number)
    tuned = draw(number | st.just(base))
    assume(math.isfinite(base) and math.isfinite(tuned))
    steps = draw(st.integers(-3, 3))
    tuned = rounded(Fraction(tuned) + steps * step(Fraction(tuned), name), name)
    assume(math.isfinite(tuned))
    return form, base, float(tuned)


def ends(form, base, tuned, recipe, dtype):
    w, image = (torch.tensor([[x]], dtype=torch.float64) for x in (base, tuned))
    cells = rounding_cells(w, image, form, recipe, dtype=dtype)
    return cells.low[0, 0], cells.high[0, 0]


def beside(end, direction):
    return float(end.nextafter(torch.tensor(direction, dtype=end.dtype)))


def merged(base, increment, form, recipe):
    if recipe is Recipe.ROUNDED_INCREMENT:
        increment = rounded(increment, form.name)
        if not isinstance(increment, Fraction):
            return increment
    return rounded(Fraction(base) + Fraction(increment), form.name)


@given(pairs(), dtypes, st.sampled_from([Recipe.EXACT, Recipe.ROUNDED_INCREMENT]), st.floats(0, 1))
def test_all_inside_and_nothing_outside_leads_to_the_stored_number(pair, dtype, recipe, where):
    form, base, tuned = pair
    low, high = ends(form, base, tuned, recipe, dtype)
    outside = beside(low, -math.inf), beside(high, math.inf)
    assume(max(map(abs, outside)) < form.largest)
    if low <= high:
        between = torch.tensor(float(low) + where * (float(high) - float(low)), dtype=dtype)
        for increment in (low, high, between.clamp(low, high)):
            assert merged(base, float(increment), form, recipe) == tuned
    for increment in outside:
        assert merged(base, increment, form, recipe) != tuned


@given(pairs(), st.floats(-4, 4), st.booleans())
def test_two_roundings_are_inside_the_widest_cells(pair, size, is_rounded):
    """A base that was cast after the merge: any W that rounds to w, any Δ."""
    form, base, _ = pair
    unit = step(Fraction(base), form.name)
    original = Fraction(base) + Fraction(size) / 16 * unit
    increment = Fraction(size) * unit
    added = rounded(increment, form.name) if is_rounded else increment
    tuned = rounded(original + added, form.name)
    assume(rounded(original, form.name) == base)
    assume(math.isfinite(tuned))
    low, high = ends(form, base, float(tuned), Recipe.ROUNDED_TWICE, torch.float32)
    assert Fraction(float(low)) <= increment <= Fraction(float(high))


def test_a_base_that_was_cast_may_have_the_larger_step():
    """W just below the middle of 1 and the next number; its sum almost rounds away from 0.75."""
    form = FORMATS["bfloat16"]
    original = 1 + Fraction(255, 256) / 2**8
    increment = Fraction(3, 4) - Fraction(255, 256) / 2**9 - original
    assert rounded(original, form.name) == 1
    assert rounded(original + increment, form.name) == 0.75
    # Most weights have not changed, so that the root mean square of the change adds little.
    base, tuned = torch.zeros(2, 1, 100, dtype=torch.float64)
    base[0, 0], tuned[0, 0] = 1, 0.75
    cells = rounding_cells(base, tuned, form, Recipe.ROUNDED_TWICE, dtype=torch.float64)
    low, high = (Fraction(float(end[0, 0])) for end in (cells.low, cells.high))
    assert low <= increment <= high


def test_the_widest_cells_are_two_and_a_half_steps_at_most():
    """A step of w', a step of w, and a step of Δ, which is smaller than both."""
    form = FORMATS["bfloat16"]
    low, high = ends(form, 1.0, 1.0625, Recipe.ROUNDED_TWICE, torch.float64)
    assert float(high - low) < 2.25 * 2.0**-7
    assert float(high - low) > 2 * 2.0**-7


def test_the_base_may_have_more_bits_than_the_fine_tune():
    form = FORMATS["bfloat16"]
    base = 1 + 2.0**-20
    low, high = ends(form, base, 1.0, Recipe.EXACT, torch.float64)
    assert float(low) == -(2.0**-9) - 2.0**-20
    assert float(high) == 2.0**-8 - 2.0**-20


def test_torch_rounds_float64_to_bfloat16_twice_and_the_format_once():
    value = torch.tensor([1 + 2.0**-8 + 2.0**-40], dtype=torch.float64)
    assert float(value.to(torch.bfloat16)) == 1
    assert float(FORMATS["bfloat16"].round(value)) == 1 + 2.0**-7


def test_cells_of_other_shapes_and_types_are_refused():
    form, w = FORMATS["bfloat16"], torch.zeros(2, 3)
    with pytest.raises(InvalidArgumentError, match=r"one shape, not \(2, 3\) and \(3, 2\)"):
        rounding_cells(w, w.mT, form)
    with pytest.raises(InvalidArgumentError, match=r"torch.float32 or torch.float64, not"):
        rounding_cells(w, w, form, dtype=torch.float16)
