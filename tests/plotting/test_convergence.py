"""Figures of the toy experiment: what is in each panel is what the table says."""

import numpy as np
import pytest

from loca_theory.convergence.state import Rates
from loca_theory.convergence.study import ConvergenceStudy
from loca_theory.plotting.results.convergence import draw_loss, draw_spectrum
from loca_theory.plotting.results.recovery import draw_recovery
from loca_theory.sweeps import Runner


def study(*searches, problems=5, steps=60, **changed):
    return ConvergenceStudy(searches, problems=problems, steps=steps, **changed).run(Runner(jobs=1))


@pytest.fixture(scope="module")
def tables():
    result = study("swap", "coefficients-only", problems=25, steps=400, conditions=(1.0,))
    return {name: result.to_frame(name) for name in ("rows", "traces")}


def drawn(draw, table):
    figure = draw(table)
    figure.draw_without_rendering()
    return figure


def title(axis):
    return axis.get_title(loc="left") or axis.get_title()


def test_the_spectrum_ends_with_the_truth_in_its_frames(tables):
    traces = tables["traces"]
    axes = drawn(draw_spectrum, traces).axes
    shown = next(i for i, axis in enumerate(axes) if title(axis) == "truth")
    truth = traces[(traces["kind"] == "truth") & (traces["search"] == "swap")]
    first = truth[truth["case"] == truth["case"].iloc[0]]
    expected = np.zeros((6, 6))
    expected[first["row"], first["column"]] = first["coefficient"]
    np.testing.assert_array_equal(axes[shown].images[0].get_array(), expected)
    frames = {(patch.get_y() + 0.5, patch.get_x() + 0.5) for patch in axes[shown].patches}
    assert frames == set(zip(first["row"], first["column"], strict=True))
    # The first problem is recovered: 200 steps of 400 with the right locations.
    last = axes[shown - 1].images[0].get_array()
    np.testing.assert_allclose(last, expected, atol=1e-3 * np.abs(expected).max())


def test_the_loss_falls_where_the_problem_is_recovered(tables):
    axes = drawn(draw_loss, tables["traces"]).axes
    recovered = next(axis for axis in axes if "swap finds" in title(axis))
    lines = {line.get_label(): line for line in recovered.lines}
    fixed = "coefficients-only (fixed locations)"
    assert set(lines) == {fixed, "swap"}
    assert lines["swap"].get_ydata()[-1] < 1e-3 < lines[fixed].get_ydata()[-1]
    assert len({line.get_color() for line in recovered.lines}) == 2


def test_the_recovery_shows_every_fraction_with_its_interval(tables):
    rows = tables["rows"]
    (axis,) = drawn(draw_recovery, rows).axes
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert [label.removesuffix(" (fixed locations)") for label in labels] == list(rows["search"])
    (points,) = [line for line in axis.lines if line.get_marker() == "o"]
    np.testing.assert_allclose(points.get_xdata(), 100 * rows["recovered"])
    ends = [segment[:, 0] for segment in axis.collections[0].get_segments()]
    np.testing.assert_allclose(ends, 100 * rows[["low", "high"]])


def test_the_title_says_what_the_papers_search_and_the_best_one_find():
    rows = study("swap", "central", problems=20, steps=400, conditions=(1.0,)).to_frame("rows")
    rates = dict(zip(rows["search"], 100 * rows["recovered"], strict=True))
    figure = drawn(draw_recovery, rows)
    assert figure.get_suptitle() == (
        f"Problems solved: the paper's search {rates['central']:.1f}%, swap {rates['swap']:.1f}%"
    )
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["swap", "central (the paper's)"]


APART = [
    ({"interpretations": ("default", "standard-deviation")}, ["default", "standard-deviation"]),
    ({"conditions": (None, 1.0)}, ["Gaussian weights", "condition 1"]),
    ({"components": (1, 2, 3, 4, 5)}, [f"{n} components" for n in range(1, 6)]),
    ({"sizes": (6, 9), "conditions": (1.0, 10.0)}, ["condition 1", "condition 10"]),
]


@pytest.mark.parametrize(("change", "titles"), APART)
def test_panels_say_what_tells_them_apart(change, titles):
    figure = drawn(draw_recovery, study("swap", "central", **change).to_frame())
    assert [title(axis) for axis in figure.axes if axis.get_visible()] == titles


def test_a_problem_that_diverged_leaves_gaps():
    traces = study("pursuit", rates=Rates(lr=1e9), problems=10, steps=100).to_frame("traces")
    assert traces["loss"].isna().any()
    drawn(draw_loss, traces)
    drawn(draw_spectrum, traces)
