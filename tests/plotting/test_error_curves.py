"""What the figure of errors shows: panels, lines, bands and names."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.collections import PolyCollection

from loca_theory.expressivity import METHODS
from loca_theory.expressivity.methods import low_rank
from loca_theory.expressivity.methods.names import display_name, key_of
from loca_theory.expressivity.methods.registry import find_methods
from loca_theory.expressivity.simulation import Simulation, squares
from loca_theory.plotting.error_curves import draw_errors
from loca_theory.plotting.lines import LOOKS, spread
from loca_theory.sweeps import Runner

reproducible = settings(deadline=None, derandomize=True, database=None)
NAMES = [
    "sizes",
    "ranks",
    "one shape",
    "one point",
    "one exact point",
    "rectangles",
    "one rectangle",
    "exact alone",
    "limits alone",
    "draws alone",
    "one draw",
    "every method",
    "every engine",
]


def panels(figure):
    return [axis for axis in figure.axes if axis.get_visible()]


def titles(figure):
    return [axis.get_title(loc="left") or axis.get_title() for axis in panels(figure)]


def labels(axis):
    """The methods named at the right end, lowest first, and the locations of the names."""
    texts = sorted(axis.texts, key=lambda text: text.xy[1])
    return [
        ([key_of(name) for name in re.split(r",\s", one.get_text())], one.xy[1]) for one in texts
    ]


def lines(axis, table):
    """The points of each method's line; lines are drawn in the order of the methods."""
    names = [name for name in METHODS if name in set(table["method"])]
    return {
        name: np.column_stack(line.get_data()) for name, line in zip(names, axis.lines, strict=True)
    }


def bands(axis):
    return [patch for patch in axis.collections if isinstance(patch, PolyCollection)]


@pytest.mark.parametrize("name", NAMES)
def test_every_table_can_be_drawn(tables, name):
    table = tables(name)
    figure = draw_errors(table)
    figure.draw_without_rendering()
    named = [method for axis in panels(figure) for methods, _ in labels(axis) for method in methods]
    assert set(named) == set(table["method"])
    assert len(named) == len(panels(figure)) * table["method"].nunique()


@pytest.mark.parametrize(
    ("name", "wanted", "across"),
    [
        ("sizes", ["r = 2", "r = 3"], "matrix size K"),
        ("ranks", ["32 × 32", "64 × 64"], "LoRA rank r"),
        ("one shape", ["48 × 48"], "LoRA rank r"),
        ("one point", ["64 × 64"], "LoRA rank r"),
        ("rectangles", ["16 × 48", "48 × 16", "20 × 20"], "LoRA rank r"),
        ("one rectangle", ["8 × 24"], "LoRA rank r"),
        ("every engine", ["24 × 24", "48 × 48"], "LoRA rank r"),
    ],
)
def test_one_panel_a_rank_or_a_shape(tables, name, wanted, across):
    figure = draw_errors(tables(name))
    assert titles(figure) == wanted
    assert {axis.get_xlabel() for axis in figure.axes[-2:]} - {""} == {across}
    assert "relative error" in figure.axes[0].get_ylabel()


def test_a_line_shows_the_exact_values(tables):
    table = tables("one rectangle")
    (axis,) = panels(draw_errors(table))
    for method, rows in table.groupby("method"):
        line = lines(axis, table)[method]
        assert line.tolist() == rows[["r", "error"]].to_numpy(float).tolist()


def test_a_simulated_line_has_a_band_of_two_standard_errors(tables):
    table = tables("one shape")
    (axis,) = panels(draw_errors(table))
    (band,) = bands(axis)
    rows = table[(table["method"] == "DoRA") & (table["engine"] == "monte-carlo")]
    corners = band.get_paths()[0].vertices
    for _, row in rows.iterrows():
        here = corners[corners[:, 0] == row["r"], 1]
        wanted = row["error"] + np.array([-2, 2]) * row["standard_error"]
        np.testing.assert_allclose([here.min(), here.max()], wanted, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("exact alone", 0),
        ("limits alone", 0),
        ("one draw", 0),
        ("draws alone", 3),
        ("one shape", 1),
        ("every method", 5),
    ],
)
def test_only_simulated_lines_have_bands(tables, name, count):
    assert [len(bands(axis)) for axis in panels(draw_errors(tables(name)))] == [count]


