"""One function draws every result, by its type."""

import re
from dataclasses import replace
from functools import cache
from io import BytesIO
from itertools import combinations
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from loca_theory import InvalidArgumentError
from loca_theory.checkpoints import analyze, demo_pair, extract
from loca_theory.claims import verify
from loca_theory.convergence.study import ConvergenceStudy
from loca_theory.dependence.structures import find_structures
from loca_theory.dependence.study import Study
from loca_theory.expressivity import Accounting, Method, simulate
from loca_theory.expressivity.limits import coefficient_fraction
from loca_theory.expressivity.method_table import methods
from loca_theory.expressivity.theorem1.ordering import Ordering
from loca_theory.plotting import plot
from loca_theory.plotting.canvas import mark
from loca_theory.plotting.looks import looks_of
from loca_theory.plotting.results.phase import draw_phase
from loca_theory.plotting.results.simulation import draw_errors
from loca_theory.sweeps import Runner

STORED = Path(__file__).parents[2] / "figures"
ALONE = Runner(jobs=1)


class Columns(Method):
    name, title = "columns", "the first columns, as they are and in their order"

    def approximate(self, matrix, budget, *_):
        approximation = torch.zeros_like(matrix)
        count = budget.numbers // budget.p
        approximation[:, :count] = matrix[:, :count]
        return approximation


class Rows(Columns):
    name, title = "rows", ""


def study(*structures):
    return Study(16, 16, (2,), structures=find_structures(structures), rho=(0.0, 0.4), draws=2)


RESULTS = {
    "simulation": lambda: simulate(16, ranks=[1, 2], engine="exact"),
    "ordering": lambda: Ordering((4, 5, 8), (Accounting.BITS,)).run(ALONE),
    "one structure": lambda: study("equicorrelated").run(ALONE),
    "two structures": lambda: replace(study("equicorrelated", "spiked"), fraction=(0.0, 0.4)).run(
        ALONE
    ),
    "toy": lambda: ConvergenceStudy(("swap",), problems=5, steps=60).run(ALONE),
    "analysis": lambda: analyze(*demo_pair(), ranks=[2], methods=Columns(), include="query|q_proj"),
    "four kinds": lambda: analyze(*demo_pair(), ranks=[2]),
    "two ranks": lambda: analyze(*demo_pair(), ranks=[1, 2], include="query|q_proj"),
    "one matrix": lambda: analyze(np.random.default_rng(0).normal(size=(24, 16)), ranks=[2]),
    "without errors": lambda: analyze(np.random.default_rng(0).normal(size=(24, 16)), ranks=99),
    "verdicts": lambda: verify(["parseval.unitary"], tier="quick", runner=ALONE),
}
PICTURES = {
    "simulation": ["errors"],
    "ordering": ["margins"],
    "one structure": ["equicorrelated", "crossings"],
    "two structures": ["crossings", "equicorrelated", "spiked", "phase"],
    "toy": ["recovery", "spectrum", "loss"],
    "analysis": ["errors", "entries", "p-values", "spectra", "weights", "phase", "methods"],
    "four kinds": ["errors", "entries", "p-values", "spectra", "weights", "phase", "methods"],
    "two ranks": ["errors", "entries", "p-values", "spectra", "weights", "phase", "methods"],
    "one matrix": ["entries", "p-values", "spectra", "phase", "methods", "errors"],
    "without errors": ["entries", "p-values", "spectra"],
    "verdicts": ["verdicts"],
}
# Those of a single panel.
FIT_AXES = [
    ("two structures", "phase"),
    ("toy", "recovery"),
    ("one matrix", "errors"),
    ("one matrix", "methods"),
    ("verdicts", "verdicts"),
]


@pytest.fixture(scope="module")
def results():
    return cache(lambda name: RESULTS[name]())


@pytest.mark.parametrize(("kind", "pictures"), PICTURES.items(), ids=PICTURES.keys())
def test_every_result_has_its_pictures(results, kind, pictures):
    result = results(kind)
    assert list(result.pictures) == pictures
    for name in pictures:
        figure = plot(result, name)
        figure.draw_without_rendering()
        assert any(axis.has_data() for axis in figure.axes)
    assert methods("LoCA").pictures == (), "a result without pictures lists none"


