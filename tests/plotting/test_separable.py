"""The map of the best method under separable dependence."""

import numpy as np
import pandas as pd
import pytest

from loca_theory.plotting.separable import draw_separable_map


def rows(error):
    """A table of one structure at K = 64 with errors of (method, ρ, r)."""
    return pd.DataFrame(
        {"structure": "ar1", "protocol": "same-draw", "value": value, "p": 64, "q": 64, "r": r,
         "method": method, "error": error(method, value, r)}
        for method in ("R", "D", "S", "U")
        for value in (0.0, 0.25, 0.5, 0.75)
        for r in (1, 4, 16)
    )  # fmt: skip


def labels(figure):
    """Position of each region's label."""
    return {
        text.get_text(): text.get_position()
        for axis in figure.axes
        for text in axis.texts
        if text.get_text() in ("LoCA", "LoRA", "entries")
    }


def test_each_region_has_its_label_inside():
    errors = {"R": lambda v: np.exp(-4 * v), "D": lambda v: np.exp(-2 * v - 0.6)}
    found = labels(draw_separable_map(rows(lambda m, v, r: errors[m](v) if m in errors else 0.9)))
    # D has the smaller error up to ρ = 0.3.
    assert set(found) == {"LoCA", "LoRA"}
    assert found["LoCA"][0] < 0.3 < found["LoRA"][0]


@pytest.mark.parametrize(("method", "shown"), [("R", "LoRA"), ("D", "LoCA"), ("S", "entries")])
def test_one_method_may_win_everywhere(method, shown):
    found = labels(draw_separable_map(rows(lambda m, v, r: 0.4 if m == method else 0.5)))
    assert list(found) == [shown]


def test_other_methods_and_protocols_are_left_out():
    table = rows(lambda m, v, r: {"R": 0.4, "U": 0.1}.get(m, 0.5))
    other = table.assign(protocol="iid-reference", error=table["error"].rsub(1.0))
    assert list(labels(draw_separable_map(pd.concat([table, other])))) == ["LoRA"]


def test_a_tie_decided_by_chance_is_not_a_region():
    """At ρ = 0 entries and DCT have the same error; a draw may favour either."""
    found = labels(
        draw_separable_map(
            rows(lambda m, v, r: {"R": 0.9, "D": 0.5 - v / 2, "S": 0.4999}.get(m, 0.9))
        )
    )
    assert set(found) == {"LoCA"}
