"""Crossings of gaps whose roots are known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loca_theory.dependence.crossings import find_crossings

GRID = tuple(np.linspace(0.0, 1.0, 11))


def search(*gaps, error=1e-3, grid=GRID):
    """The crossings of functions of the value, and how often any was evaluated."""
    calls = []

    def at(points):
        calls.extend(points)
        return [(gaps[i](value), error) for i, value in points]

    grids = [(grid, [(gap(value), error) for value in grid]) for gap in gaps]
    return find_crossings(grids, at), calls


@settings(deadline=None, derandomize=True)
@given(st.floats(0.01, 0.99), st.floats(0.05, 20.0), st.floats(1e-6, 0.01))
def test_the_root_is_found_to_a_part_of_its_error(root, slope, error):
    (crossing,), _ = search(lambda x: slope * np.expm1(root - x), error=error)
    local = error / slope
    assert crossing.crossing == pytest.approx(root, abs=0.2 * local + 1e-8)
    assert crossing.low < crossing.crossing < crossing.high
    half = 1.959964 * local
    # The slope is that of the chord over the bracket, at most 1/10 wide.
    assert crossing.high - crossing.crossing == pytest.approx(half, rel=0.15)


def test_searches_go_forward_together_and_keep_apart():
    roots = (0.05, 0.37, 0.371, 0.93)
    crossings, calls = search(*(lambda x, r=r: r - x**1.5 for r in roots))
    expected = [root ** (2 / 3) for root in roots]
    assert [crossing.crossing for crossing in crossings] == pytest.approx(expected, abs=1e-3)
    assert len(set(calls)) <= 8 * len(roots)


NONE = {
    "positive throughout": lambda x: 1 + x,
    "negative throughout": lambda x: -1 - x,
    "negative at the start": lambda x: x - 0.5,
    "zero": lambda x: 0.0,
}


@pytest.mark.parametrize("gap", NONE.values(), ids=NONE)
def test_no_crossing_is_a_result(gap):
    (crossing,), calls = search(gap)
    assert (crossing.crossing, crossing.low, crossing.high, calls) == (None, None, None, [])


def test_the_first_of_several_is_reported_and_one_on_the_grid_needs_nothing_more():
    (crossing,), _ = search(lambda x: np.cos(9 * x))
    assert crossing.crossing == pytest.approx(np.pi / 18, abs=1e-3)
    (crossing,), _ = search(lambda x: 0.5 - x, grid=(0.0, 0.5, 1.0))
    assert crossing.crossing == 0.5