def names_in(figure):
    """What labels and legends say."""
    texts = [text.get_text() for axis in figure.axes for text in axis.texts]
    legends = (*figure.legends, *filter(None, (axis.get_legend() for axis in figure.axes)))
    return {*texts, *(text.get_text() for legend in legends for text in legend.get_texts())}


@pytest.mark.parametrize(
    ("kind", "picture"),
    [("simulation", "errors"), ("one structure", "equicorrelated"), ("analysis", "errors")],
)
def test_some_methods_can_be_drawn(results, kind, picture):
    all_names = names_in(plot(results(kind), picture))
    chosen = names_in(plot(results(kind), picture, methods=["lora", "LoCA"]))
    assert {"LoRA", "LoCA"} <= chosen < all_names


def test_the_title_says_from_where_on_lora_overtakes(results):
    """Nothing if one of the two is not drawn."""
    rows = results("one structure").to_frame("rows")
    title = plot(results("one structure"), "equicorrelated").get_suptitle()
    assert title.startswith("LoRA overtakes LoCA: on the same matrix ")
    errors = rows.pivot_table("error", ["protocol", "r", "value"], "method").loc["iid-reference"]
    smaller = errors[errors["LoRA"] < errors["LoCA"]]
    last = title.rpartition("alone on dependent entries ")[2]
    first = min(value for _, value in smaller.index) if len(smaller) else None
    assert last == "nowhere" if first is None else last.startswith(f"from ρ = {first:g}")
    alone = plot(results("one structure"), "equicorrelated", methods="LoRA")
    assert alone.get_suptitle() == ""


def test_ranks_a_title_and_a_size_are_those_that_are_asked(results):
    (axis,) = plot(results("simulation"), methods="LoRA", ranks=2).axes
    assert [list(line.get_xdata()) for line in axis.lines] == [[2]]
    figure = plot(results("simulation"), title="Mine", figsize=(4, 3))
    assert (figure.get_suptitle(), tuple(figure.get_size_inches())) == ("Mine", (4, 3))
    for picture in ("recovery", "spectrum"):
        assert plot(results("toy"), picture, title="Mine").get_suptitle() == "Mine"
    assert plot(results("toy")).axes[0].get_xlabel().startswith("problems solved"), "the first"
    ax = Figure().subplots()
    results("simulation").plot(title="Mine", ax=ax)
    assert ax.get_title() == "Mine"


def points(axis, marker):
    return [
        point
        for line in axis.lines
        if line.get_marker() == marker
        for point in zip(*line.get_data(), strict=True)
    ]


def test_matrices_lie_on_the_phase_diagram_by_their_budget_and_their_leading_energy(results):
    result = results("analysis")
    figure = plot(result, "phase")
    (axis,) = figure.axes
    shapes = {row.name: row.shape for row in result.matrices}
    errors = [row for row in result.errors if row.method == "LoRA"]
    budgets = {row.name: sum(shapes[row.name]) / np.prod(shapes[row.name]) for row in errors}
    drawn_points = [point for mark in "os^DvPX" for point in points(axis, mark)]
    assert len(drawn_points) == len(errors)
    for error in errors:
        (x,) = [x for x, y in drawn_points if y == pytest.approx(1 - error.error, rel=1e-12)]
        assert x == pytest.approx(budgets[error.name], rel=1e-12)
    x, y = axis.lines[0].get_data()
    assert y[100] == coefficient_fraction(x[100])
    above = sum(1 - error.error > coefficient_fraction(budgets[error.name]) for error in errors)
    words = f"{above} of {len(errors)} matrices lie where LoRA retains more at r = {errors[0].r}"
    assert figure.get_suptitle() == words


def test_a_crossing_lies_where_both_methods_retain_the_same():
    """Within the errors that are left out, of order 1/K, the boundary passes through it."""
    table = pd.read_parquet(STORED / "phase.parquet")
    (axis,) = draw_phase(table, (300, 300)).axes
    crossings = points(axis, "o")
    assert [x for x, _ in crossings] == [r / 300 for r in (8, 16, 24, 32)]
    one_spike = next(line for line in axis.lines if line.get_linestyle() == "--")
    for x, y in crossings:
        assert np.interp(x, *one_spike.get_data()) == pytest.approx(y, abs=1 / 300)
        assert coefficient_fraction(x) < y


def test_the_margins_in_bits_say_where_they_first_fail_beyond_the_table(results):
    assert "In bits it first fails at K = 544" in results("ordering").caption


