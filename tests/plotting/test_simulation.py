"""The figure of errors: panels, lines, bands and names."""

import re
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from loca_theory.expressivity import METHODS
from loca_theory.expressivity.methods import low_rank
from loca_theory.expressivity.methods.names import known_name
from loca_theory.expressivity.methods.registry import find_methods
from loca_theory.expressivity.simulation import Simulation, squares
from loca_theory.plotting.lines import label_heights
from loca_theory.plotting.looks import LOOKS
from loca_theory.plotting.results.simulation import draw_errors
from loca_theory.sweeps import Runner

reproducible = settings(deadline=None, derandomize=True, database=None)
# What each table shows: titles of the panels, and the number of lines with bands in each.
SHOWN = {
    "sizes": (["r = 2", "r = 3"], 0),
    "three ranks": (["r = 2", "r = 3", "r = 4"], 0),
    "one shape": (["48 × 48"], 1),
    "one point": (["64 × 64"], 0),
    "rectangles": (["16 × 48", "48 × 16", "20 × 20"], 0),
    "limits alone": (["64 × 64"], 0),
    "one draw": (["16 × 16"], 0),
    "every method": (["16 × 16"], 8),
}


def panels(figure):
    return [axis for axis in figure.axes if axis.get_visible()]


NAMED = {
    "random locations": ["printed line"],
    "upper bound of Fourier pairs": ["upper bound"],
    "lower bound of Fourier pairs": ["lower bound"],
    "bounds of Fourier pairs": ["upper bound", "lower bound"],
}


def labels(axis):
    """The methods named at the right end, lowest first, and the heights of the names."""
    texts = sorted(axis.texts, key=lambda text: text.xy[1])
    found = []
    for text in texts:
        shown = re.split(", ", " ".join(text.get_text().split()))
        names = chain.from_iterable(NAMED.get(name, [name]) for name in shown)
        found.append((list(map(known_name, names)), text.xy[1]))
    return found


def lines(axis, table):
    """The points of each method's line; lines are drawn in the order of the methods."""
    names = [name for name in METHODS if name in set(table["method"])]
    return {
        name: np.column_stack(line.get_data()) for name, line in zip(names, axis.lines, strict=True)
    }


def bands(axis):
    return [patch for patch in axis.collections if isinstance(patch, PolyCollection)]


@pytest.mark.parametrize("name", SHOWN)
def test_one_panel_a_rank_or_a_shape(tables, name):
    table, (titles, count) = tables(name), SHOWN[name]
    figure = draw_errors(table)
    figure.draw_without_rendering()
    assert [axis.get_title("left") for axis in panels(figure)] == titles
    across = "matrix size K" if name in ("sizes", "three ranks") else "LoRA rank r"
    assert {axis.get_xlabel() for axis in figure.axes[-2:]} - {""} == {across}
    for axis in panels(figure)[-2:]:
        assert axis.get_xlabel() == across, "also beside the last row, where it is not full"
        assert axis.xaxis.get_tick_params()["labelbottom"]
    assert "relative error" in figure.axes[0].get_ylabel()
    for axis in panels(figure):
        assert len(bands(axis)) == count
        named = labels(axis)
        assert sorted(method for methods, _ in named for method in methods) == sorted(
            set(table["method"])
        )
        # Names stand in the order of the lines, and apart.
        height = figure.get_size_inches()[1]
        assert np.all(np.diff([position for _, position in named]) > 0.16 / height - 1e-9)
        ends = {method: line[-1, 1] for method, line in lines(axis, table).items()}
        groups = [sorted(ends[method] for method in methods) for methods, _ in named]
        assert all(low[-1] < high[0] for low, high in pairwise(groups))
        # Lines that meet share a name: F3, D and S are one law.
        assert name != "limits alone" or ["Fourier", "LoCA", "entries"] in [
            methods for methods, _ in named
        ]
        marker = "o" if name == "one point" else "None"
        assert {line.get_marker() for line in axis.lines} == {marker}


