"""The figure of the designed comparisons shows the numbers that it is given."""

import pytest

from loca_theory.errors import InvalidArgumentError
from loca_theory.plotting.comparisons import draw_comparisons


def line(title, verdict="supported", measure="accuracy", family="First?", **more):
    return {
        "title": title, "family_title": family, "measure": measure, "margin": 0.5,
        "verdict": verdict, "difference": 0.4, "low": 0.1, "high": 0.7,
        "task_differences": [0.2, 0.6], **more,
    }  # fmt: skip


LINES = [
    line("A − B"),
    line("A − C", "equivalent within a margin", difference=-0.1, low=-0.3, high=0.1),
    line("loss of A − B", "inconclusive", measure="loss", low=-1.0, margin=5.0),
    line("A − D", "not supported", family="Second?", low=-2.0, high=-0.3),
    line("A − E", None, family="Second?", difference=None, low=None, high=None),
]


def test_rows_are_grouped_by_question_and_unit():
    figure = draw_comparisons(LINES)
    figure.draw_without_rendering()
    titles = [axis.get_title("left") for axis in figure.axes]
    assert titles == ["First?", "First? By the loss", "Second?"]
    labels = [[tick.get_text() for tick in axis.get_yticklabels()] for axis in figure.axes]
    assert labels == [["A − B", "A − C"], ["loss of A − B"], ["A − D"]]


def test_bounds_margin_and_tasks_are_at_their_values():
    axis = draw_comparisons(LINES[:2]).axes[0]
    first = [one for one in axis.lines if 1 <= next(iter(one.get_ydata())) < 1.5]
    tasks, bounds, mean = (list(one.get_xdata()) for one in first[:3])
    assert (tasks, bounds, mean) == ([0.2, 0.6], [0.1, 0.7], [0.4])
    bar = axis.patches[0]
    assert (bar.get_x(), bar.get_width()) == (-0.5, 1.0)


def test_the_bounds_do_not_hide_a_few_tasks():
    tasks, bounds, _ = draw_comparisons(LINES[1:2]).axes[0].lines[:3]
    assert set(tasks.get_ydata()).isdisjoint(bounds.get_ydata())


def test_points_of_accuracy_have_one_scale():
    axes = draw_comparisons(LINES).axes
    assert axes[0].get_xlim() == axes[2].get_xlim() != axes[1].get_xlim()


def test_nothing_decided():
    with pytest.raises(InvalidArgumentError, match="no comparison has a verdict yet"):
        draw_comparisons(LINES[-1:])
