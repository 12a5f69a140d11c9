"""The map of the best method under separable dependence."""

import numpy as np
import pandas as pd
import pytest

from loca_theory.plotting.results.separable import draw_separable_map


def labels(error, further=()):
    """The label of each region and its position, for errors of (method, ρ, r) at K = 64."""
    table = pd.DataFrame(
        {
            "structure": "ar1",
            "protocol": "same-draw",
            "value": value,
            "p": 64,
            "q": 64,
            "r": r,
            "method": method,
            "error": error(method, value, r),
        }
        for method in ("LoRA", "LoCA", "entries", "printed line")
        for value in (0.0, 0.25, 0.5, 0.75)
        for r in (1, 4, 16)
    )
    copies = [table.assign(**changes) for changes in further]
    figure = draw_separable_map(pd.concat([table, *copies]))
    texts = (text for axis in figure.axes for text in axis.texts)
    positions = {text.get_text(): text.get_position() for text in texts}
    return {name: positions[name] for name in ("LoCA", "LoRA", "entries") if name in positions}


def test_each_region_has_its_label_inside():
    errors = {"LoRA": lambda v: np.exp(-4 * v), "LoCA": lambda v: np.exp(-2 * v - 0.6)}
    shown_labels = labels(lambda m, v, r: errors[m](v) if m in errors else 0.9)
    # D has the smaller error up to ρ = 0.3.
    assert set(shown_labels) == {"LoCA", "LoRA"}
    assert shown_labels["LoCA"][0] < 0.3 < shown_labels["LoRA"][0]


@pytest.mark.parametrize(
    ("method", "shown"), [("LoRA", "LoRA"), ("LoCA", "LoCA"), ("entries", "entries")]
)
def test_one_method_may_win_everywhere(method, shown):
    """Other methods and protocols are left out."""
    other = {"protocol": "iid-reference", "error": 0.01}
    shown_labels = labels(lambda m, v, r: {method: 0.4, "printed line": 0.1}.get(m, 0.5), [other])
    assert list(shown_labels) == [shown]


def test_a_tie_decided_by_chance_is_not_a_region():
    """At ρ = 0 entries and DCT have the same error; a draw may favour either."""
    shown_labels = labels(
        lambda m, v, r: {"LoRA": 0.9, "LoCA": 0.5 - v / 2, "entries": 0.4999}.get(m, 0.9)
    )
    assert set(shown_labels) == {"LoCA"}
