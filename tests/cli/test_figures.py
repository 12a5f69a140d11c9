"""``loca-theory figures``: redrawn from stored tables, which are computed where they are stale."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from loca_theory import plotting
from loca_theory.convergence.study import ConvergenceStudy
from loca_theory.expressivity.methods.method import Engine
from loca_theory.expressivity.simulation import Simulation, squares
from loca_theory.expressivity.theorem1.ordering import Ordering
from loca_theory.plotting import catalogue, drawing
from loca_theory.plotting.paper_figure import Computed
from loca_theory.sweeps import tables

COMPUTED = [label for label, one in plotting.FIGURES.items() if isinstance(one.data, Computed)]
STORED = [label for label in plotting.FIGURES if label not in COMPUTED]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """The paper's figures at sizes that take no time."""
    for label in COMPUTED:
        figure = plotting.FIGURES[label]
        source = smaller(figure)
        data = replace(figure.data, source=source)
        monkeypatch.setitem(plotting.FIGURES, label, replace(figure, data=data))


def smaller(figure):
    source = figure.data.source
    if isinstance(source, Simulation):
        engines = source.engines and tuple(Engine)
        return Simulation(squares((16, 64)), (2,), source.methods, engines, draws=4)
    if isinstance(source, Ordering):
        return replace(source, sizes=(4, 5, 8))
    if isinstance(source, ConvergenceStudy):
        return replace(source, searches=("swap",), problems=10, steps=60)
    grids = {one.parameter: (0.0, 0.4) for one in source.structures}
    return replace(source, p=16, q=16, ranks=(2,), **grids, draws=2, null_draws=400)


@pytest.fixture
def unseen(monkeypatch):
    """Writing pictures costs most of the time; where only tables matter, they stay empty."""

    def save(figure, folder, name):
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{name}{suffix}" for suffix in (".png", ".pdf")]
        for path in paths:
            path.write_bytes(b"")
        return paths

    monkeypatch.setattr(drawing, "save_figure", save)


def drawn(folder):
    """The table and the pictures of sim_1."""
    return [(folder / f"sim_1.{end}").read_bytes() for end in ("parquet", "pdf", "png")]


def test_a_figure_is_drawn_from_the_table_that_comes_with_it(cli, here, monkeypatch):
    assert cli("figures", "sim_1", "--out", "kept").code == 0
    names = sorted(path.name for path in (here / "kept").iterdir() if path.is_file())
    assert names == ["sim_1.manifest.json", "sim_1.parquet", "sim_1.pdf", "sim_1.png"]
    with Image.open(here / "kept" / "sim_1.png") as picture:
        picture.verify()
    assert (here / "kept" / "sim_1.pdf").read_bytes().startswith(b"%PDF-")
    manifest = json.loads((here / "kept" / "sim_1.manifest.json").read_text())
    assert manifest["grid"] == plotting.FIGURES["sim_1"].data.source.describe()
    monkeypatch.setattr(Simulation, "run", None)  # nothing may be computed
    done = cli("figures", "sim_1", "--results", "kept", "--out", "drawn")
    assert (done.code, done.err) == (0, "note: sim_1: drawn from kept/sim_1.parquet\n")
    assert sorted(path.name for path in (here / "drawn").iterdir()) == ["sim_1.pdf", "sim_1.png"]
    for name in ("sim_1.png", "sim_1.pdf"):
        assert (here / "drawn" / name).read_bytes() == (here / "kept" / name).read_bytes()


def test_without_id_every_figure_is_drawn_for_which_there_is_data(cli, here, unseen):
    done = cli("figures", "--format", "json")
    assert done.code == 0
    made = {path.name for path in (here / "loca-results").iterdir() if path.is_file()}
    pictures = {f"{label}{suffix}" for label in COMPUTED for suffix in (".pdf", ".png")}
    # The loss of the toy experiment is drawn from the table of its spectrum.
    tables = {label for label in COMPUTED if label != "toy_experiment_loss"}
    assert made == pictures | {
        f"{one}{end}" for one in tables for end in (".parquet", ".manifest.json")
    }
    document = json.loads(done.out)
    assert [one["figure"] for one in document["figures"]] == COMPUTED
    for entry in document["figures"]:
        assert entry["shows"] == plotting.FIGURES[entry["figure"]].shows
        assert all((here / path).is_file() for path in entry["files"])
    assert [one["figure"] for one in document["not_drawn"]] == STORED
    notes = [line for line in done.err.splitlines() if line.startswith("note: not drawn: ")]
    assert len(notes) == len(STORED)


