"""Figures of the toy experiment: what is in each panel is what the table says."""

import matplotlib.colors
import numpy as np
import pytest

from loca_theory.convergence.study import ConvergenceStudy
from loca_theory.plotting.convergence import draw_loss, draw_recovery, draw_spectrum
from loca_theory.sweeps import Runner

SMALL = {"problems": 25, "steps": 400}


@pytest.fixture(scope="module")
def tables():
    study = ConvergenceStudy(("swap", "coefficients-only"), conditions=(1.0,), **SMALL)
    result = study.run(Runner(jobs=1))
    return {name: result.to_frame(name) for name in ("rows", "traces")}


def title(axis):
    return axis.get_title(loc="left") or axis.get_title()


def test_the_spectrum_ends_with_the_truth_in_its_frames(tables):
    traces = tables["traces"]
    figure = draw_spectrum(traces)
    figure.draw_without_rendering()
    shown = [axis for axis in figure.axes if title(axis) == "truth"]
    truth = traces[(traces["kind"] == "truth") & (traces["search"] == "swap")]
    first = truth[truth["case"] == truth["case"].iloc[0]]
    expected = np.zeros((6, 6))
    expected[first["row"], first["column"]] = first["coefficient"]
    np.testing.assert_array_equal(shown[0].images[0].get_array(), expected)
    frames = {(patch.get_y() + 0.5, patch.get_x() + 0.5) for patch in shown[0].patches}
    assert frames == set(zip(first["row"], first["column"], strict=True))


def test_a_problem_that_is_recovered_ends_as_its_truth(tables):
    traces = tables["traces"]
    figure = draw_spectrum(traces[traces["case"] == "recovered"])
    last, truth = (axis.images[0].get_array() for axis in figure.axes[-2:])
    # 200 steps of 400 with the right locations.
    np.testing.assert_allclose(last, truth, atol=1e-3 * np.abs(truth).max())


def test_the_loss_falls_where_the_problem_is_recovered(tables):
    figure = draw_loss(tables["traces"])
    figure.draw_without_rendering()
    recovered = next(axis for axis in figure.axes if ": recovered by swap" in title(axis))
    lines = {line.get_label(): line.get_ydata() for line in recovered.lines}
    assert set(lines) == {"coefficients-only", "swap"}
    assert lines["swap"][-1] < 1e-3 < lines["coefficients-only"][-1]
    colors = [matplotlib.colors.to_hex(line.get_color()) for line in recovered.lines]
    assert len(set(colors)) == len(colors)


def test_the_recovery_shows_every_share_with_its_interval(tables):
    figure = draw_recovery(tables["rows"])
    figure.draw_without_rendering()
    (axis,) = figure.axes
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert names == list(tables["rows"]["search"])
    (points,) = [line for line in axis.lines if line.get_marker() == "o"]
    np.testing.assert_allclose(points.get_xdata(), 100 * tables["rows"]["recovered"])
    ends = axis.collections[0].get_segments()
    np.testing.assert_allclose(
        [segment[:, 0] for segment in ends], 100 * tables["rows"][["low", "high"]]
    )


@pytest.mark.parametrize(
    ("change", "titles"),
    [
        ({"interpretations": ("default", "standard-deviation")}, ["default", "standard-deviation"]),
        ({"conditions": (None, 1.0)}, ["Gaussian weights", "condition 1"]),
        ({"components": (1, 2, 3, 4, 5)}, [f"{n} components" for n in range(1, 6)]),
        (
            {"sizes": (6, 9), "conditions": (1.0, 10.0)},
            ["condition 1", "condition 10"],
        ),
    ],
    ids=["interpretations", "conditions", "components", "sizes"],
)
def test_panels_say_what_tells_them_apart(change, titles):
    small = {**SMALL, "problems": 5, "steps": 60}
    result = ConvergenceStudy(("swap", "central"), **change, **small).run(Runner(jobs=1))
    figure = draw_recovery(result.to_frame())
    figure.draw_without_rendering()
    assert [title(axis) for axis in figure.axes if axis.axison] == titles


def test_a_problem_that_diverged_leaves_gaps():
    from loca_theory.convergence.state import Rates

    study = ConvergenceStudy(("pursuit",), rates=Rates(lr=1e9), problems=10, steps=100)
    traces = study.run(Runner(jobs=1)).to_frame("traces")
    assert traces["loss"].isna().any()
    draw_loss(traces).draw_without_rendering()
    draw_spectrum(traces).draw_without_rendering()
