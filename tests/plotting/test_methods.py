"""The figures of all methods: a row each, at the energy that it retains."""

import pandas as pd
import pytest

from loca_theory.expressivity import METHODS, Budget, exact_error
from loca_theory.plotting.results.methods import draw_expected, draw_measured


def dots(figure, label):
    """The dots with a label in the legend, by the name of their row."""
    (axis,) = figure.axes
    names = [text.get_text() for text in axis.get_yticklabels()]
    return {
        names[int(height)]: x
        for line in axis.lines
        if line.get_label() == label
        for x, height in zip(*line.get_data(), strict=True)
    }


def test_every_method_has_a_row_with_what_it_retains_of_the_budget(tables):
    table = tables("every method")
    figure = draw_expected(table[table["r"] == 4])
    four = Budget(16, 16, 4)
    chosen, remaining = (
        dots(figure, label)
        for label in (
            "looks at the matrix to choose locations, which the budget pays for",
            "does not",
        )
    )
    priced = {name for name, method in METHODS.items() if method.parameters(four)}
    assert {name.partition(" (")[0] for name in (*chosen, *remaining)} == priced
    assert {"LoCA", "entries", "Fourier pairs"} <= set(chosen)
    assert chosen["entries"] == pytest.approx(1 - exact_error("entries", four))
    assert remaining["LoRA"] == pytest.approx(1 - exact_error("LoRA", four))
    for name in ("LoKr", "DoRA"):
        trained = METHODS[name].parameters(four) / four.numbers
        assert f"{name} ({trained:.0%})" in remaining, "it trains fewer, or more"
    low_rank, cosines = remaining["LoRA"], chosen["LoCA"]
    assert figure.get_suptitle().endswith(f": LoRA {low_rank:.1%}, LoCA {cosines:.1%}")


def test_measured_matrices_have_their_median_their_middle_half_and_independent_entries():
    errors = pd.DataFrame(
        {"method": method, "r": r, "error": error + r / 4, "iid_error": independent}
        for r in (1, 2)
        for method, independent, errors in (
            ("LoCA", 0.7, (0.0, 0.1, 0.2, 0.3, 0.4)),
            ("LoRA", 0.5, (0.25, 0.35, 0.45, 0.55, 0.65)),
            ("mine", None, (0.7, 0.7, 0.7, 0.7, 0.7)),
        )
        for error in errors
    )
    figure = draw_measured(errors, 1, {"mine": "mine"}, {"LoCA": "50%"})
    assert dots(figure, "median of 5 matrices") == pytest.approx(
        {"mine": 0.05, "LoRA": 0.3, "LoCA (50%)": 0.55}
    )
    (axis,) = figure.axes
    bars = [list(line.get_xdata()) for line in axis.lines if line.get_linewidth() == 4]
    assert [bar for bar in bars if bar] == [
        pytest.approx(ends) for ends in ([0.05, 0.05], [0.2, 0.4], [0.45, 0.65])
    ]
    white = [
        line.get_xdata()[0]
        for line in axis.lines
        if line.get_markerfacecolor() == "#ffffff" and len(line.get_xdata())
    ]
    assert white[1:] == pytest.approx([0.5, 0.3])
    assert figure.get_suptitle().endswith(": LoRA 30.0%, LoCA 55.0% (medians)")