@pytest.mark.parametrize(("kind", "picture"), FIT_AXES)
def test_one_panel_fits_into_the_users_axes(results, kind, picture):
    """In the user's own figure and style, which stays as it is."""
    with mpl.rc_context({"axes.titlelocation": "right"}):
        figure = Figure()
        _, axis = figure.subplots(1, 2)
        assert plot(results(kind), picture, ax=axis) is figure
        assert mpl.rcParams["axes.titlelocation"] == "right"
    figure.draw_without_rendering()
    assert axis.has_data()
    assert axis.get_title("left") == "", "the style of the package is not used"
    assert (len(figure.axes), figure.legends) == (2, [])
    assert figure.get_supxlabel() == figure.get_suptitle() == ""


REFUSED = [
    (
        lambda of: plot(of("simulation"), colors={"LoRA": "rde"}),
        "colors has 'rde' for LoRA, which matplotlib does not know; write a name such as",
    ),
    (lambda of: plot(of("simulation"), colors=["red"]), 'colors must be a mapping such as {"LoRA"'),
    (lambda of: plot(of("simulation"), labels="red"), "labels must be a mapping such as"),
    (lambda of: plot(of("simulation"), labels={"LoRA": 3}), "for LoRA must be a text, not 3"),
    (lambda of: plot(of("simulation"), labels={"LoRA": r"$\oops$"}), "for LoRA has a formula"),
    (lambda of: plot(of("simulation"), title="$x_$"), "title has a formula that matplotlib cannot"),
    (lambda of: plot(of("simulation"), title=3), "title must be a text, not 3"),
    (lambda of: plot(of("simulation"), methods=[]), "methods is empty; name those to draw, or"),
    (lambda of: plot(of("simulation"), ranks=[]), "ranks is empty; name those to draw, or leave"),
    (lambda of: plot(of("simulation"), ranks="2"), "ranks must be positive whole numbers, not '2'"),
    (lambda of: plot(of("toy"), colors={"swap": "red"}), "recovery colours no method; leave"),
    (lambda of: plot(of("toy"), ranks=2), "the picture recovery draws no ranks; leave ranks out"),
    (
        lambda of: plot(of("two ranks"), ranks=[2, 1]),
        "the picture errors draws a single rank, here r = 1; write ranks=2 or ranks=1",
    ),
    (lambda of: plot(of("simulation"), labels={"DoRA": "D"}), "unknown name in labels 'DoRA'"),
    (lambda of: plot(of("simulation"), log="z"), 'log must be "x", "y" or "xy", not \'z\''),
    (lambda of: plot(of("toy"), "spectrum", log="x"), "which shows images"),
    (lambda of: plot(of("simulation"), ax=Figure().subplots(2)), "ax must be axes of matplotlib"),
    (
        lambda of: plot(of("simulation"), methods="loka"),
        "unknown method 'loka'; did you mean LoRA? Otherwise choose from LoRA,",
    ),
    (lambda of: plot(of("simulation"), ranks=3), "unknown rank '3'; choose from 1, 2"),
    (lambda of: plot(of("simulation"), "errrs"), "unknown picture 'errrs'; did you mean errors?"),
    (lambda of: plot(of("toy"), "spectrum", ax=Figure().subplots()), "several panels; leave ax"),
    (
        lambda of: plot(extract(*demo_pair(), "lora", rank=1, include="0.down")),
        "Extraction cannot be drawn; result must be one of SimulationResult, ",
    ),
    (lambda _: plot({}), "dict cannot be drawn"),
    (lambda of: plot(without_rows(of("one matrix"))), "nothing to draw: Analysis"),
]


@pytest.mark.parametrize(
    "figsize",
    [(-3, 2), (0, 2), 3, "3x2", "32", (3, 2, 1), (float("nan"), 2), (1e6, 2), (0.9, 2), (3, 51)],
)
def test_a_size_that_no_figure_has_is_refused(results, figsize):
    message = rf"figsize is in inches.* such as \(3.25, 2.4\), not {re.escape(repr(figsize))}$"
    with pytest.raises(InvalidArgumentError, match=message):
        plot(results("simulation"), figsize=figsize)