def test_outside_a_checkout_one_line_says_where_the_other_figures_are(cli, unseen, monkeypatch):
    monkeypatch.setattr(catalogue, "EXPERIMENTS", ())
    monkeypatch.setattr(catalogue, "FIGURES", {"sim_1": plotting.FIGURES["sim_1"]})
    done = cli("figures")
    line = "note: the figures of the experiments are in a checkout of the project only\n"
    assert (done.code, done.err) == (0, line)


def change(name, value):
    def edit(folder):
        path = folder / "sim_1.manifest.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))

    return edit


STALE = {
    "another version": change("version", "0.0.0"),
    "another grid": change("grid", {}),
    "another seed": change("seed", 1),
    "no manifest": lambda folder: (folder / "sim_1.manifest.json").unlink(),
}


@pytest.mark.parametrize("spoil", STALE.values(), ids=STALE.keys())
def test_a_stale_table_is_computed_again(cli, here, spoil, unseen):
    folder = here / "loca-results"
    cli("figures", "sim_1")
    before = drawn(folder)
    spoil(folder)
    done = cli("figures", "sim_1")
    assert (done.code, done.err) == (0, "")
    assert drawn(folder) == before
    manifest = json.loads((folder / "sim_1.manifest.json").read_text())
    assert manifest["grid"] == plotting.FIGURES["sim_1"].data.source.describe()


def test_a_run_killed_between_table_and_manifest_is_not_taken_for_current(
    cli, here, monkeypatch, unseen
):
    folder = here / "loca-results"
    cli("figures", "sim_1", "--seed", 0)
    before = drawn(folder)
    write = tables.write_atomically

    def killed(path, content):
        if path.name == "sim_1.manifest.json":
            raise KeyboardInterrupt
        write(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(tables, "write_atomically", killed)
        assert cli("figures", "sim_1", "--seed", 1).code == 130
    assert (folder / "sim_1.parquet").read_bytes() != before[0]
    assert cli("figures", "sim_1", "--seed", 0).code == 0
    assert drawn(folder) == before


FIGURES = Path(__file__).parents[2] / "figures"
PLACES = {
    **dict.fromkeys(STORED, "finetuning"),
    **dict.fromkeys((one for one in STORED if one.startswith(("analysis", "spectral"))), "minilm"),
    "published": "published",
    "overview": ".",
}
everywhere = pytest.mark.parametrize(("label", "place"), PLACES.items(), ids=PLACES.keys())


def test_no_table_is_stored_twice():
    tables = [path.read_bytes() for path in FIGURES.rglob("*.parquet")]
    assert len(set(tables)) == len(tables)


@everywhere
def test_the_tables_of_this_repository_can_be_drawn(cli, here, unseen, label, place):
    """The pictures lie as their tables do."""
    done = cli("figures", label, "--results", FIGURES, "--out", "out", "--format", "json")
    assert done.code == 0
    (entry,) = json.loads(done.out)["figures"]
    files = [here / "out" / place / f"{label}{suffix}" for suffix in (".png", ".pdf")]
    assert [(here / file).resolve() for file in entry["files"]] == files


@pytest.mark.deep
@everywhere
def test_the_same_data_give_the_same_bytes(cli, here, label, place):
    for out in ("one", "two"):
        assert cli("figures", label, "--results", FIGURES, "--out", out).code == 0
    for suffix in (".png", ".pdf"):
        first, second = (here / out / place / f"{label}{suffix}" for out in ("one", "two"))
        assert first.read_bytes() == second.read_bytes()