def test_a_line_has_the_exact_values_or_a_band_of_two_standard_errors(tables):
    table = tables("one shape")
    (axis,) = panels(draw_errors(table))
    exact, simulated = (table[table["method"] == name] for name in ("LoCA", "DoRA"))
    assert lines(axis, table)["LoCA"].tolist() == exact[["r", "error"]].to_numpy(float).tolist()
    (band,) = bands(axis)
    corners = band.get_paths()[0].vertices
    for _, row in simulated.iterrows():
        corner = corners[corners[:, 0] == row["r"], 1]
        expected = row["error"] + np.array([-2, 2]) * row["standard_error"]
        np.testing.assert_allclose([corner.min(), corner.max()], expected, rtol=1e-12)


def test_a_line_goes_on_where_exact_values_end(monkeypatch):
    """R is exact up to some size, here 40: beyond, its line is simulated."""
    monkeypatch.setattr(low_rank, "LARGEST_EXACT_SIZE", 40)
    compared = find_methods(("LoRA", "printed line", "LoCA"))
    simulation = Simulation(squares((16, 24, 32, 48)), (2, 3), compared, draws=6)
    table = simulation.run(Runner(jobs=1)).to_frame()
    for axis in panels(draw_errors(table)):
        assert lines(axis, table)["LoRA"][:, 0].tolist() == [16, 24, 32, 48]
        corners = bands(axis)[0].get_paths()[0].vertices
        heights = {x: np.ptp(corners[corners[:, 0] == x, 1]) for x in (16, 24, 32, 48)}
        assert heights[48] > 0
        assert heights[16] == heights[24] == heights[32] == 0


def test_the_key_says_what_the_names_stand_for(tables):
    key = draw_errors(tables("every method")).caption
    for name, method in METHODS.items():
        shown, title = name, method.title
        assert (title if title.startswith(shown) else f"{shown}: {title}") in key
    assert not re.search(r"(?<![\w-])LoRA: LoRA", key), "its title begins with its name"
    simulated = "DoRA, VeRA, LoHa, HiRA, GLoRA, Uni-LoRA, VB-LoRA, RandLoRA"
    assert f"Simulated: {simulated} (3 draws; ±2 standard errors at most ±" in key
    assert "Methods that spend another budget: DoRA 112% to 125%, " in key
    assert "another budget" not in draw_errors(tables("sizes")).caption
    assert "(1 draws; no band)" in draw_errors(tables("one draw")).caption
    assert "draws" not in draw_errors(tables("limits alone")).caption


def test_every_method_has_a_look_of_its_own():
    assert set(LOOKS) == set(METHODS)
    assert len({(look.color, look.dashes) for look in LOOKS.values()}) == len(LOOKS)


@reproducible
@given(
    st.lists(st.floats(-0.05, 1.05), min_size=1, max_size=14).map(sorted).map(np.array),
    st.floats(0.001, 0.1),
)
def test_labels_keep_their_order_and_distance_and_move_as_little_as_needed(ends, gap):
    axis = Figure().subplots()
    axis.set_ylim(2, 0)
    positions = label_heights(axis, 2 - 2 * ends, gap)
    assert np.all(np.diff(positions) >= gap - 1e-9)
    assert positions.mean() == pytest.approx(ends.mean(), abs=1e-9)
    apart = ends + gap * np.arange(len(ends)) * 1.01
    np.testing.assert_allclose(label_heights(axis, 2 - 2 * apart, gap), apart, atol=1e-12)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (
            ("LoRA", "LoCA", "upper bound", "rate-distortion"),
            "LoCA has the smallest",
        ),
        (("LoRA", "printed line"), ""),
        (("LoCA", "entries"), ""),
    ],
)
def test_the_title_names_the_method_with_the_smallest_error(names, words):
    """Not a bound, and none where several are equal or there is one."""
    run = Simulation(squares([48]), (2, 4), find_methods(names), engines=("exact",)).run()
    title = draw_errors(run.to_frame()).get_suptitle()
    assert title.startswith(f"On independent entries, {words}") if words else title == ""
