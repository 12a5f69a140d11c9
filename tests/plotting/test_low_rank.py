"""The figure of the trainings under which an increment is of low rank."""

import numpy as np
import pandas as pd
import pytest

from loca_theory.errors import InvalidArgumentError
from loca_theory.plotting import FIGURES
from loca_theory.plotting.low_rank import draw_low_rank
from loca_theory.plotting.runs import as_lines

RANKS = (1, 2, 4, 8, 16)
OPTIMIZERS = ("SGD", "Adam", "AdamW")
VALUES = {
    "optimizer": [(None, None)],
    "kind": [("query", None), ("MLP in", None)],
    "rate": [("0.1", 0.1), ("1", 1.0)],
    "steps": [("50", 50), ("200", 200)],
    "batch": [("8", 8), ("32", 32)],
    "examples": [("50", 50), ("all", 750)],
}


def retained(optimizer, factor, value, r):
    base = {"SGD": 0.8, "Adam": 0.5, "AdamW": 0.4}[optimizer]
    return base + 0.01 * r - (0.1 if (factor, value) == ("steps", 200) else 0)


def line(task, factor, label, value, optimizer, r, k=64):
    energy = retained(optimizer, factor, value, r)
    return {
        "task": task, "factor": factor, "label": label or optimizer, "value": value,
        "optimizer": optimizer, "K": k, "r": r, "retained": energy, "low": energy - 0.02,
        "high": energy + 0.02, "independent": 0.05 + 0.02 * r, "threshold": 0.1 + 0.03 * r,
        "accuracy": 0.5 + energy / 10,
    }  # fmt: skip


def lines(task="digits", factors=tuple(VALUES), k=64):
    return [
        line(task, factor, label, value, optimizer, r, k)
        for factor in factors
        for label, value in VALUES[factor]
        for optimizer in OPTIMIZERS
        for r in RANKS
    ]


def drawn(found):
    """The figure, laid out; what cannot be drawn warns, and warnings are errors."""
    figure = draw_low_rank(found)
    figure.draw_without_rendering()
    return figure


def shown(figure):
    return [axis for axis in figure.axes if axis.get_visible()]


def points(axis, optimizer):
    """Points of an optimiser's line."""
    bars = next(one for one in axis.containers if one.get_label() == optimizer)
    return np.transpose(bars[0].get_data()).astype(float)


def test_a_row_of_panels_per_task():
    figure = drawn(lines() + lines("docstrings"))
    assert len(shown(figure)) == 2 * 7
    titles = [axis.get_title("left") for axis in figure.axes]
    assert [title for title in titles if title] == ["digits", "docstrings"]


def test_a_task_without_factors_has_three_panels():
    figure = drawn(lines() + lines("text", ("optimizer", "kind"), k=128))
    assert len(shown(figure)) == 7 + 3


def test_the_first_panel_is_by_rank_and_the_others_at_an_eighth():
    figure = drawn(lines())
    by_rank, _, _, by_rate, by_steps, *_ = shown(figure)
    np.testing.assert_allclose(
        points(by_rank, "SGD"), [(r / 64, retained("SGD", "optimizer", None, r)) for r in RANKS]
    )
    np.testing.assert_allclose(
        points(by_rate, "Adam"), [(value, retained("Adam", "rate", value, 8)) for value in (0.1, 1)]
    )
    np.testing.assert_allclose(points(by_steps, "AdamW"), [(50, 0.48), (200, 0.38)])


def test_the_references_are_those_of_the_rank():
    figure = drawn(lines())
    for axis in shown(figure)[1:]:
        references = {one.get_label(): one.get_ydata() for one in axis.lines}
        assert set(references["independent normal entries"]) == {0.05 + 0.02 * 8}
    first = {one.get_label(): one for one in shown(figure)[0].lines}
    equal = next(first[name] for name in first if name.startswith("low rank ="))
    np.testing.assert_allclose(equal.get_ydata(), [0.1 + 0.03 * r for r in RANKS])


def test_the_training_nearest_to_independent_entries_is_named():
    texts = [text.get_text() for axis in drawn(lines()).axes for text in axis.texts]
    assert "nearest: AdamW,\n200 steps" in texts


def test_energies_near_one_have_room():
    found = [{**one, "retained": 1 - 1e-9 * one["r"], "low": 0.9, "high": 1.1} for one in lines()]
    assert drawn(found).axes[0].get_ylim()[1] < 1


@pytest.mark.parametrize(
    "found",
    [
        pytest.param([{**one, "low": -np.inf, "high": np.inf} for one in lines()], id="one seed"),
        pytest.param(
            [one for one in lines() if one["optimizer"] == "SGD"], id="a single optimiser"
        ),
        pytest.param(
            [*lines(), {**lines()[-1], "label": "8000", "value": None, "retained": None}],
            id="a training that diverged",
        ),
        pytest.param(lines(factors=("optimizer",)), id="defaults alone"),
    ],
)
def test_incomplete_tables_are_drawn(found):
    assert shown(drawn(found))


def test_nothing_to_draw():
    with pytest.raises(InvalidArgumentError, match="every run diverged"):
        draw_low_rank([{**one, "retained": None} for one in lines()])


def test_it_is_drawn_from_the_stored_table():
    figure = FIGURES["low_rank"]
    assert figure.data.tables == {"low_rank": "python -m experiments.low_rank"}
    table = pd.DataFrame(lines())
    assert len(figure.draw(table).axes) == len(draw_low_rank(as_lines(table)).axes)