def test_panels_that_would_be_too_small_are_refused_with_a_size_that_works(results):
    with pytest.raises(InvalidArgumentError, match="the picture errors would be") as caught:
        plot(results("four kinds"), figsize=(3.25, 2.4))
    size = re.search(r"write figsize=\(([\d.]+), ([\d.]+)\)", str(caught.value)).groups()
    figure = plot(results("four kinds"), figsize=tuple(map(float, size)))
    figure.set_dpi(72)
    figure.draw_without_rendering()
    assert len(figure.axes) == 4
    assert min(axis.bbox.height for axis in figure.axes) >= 0.49 * 72
    assert [axis.get_xlabel() for axis in figure.axes] == ["", "", "layer", "layer"]
    assert {axis.get_ylabel() for axis in figure.axes} == {""}
    assert figure.get_supylabel() == "relative error"


def test_titles_beside_each_other_begin_at_one_height_and_labels_stay_short(results):
    figure = plot(results("analysis"), "spectra", figsize=(3.25, 2.8))
    figure.draw_without_rendering()
    tops = {round(axis.bbox.y1 - axis.bbox.y0) for axis in figure.axes}
    titles = [axis.get_title("left") for axis in figure.axes]
    assert len({title.count("\n") for title in titles}) == len(tops) == 1
    phase = plot(results("analysis"), "phase", figsize=(3.25, 2.4))
    assert phase.axes[0].get_ylabel().count("\n") < 2


@pytest.mark.parametrize("picture", ["entries", "p-values", "spectra", "weights"])
@pytest.mark.parametrize(
    "option",
    [{"colors": {"LoRA": "red"}}, {"labels": {"LoRA": "low rank"}}, {"methods": "LoRA"}],
    ids=["colors", "labels", "methods"],
)
def test_what_a_picture_without_methods_would_ignore_is_refused(results, picture, option):
    (argument,) = option
    message = f"the picture {picture} draws no methods; leave {argument} out"
    with pytest.raises(InvalidArgumentError, match=message):
        plot(results("analysis"), picture, **option)


def test_labels_and_colours_of_an_analysis_are_those_that_are_asked(results):
    options = {"labels": {"LoRA": "low rank"}, "colors": {"LoRA": "#123456"}}
    figure = plot(results("analysis"), "methods", **options)
    assert "same budget: low rank" in " ".join(figure.get_suptitle().split())
    assert "#123456" in {line.get_color() for line in figure.axes[0].lines}
    phase = plot(results("analysis"), "phase", **options)
    (text,) = [text for text in phase.axes[0].texts if text.get_text() == "low rank retains more"]
    assert text.get_color() == "#123456"
    alone = plot(results("analysis"), "errors", methods="LoRA")
    assert names_in(alone) == {"LoRA", "LoRA, shuffled"}, "no line without data has a label"


def without_rows(analysis):
    return replace(analysis, matrices=(), errors=(), spectra=(), figure_data=())


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_cannot_be_drawn_is_refused(results, call, message):
    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        call(results)


def test_methods_of_ones_own_have_lines_and_entries_in_the_key(results):
    result = simulate(
        12, ranks=[1, 2], methods=["LoCA", "LoRA", Columns(), Rows()], draws=3, runner=ALONE
    )
    figure = plot(result)
    named = {text.get_text() for text in figure.axes[0].texts}
    assert {"columns", "rows"} <= set(", ".join(named).split(", "))
    assert f"; columns: {Columns.title}; rows." in figure.caption

    looks = looks_of(["LoRA", *(f"own-{i}" for i in range(18))])
    assert len({(look.color, str(look.dashes)) for look in looks.values()}) == 19
    by_layer = plot(results("analysis"), "errors")
    assert "columns" in [text.get_text() for text in by_layer.legends[0].get_texts()]
    assert f"columns: {Columns.title}." in by_layer.caption


# Pictures of a single panel in one column of a paper, and of several panels in two.
IN_A_COLUMN = [
    ("simulation", "errors", 3.25),
    ("toy", "recovery", 3.25),
    ("one matrix", "entries", 3.25),
    ("one matrix", "phase", 3.25),
    ("one matrix", "methods", 3.25),
    ("ordering", "margins", 3.25),
    ("two structures", "crossings", 3.25),
    ("one structure", "equicorrelated", 6.75),
    ("analysis", "spectra", 6.75),
    ("analysis", "p-values", 6.75),
]


