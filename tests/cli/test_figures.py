"""``loca-theory figures``: redrawn from stored tables, which are computed where they are stale."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from loca_theory import plotting
from loca_theory.convergence.study import ConvergenceStudy
from loca_theory.expressivity.methods.engine import Engine
from loca_theory.expressivity.simulation import Simulation, squares
from loca_theory.expressivity.theorem1.ordering import Ordering
from loca_theory.plotting import catalogue, drawing
from loca_theory.plotting.paper_figure import Computed
from loca_theory.rounding.study import RoundingStudy

COMPUTED = [name for name, figure in plotting.FIGURES.items() if isinstance(figure.data, Computed)]
STORED = [label for label in plotting.FIGURES if label not in COMPUTED]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """The paper's figures at sizes that take no time."""
    for label in COMPUTED:
        figure = plotting.FIGURES[label]
        data = replace(figure.data, source=smaller(figure.data.source))
        monkeypatch.setitem(plotting.FIGURES, label, replace(figure, data=data))


def smaller(source):
    if isinstance(source, Simulation):
        engines = source.engines and tuple(Engine)
        return Simulation(squares((16, 64)), (2,), source.methods, engines, draws=4)
    if isinstance(source, Ordering):
        return replace(source, sizes=(4, 5, 8))
    if isinstance(source, RoundingStudy):
        return replace(source, ratios=(1e-3,), shape=(16, 24), rank=2, steps=(1.0,), draws=1)
    if isinstance(source, ConvergenceStudy):
        return replace(source, searches=("swap",), problems=10, steps=60)
    grids = {structure.parameter: (0.0, 0.4) for structure in source.structures}
    return replace(source, p=16, q=16, ranks=(2,), **grids, draws=2)


@pytest.fixture
def unseen(monkeypatch):
    """Writing pictures costs most of the time; where only tables matter, they are not written."""

    def save(figure, folder, name):
        return [folder / f"{name}{suffix}" for suffix in (".png", ".pdf")]

    monkeypatch.setattr(drawing, "save_figure", save)


def test_without_id_every_figure_is_drawn_for_which_there_is_data(cli, cwd, unseen):
    done = cli("figures", "--format", "json")
    assert done.code == 0
    files = {path.name for path in (cwd / "loca-results").iterdir() if path.is_file()}
    # The loss of the toy experiment is drawn from the table of its spectrum.
    tables = {label for label in COMPUTED if label != "toy_experiment_loss"}
    assert files == {f"{label}{end}" for label in tables for end in (".parquet", ".manifest.json")}
    document = json.loads(done.out)
    assert [entry["figure"] for entry in document["figures"]] == COMPUTED
    for entry in document["figures"]:
        label, pictures = entry["figure"], entry["files"][:2]
        assert entry["shows"] == plotting.FIGURES[label].shows
        assert pictures == [f"loca-results/{label}{suffix}" for suffix in (".png", ".pdf")]
    assert [entry["figure"] for entry in document["not_drawn"]] == STORED
    notes = [line for line in done.err.splitlines() if line.startswith("note: not drawn: ")]
    assert len(notes) == len(STORED)
    assert done.err.count(": drawn from ") == 1, "the table of the spectrum"


def test_the_list_has_a_line_per_figure_and_says_where_the_paper_has_it(cli, cwd):
    done = cli("figures", "--list")
    assert (done.code, done.err) == (0, "")
    lines = {line.split()[0]: line for line in done.out.splitlines() if line.strip()}
    assert {*plotting.FIGURES} <= {*lines}
    assert "Error against the rank" in lines["sim_2"]
    assert lines["sim_2"].rstrip().endswith("appendix")
    assert lines["analysis_1"].rstrip().endswith("main text")
    assert lines["phase"].rstrip().endswith("Phase diagram")
    assert not [*cwd.iterdir()], "nothing is drawn"
    rows = json.loads(cli("figures", "--list", "--format", "json").out)["figures"]
    assert [row["figure"] for row in rows] == [*plotting.FIGURES]


def test_a_figure_has_the_size_that_is_asked(cli, cwd):
    done = cli("figures", "sim_2", "--results", FIGURES, "--figsize", "6.5x3", "--out", "drawn")
    assert done.code == 0
    with Image.open(cwd / "drawn" / "sim_2.png") as image:
        assert image.width / image.height == pytest.approx(6.5 / 3, rel=0.01)
    assert "--figsize" not in cli("figures", "--help").out
    assert "--figsize WxH" in cli("figures", "--help-all").out
    for size, message in {"6.5": "such as 3.25x2.4", "0x3": "figsize is in inches"}.items():
        refused = cli("figures", "sim_2", "--figsize", size)
        assert refused.code == 2
        assert message in refused.err


def test_outside_a_checkout_one_line_says_where_the_other_figures_are(cli, unseen, monkeypatch):
    monkeypatch.setattr(catalogue, "EXPERIMENTS", ())
    monkeypatch.setattr(catalogue, "FIGURES", {"sim_1": plotting.FIGURES["sim_1"]})
    done = cli("figures")
    line = "note: the figures of the experiments are in a checkout of the project only\n"
    assert (done.code, done.err) == (0, line)


FIGURES = Path(__file__).parents[2] / "figures"
PLACES = {
    **dict.fromkeys(STORED, "finetuning"),
    **dict.fromkeys(
        (name for name in STORED if name.startswith(("analysis", "spectral"))), "minilm"
    ),
    "published": "published",
    "rounded": "published",
    "unmerged": "unmerged",
    "first_steps": "peft-benchmark",
    "overview": ".",
}
everywhere = pytest.mark.parametrize(("label", "place"), PLACES.items(), ids=PLACES.keys())


def test_no_table_is_stored_twice():
    tables = [path.read_bytes() for path in FIGURES.rglob("*.parquet")]
    assert len(set(tables)) == len(tables)


@everywhere
def test_the_tables_of_this_repository_can_be_drawn(cli, cwd, unseen, label, place):
    """The pictures lie as their tables do, of which a note says where they are."""
    done = cli("figures", label, "--results", FIGURES, "--out", "out", "--format", "json")
    assert done.code == 0
    assert done.err.startswith(f"note: {label}: drawn from {FIGURES / place}/")
    (entry,) = json.loads(done.out)["figures"]
    files = [cwd / "out" / place / f"{label}{suffix}" for suffix in (".png", ".pdf")]
    assert [(cwd / file).resolve() for file in entry["files"]] == files


@pytest.mark.deep
@everywhere
def test_the_same_data_give_the_same_bytes(cli, cwd, label, place):
    for out in ("one", "two"):
        assert cli("figures", label, "--results", FIGURES, "--out", out).code == 0
    for suffix in (".png", ".pdf"):
        first, second = (cwd / out / place / f"{label}{suffix}" for out in ("one", "two"))
        assert first.read_bytes() == second.read_bytes()
