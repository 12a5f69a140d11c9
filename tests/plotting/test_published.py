"""The figure of what is retained of published fine-tunes."""

import pandas as pd
import pytest

from loca_theory.plotting import FIGURES
from loca_theory.plotting.published import STUDIES, draw_published


def table(study, retained):
    """Three matrices at the rank and accounting that are drawn, and others that are not."""
    rows = [
        {"study": study, "pair": "", "name": f"layer {i}", "r": r, "accounting": accounting,
         "method": method, "retained": value if (r, accounting) == (4, "paper") else 0.9}
        for i in range(3)
        for r in (2, 4)
        for accounting in ("paper", "bits")
        for method, value in {**retained, "F2": 0.95}.items()
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_a_row_has_the_means_and_who_retains_most_in_how_many():
    (axis,) = draw_published(
        table("ani", {"R": 0.2, "D": 0.25, "S": 0.3}), table("sre", {"R": 0.5, "D": 0.1, "S": 0.2})
    ).axes
    dots = [(line.get_ydata()[0], line.get_xdata()[0]) for line in axis.lines
            if line.get_marker() == "o" and len(line.get_xdata())]  # fmt: skip
    values = [value for row, value in sorted(dots)]
    assert values == pytest.approx([0.2, 0.25, 0.3, 0.5, 0.1, 0.2])
    labels = [text.get_text() for text in axis.get_yticklabels()]
    assert labels == [STUDIES["ani"], STUDIES["sre"]]
    shares = [text.get_text() for text in axis.texts]
    assert shares == ["0", "0", "3", "of 3", "3", "0", "0", "of 3", "retains most in"]


def test_it_is_drawn_from_the_tables_of_every_study():
    assert list(FIGURES["published"].data.tables) == [f"{name}-retained" for name in STUDIES]