def is_shown(text):
    """Whether a text is seen: ticks beyond the ends of an axis are not."""
    ticks = {
        label: ends
        for line, ends in (
            ends
            for axis in text.figure.axes
            for ends in ((axis.xaxis, axis.get_xlim()), (axis.yaxis, axis.get_ylim()))
        )
        for tick in (*line.get_major_ticks(), *line.get_minor_ticks())
        for label in (tick.label1, tick.label2)
        if not min(ends) <= tick.get_loc() <= max(ends)
    }
    return bool(text.get_text().strip()) and text.get_visible() and text not in ticks


@pytest.mark.parametrize(("kind", "picture", "width"), IN_A_COLUMN)
def test_a_picture_in_a_paper_has_its_size_and_its_texts_are_inside_and_apart(
    results, kind, picture, width
):
    """At 300 dpi, as an image."""
    title = "A title that is a good deal longer than one column of a paper is wide"
    figure = plot(results(kind), picture, figsize=(width, 2.8), title=title)
    content = BytesIO()
    figure.savefig(content, dpi=300)
    with Image.open(content) as image:
        assert image.size == (300 * width, 300 * 2.8)
        edge = np.asarray(image.convert("L"))
        border = np.concatenate([edge[0], edge[-1], edge[:, 0], edge[:, -1]])
        assert border.min() == 255, "nothing is cut off"
    figure.set_dpi(300)
    figure.draw_without_rendering()
    axes = [axis for axis in figure.axes if axis.get_visible()]
    assert sum(axis.bbox.width for axis in axes) > 0.4 * figure.bbox.width, "panels keep their room"
    texts = {text: text.get_window_extent() for text in figure.findobj(Text) if is_shown(text)}
    assert any(" ".join(text.get_text().split()) == title for text in texts)
    for (first, box), (second, other) in combinations(texts.items(), 2):
        across = min(box.x1, other.x1) - max(box.x0, other.x0)
        along = min(box.y1, other.y1) - max(box.y0, other.y0)
        # A hundredth of an inch is as good as nothing.
        assert min(across, along) <= 3, (first.get_text(), second.get_text())


def test_colours_labels_and_scales_are_those_that_are_asked(results):
    options = {"colors": {"R": "#123456"}, "labels": {"LoRA": "low rank"}, "log": "y"}
    (axis,) = plot(results("simulation"), **options).axes
    lines = {line.get_label(): line for line in axis.lines}
    assert lines["low rank"].get_color() == "#123456"
    assert (axis.get_yscale(), axis.get_xscale()) == ("log", "linear")
    (label,) = [text for text in axis.texts if text.get_text() == "low rank"]
    assert label.get_color() == "#123456"
    point = axis.transData.transform((2, lines["low rank"].get_ydata()[-1]))
    end = axis.transAxes.inverted().transform(point)[1]
    assert label.xy[1] == pytest.approx(end, abs=0.05), "beside its line"
    axes = Figure().subplots()
    plot(results("simulation"), ax=axes, **options)
    assert "low rank" in [text.get_text() for text in axes.get_legend().get_texts()]
    assert not axes.texts, "beside the user's axes there may be no room"


def is_named(line):
    return line.get_label() and not str(line.get_label()).startswith("_")


def test_no_two_lines_of_a_picture_look_the_same(results):
    for kind, pictures in PICTURES.items():
        for name in pictures:
            for axis in plot(results(kind), name).axes:
                lines = [line for line in axis.lines if is_named(line)]
                looks = {
                    (
                        line.get_color(),
                        str(line._unscaled_dash_pattern),
                        line.get_marker(),
                        line.get_linewidth(),
                        line.get_markerfacecolor(),
                    )
                    for line in lines
                }
                assert len(looks) == len(lines), (kind, name)
    assert len({mark(k) for k in range(49)}) == 49


def test_lines_that_only_meet_at_the_end_have_labels_of_their_own():
    table = pd.DataFrame(
        {
            "K": 8,
            "p": 8,
            "q": 8,
            "r": r,
            "method": method,
            "engine": "exact",
            "error": error,
            "standard_error": 0.0,
            "spent": 1.0,
            "draws": 0,
        }
        for method, errors in (("LoRA", (0.9, 0.5)), ("LoCA", (0.6, 0.5)), ("entries", (0.6, 0.5)))
        for r, error in zip((1, 2), errors, strict=True)
    )
    (axis,) = draw_errors(table).axes
    assert {text.get_text() for text in axis.texts} == {"LoRA", "LoCA, entries"}
