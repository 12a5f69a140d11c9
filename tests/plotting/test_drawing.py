"""The paper's figures from Python: stored tables are drawn, those of simulations computed."""

from dataclasses import replace
from pathlib import Path

import pytest

from loca_theory import InvalidArgumentError, ResourceError
from loca_theory.expressivity.methods.registry import find_methods
from loca_theory.expressivity.simulation import Simulation, squares
from loca_theory.plotting import FIGURES, figure
from loca_theory.plotting.drawing import NotStoredError, UndrawableError, find_drawing
from loca_theory.sweeps import Runner
from loca_theory.sweeps.results import store_rows

STORED = Path(__file__).parents[2] / "figures"
ALONE = Runner(jobs=1)


@pytest.fixture
def small(monkeypatch):
    """The figure sim_1 of small matrices, and the runs of its simulation."""
    paper = FIGURES["sim_1"]
    source = Simulation(squares((8, 12)), (2,), find_methods(["D", "DoRA"]), draws=4)
    data = replace(paper.data, source=lambda: source)
    monkeypatch.setitem(FIGURES, "sim_1", replace(paper, data=data))
    runs, run = [], Simulation.run
    monkeypatch.setattr(
        Simulation, "run", lambda self, *rest: runs.append(self.seed) or run(self, *rest)
    )
    return runs


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_figure_of_stored_tables_is_drawn_from_them(here):
    drawn = figure("sim_2", STORED)
    assert drawn.axes[0].get_title("left") == "768 × 768"
    assert names(here) == []


def test_a_simulation_is_computed_where_it_is_not_stored(here, small):
    figure("sim_1", runner=ALONE)
    assert small == [0]
    assert names(here) == []


def test_what_was_computed_is_stored_and_drawn_from(here, small):
    figure("sim_1", out="kept", seed=1, runner=ALONE)
    files = ["sim_1.manifest.json", "sim_1.parquet", "sim_1.pdf", "sim_1.png"]
    assert names(here / "kept") == files
    before = (here / "kept" / "sim_1.png").read_bytes()
    figure("sim_1", results="kept", out="drawn", seed=1, runner=ALONE)
    assert small == [1]
    assert names(here / "drawn") == ["sim_1.pdf", "sim_1.png"]
    assert (here / "drawn" / "sim_1.png").read_bytes() == before
    figure("sim_1", results="kept", seed=2, runner=ALONE)
    assert small == [1, 2], "the table is of another seed"


def test_the_runner_says_where_finished_points_are_kept(here, small):
    figure("sim_1", runner=Runner(here / "points", jobs=1))
    assert list((here / "points").iterdir())


def test_one_knows_what_it_is_drawn_from_before_it_is_computed(here, small):
    drawing = find_drawing("sim_1", seed=3)
    assert (drawing.tables, drawing.source.seed) == ((), 3)
    drawing = find_drawing("phase", STORED)
    assert (drawing.tables, drawing.source) == ((STORED / "phase.parquet",), None)
    assert small == []


def test_a_table_that_is_missing_is_named_with_what_makes_it(here):
    message = r"budget needs budgets-summary.parquet, which is not under loca-results; make it "
    message += r"with `python -m experiments.study budgets`, or name its folder with results="
    with pytest.raises(NotStoredError, match=message):
        figure("budget")


def test_of_two_tables_none_is_chosen(here):
    for folder in ("a", "b"):
        store_rows([{"r": 1}], {}, here / folder, "budgets-summary")
    with pytest.raises(NotStoredError, match=r"there are a/.*, b/.*; name the folder"):
        figure("budget", ".")


def test_a_table_that_lacks_what_is_shown_is_refused(here):
    store_rows([{"task": "text"}], {}, here, "budgets-summary")
    with pytest.raises(UndrawableError, match=r"budget cannot be drawn: .*KeyError: 'mean'"):
        figure("budget", ".", out="drawn")
    assert not (here / "drawn").exists()


def test_a_folder_of_results_has_to_be_there():
    with pytest.raises(ResourceError, match=r'no folder nowhere; .* leave out results="\.\.\."'):
        figure("sim_1", "nowhere")


def test_an_unknown_figure_lists_those_there_are():
    with pytest.raises(
        InvalidArgumentError,
        match=r"unknown figure 'sim_9'; did you mean sim_3\? Otherwise choose from sim_1, ",
    ):
        figure("sim_9")