def test_a_line_goes_on_where_exact_values_end(monkeypatch):
    """R is exact up to some size, here 40: beyond, its line is simulated."""
    monkeypatch.setattr(low_rank, "LARGEST_EXACT_SIZE", 40)
    compared = find_methods(("R", "U", "D"))
    simulation = Simulation(squares((16, 24, 32, 48)), (2, 3), compared, draws=6)
    table = simulation.run(Runner(jobs=1)).to_frame()
    assert set(table[table["method"] == "R"].groupby("K")["engine"].first()) == {
        "exact",
        "monte-carlo",
    }
    for axis in panels(draw_errors(table)):
        line = lines(axis, table)["R"]
        assert line[:, 0].tolist() == [16, 24, 32, 48]
        corners = bands(axis)[0].get_paths()[0].vertices
        spread = {x: np.ptp(corners[corners[:, 0] == x, 1]) for x in (16, 24, 32, 48)}
        assert spread[48] > 0
        assert spread[16] == spread[24] == spread[32] == 0


@pytest.mark.parametrize("name", ["one point", "one exact point"])
def test_a_single_point_is_a_mark(tables, name):
    (axis,) = panels(draw_errors(tables(name)))
    assert {line.get_marker() for line in axis.lines} == {"o"}


def test_the_key_says_what_the_names_stand_for(tables):
    table = tables("every method")
    key = " ".join(draw_errors(table).get_supxlabel().split())
    for name, method in METHODS.items():
        assert f"{display_name(name)} = {' '.join(method.title.split())}" in key
    simulated = "DoRA, VeRA, LoHa, HiRA, RandLoRA"
    assert f"Simulated: {simulated} (3 draws; ±2 standard errors at most ±" in key


@pytest.mark.parametrize("name", ["exact alone", "limits alone"])
def test_the_key_speaks_of_draws_only_where_there_are(tables, name):
    assert "draws" not in draw_errors(tables(name)).get_supxlabel()


def test_the_key_says_that_one_draw_has_no_band(tables):
    assert "(1 draws; no band)" in draw_errors(tables("one draw")).get_supxlabel()


def test_every_method_has_a_look_of_its_own():
    assert set(LOOKS) == set(METHODS)
    assert len({(look.color, look.dashes) for look in LOOKS.values()}) == len(LOOKS)


def test_lines_that_meet_share_a_name(tables):
    """F3, D and S are one law."""
    (axis,) = panels(draw_errors(tables("exact alone")))
    assert ["F3", "D", "S"] in [methods for methods, _ in labels(axis)]


@pytest.mark.parametrize("name", NAMES)
def test_names_stand_in_the_order_of_the_lines_and_apart(tables, name):
    table = tables(name)
    figure = draw_errors(table)
    height = figure.get_size_inches()[1]
    for axis in panels(figure):
        ends = {method: line[-1, 1] for method, line in lines(axis, table).items()}
        named = labels(axis)
        assert np.all(np.diff([position for _, position in named]) > 0.16 / height - 1e-9)
        lowest = [min(ends[method] for method in methods) for methods, _ in named]
        highest = [max(ends[method] for method in methods) for methods, _ in named]
        assert all(low > high for low, high in zip(lowest[1:], highest[:-1], strict=True))


# --- spreading names ------------------------------------------------------------------------

wishes = st.lists(st.floats(-0.05, 1.05), min_size=1, max_size=14).map(sorted).map(np.array)
gaps = st.floats(0.001, 0.1)


@reproducible
@given(wishes, gaps)
def test_spread_locations_keep_order_and_distance(wanted, gap):
    positions = spread(wanted, gap)
    assert np.all(np.diff(positions) >= gap - 1e-9)


@reproducible
@given(wishes, gaps)
def test_spread_locations_are_within_reach_of_the_wishes(wanted, gap):
    positions = spread(wanted, gap)
    assert np.max(np.abs(positions - wanted)) <= gap * (len(wanted) - 1) + 1e-9
    assert positions.mean() == pytest.approx(wanted.mean(), abs=1e-9), "blocks keep their centre"


@reproducible
@given(wishes, gaps)
def test_wishes_that_are_apart_are_granted(wanted, gap):
    apart = wanted + gap * np.arange(len(wanted)) * 1.01
    np.testing.assert_allclose(spread(apart, gap), apart, atol=1e-12)


@reproducible
@given(wishes, gaps)
def test_spread_locations_are_the_nearest_in_least_squares(wanted, gap):
    """Subtracting the distances leaves isotonic regression, which an independent package solves."""
    from scipy.optimize import isotonic_regression

    steps = gap * np.arange(len(wanted))
    oracle = isotonic_regression(wanted - steps).x + steps
    np.testing.assert_allclose(spread(wanted, gap), oracle, atol=1e-9)


def test_spreading_leaves_its_argument_alone():
    wanted = np.array([0.5, 0.5])
    spread(wanted, 0.1)
    assert wanted.tolist() == [0.5, 0.5]
