"""The figures from Python: what they are, and that stored tables are drawn, others computed."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import loca_theory
from loca_theory import InvalidArgumentError, ResourceError
from loca_theory.dependence.structures import STRUCTURES
from loca_theory.expressivity.methods.engine import Engine
from loca_theory.expressivity.methods.registry import find_methods
from loca_theory.expressivity.simulation import Simulation, squares
from loca_theory.plotting import FIGURES, figure
from loca_theory.plotting.drawing import NotStoredError, UndrawableError, find_drawing
from loca_theory.plotting.paper_figure import Computed
from loca_theory.sweeps import Runner
from loca_theory.sweeps.tables import store_rows

STORED = Path(__file__).parents[2] / "figures"
PACKAGE = Path(loca_theory.__file__).parent
ALONE = Runner(jobs=1)
SOURCES = {
    label: figure.data.source
    for label, figure in FIGURES.items()
    if isinstance(figure.data, Computed)
}


def test_they_show_what_the_paper_shows():
    first, second, toy = (SOURCES[label] for label in ("sim_1", "sim_2", "toy_recovery"))
    assert first.engines == second.engines == (Engine.EXACT,)
    assert (first.shapes[0], first.shapes[-1]) == ((100, 100), (300, 300))
    assert first.ranks == (8, 16, 24, 32)
    assert second.shapes == ((768, 768), (4096, 4096))
    assert second.ranks == tuple(range(8, 33))
    assert (toy.sizes, toy.components, toy.steps) == ((6,), (3,), 4000)
    for label in ("sim_3", "crossings", "phase"):
        study = SOURCES[label]
        assert (study.p, study.q, study.ranks) == (300, 300, (8, 16, 24, 32))
        assert study.grid(STRUCTURES["equicorrelated"]) == tuple(i / 100 for i in range(41))


@pytest.mark.parametrize("label", SOURCES)
def test_what_this_repository_shows_is_drawn_without_computing(label):
    """Its table has the settings that the figure asks for."""
    assert find_drawing(label, STORED).source is None


ELSEWHERE = """
from loca_theory import InvalidArgumentError, figure
from loca_theory.plotting import FIGURES
assert "sim_1" in FIGURES and "budget" not in FIGURES, list(FIGURES)
try:
    figure("budget")
except InvalidArgumentError as error:
    print(error)
"""


def test_an_installed_package_says_where_the_figures_of_the_experiments_are(tmp_path):
    """Also where a user has a package of the name ``experiments``."""
    (tmp_path / "loca_theory").symlink_to(PACKAGE)
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "__init__.py").touch()
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert re.fullmatch(r"unknown figure 'budget'; .* in a checkout [^\n]*\n", done.stdout)


@pytest.fixture
def small(monkeypatch):
    """The figure sim_1 of small matrices, and the seeds with which its simulation is run."""
    paper = FIGURES["sim_1"]
    source = Simulation(squares((8, 12)), (2,), find_methods(["LoCA", "DoRA"]), draws=4)
    monkeypatch.setitem(FIGURES, "sim_1", replace(paper, data=replace(paper.data, source=source)))
    runs, run = [], Simulation.run
    monkeypatch.setattr(
        Simulation, "run", lambda self, *arguments: runs.append(self.seed) or run(self, *arguments)
    )
    return runs


@pytest.fixture
def cwd(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_was_computed_is_stored_and_drawn_from(cwd, small):
    assert figure("sim_2", STORED).axes[0].get_title("left") == "768 × 768"
    assert small == names(cwd) == []
    figure("sim_1", runner=Runner(cwd / "points", jobs=1))
    assert names(cwd) == ["points"], "written where the runner says, and nowhere else"
    figure("sim_1", out="kept", seed=1, runner=ALONE)
    files = ["sim_1.manifest.json", "sim_1.parquet", "sim_1.pdf", "sim_1.png"]
    assert names(cwd / "kept") == files
    figure("sim_1", results="kept", out="drawn", seed=1, runner=ALONE)
    assert small == [0, 1]
    assert names(cwd / "drawn") == ["sim_1.pdf", "sim_1.png"]
    for name in names(cwd / "drawn"):
        assert (cwd / "drawn" / name).read_bytes() == (cwd / "kept" / name).read_bytes()
    path = cwd / "kept" / "sim_1.manifest.json"
    manifest = json.loads(path.read_text())
    assert manifest["grid"] == FIGURES["sim_1"].data.source.describe()
    assert find_drawing("sim_1", "kept", seed=1).source is None
    assert find_drawing("sim_1", "kept").source is None, "without a seed, that of the table"
    for stale in ({"version": "0.0.0"}, {"grid": {}}, {"seed": 2}):
        path.write_text(json.dumps(manifest | stale))
        assert find_drawing("sim_1", "kept", seed=1).source, "the table is of another run"
    path.unlink()
    assert find_drawing("sim_1", "kept", seed=1).source


def test_a_figure_has_the_size_colours_labels_and_scales_that_are_asked():
    drawn = figure(
        "sim_2", STORED, figsize=(6.5, 3), colors={"R": "#123456"}, labels={"LoRA": "low"}, log="y"
    )
    assert tuple(drawn.get_size_inches()) == (6.5, 3)
    axis = drawn.axes[0]
    assert {line.get_label(): line.get_color() for line in axis.lines}["low"] == "#123456"
    assert axis.get_yscale() == "log"
    assert tuple(figure("overview", STORED, figsize=(8, 4)).get_size_inches()) == (8, 4)
    with pytest.raises(InvalidArgumentError, match="the picture overview draws no methods"):
        figure("overview", STORED, colors={"LoRA": "red"})
    rounded = figure("rounding_low_rank", STORED, labels={"LoRA": "low rank"})
    assert "low rank" in {line.get_label() for line in rounded.axes[0].lines}
    with pytest.raises(InvalidArgumentError, match="panels of the picture sim_1 would be"):
        figure("sim_1", STORED, figsize=(2, 1.5))
    with pytest.raises(InvalidArgumentError, match="unknown name in labels 'DoRA'"):
        figure("sim_2", STORED, labels={"DoRA": "D"})


MISSING = (
    r"budget needs budgets-summary.parquet, which is not under loca-results; make it with "
    r"`python -m experiments.study budgets`, or name its folder with results="
)
REFUSED = [
    (("budget",), NotStoredError, MISSING),
    (("budget", "."), NotStoredError, r"there are a/.*, b/.*; name the folder"),
    (("budget", "a", "drawn"), UndrawableError, r"budget cannot be drawn: .*KeyError: 'mean'"),
    (("sim_1", "nowhere"), ResourceError, r'no folder nowhere; .* leave out results="\.\.\."'),
    (("sim_9",), InvalidArgumentError, r"unknown figure 'sim_9'; did you mean sim_3\?"),
    (("",), InvalidArgumentError, "unknown figure ''; choose from sim_1, sim_2"),
]


@pytest.mark.parametrize(("arguments", "kind", "message"), REFUSED)
def test_what_cannot_be_drawn_is_refused(cwd, arguments, kind, message):
    for folder in ("a", "b"):
        store_rows([{"task": "text"}], {}, cwd / folder, "budgets-summary")
    with pytest.raises(kind, match=message):
        figure(*arguments)
    assert names(cwd) == ["a", "b"]
