"""The list of the paper's figures: each can be computed, and is what it says."""

from dataclasses import replace
from pathlib import Path

import pytest

from loca_theory import InvalidArgumentError, __version__
from loca_theory.dependence.structures import STRUCTURES
from loca_theory.expressivity.methods.method import Engine
from loca_theory.expressivity.simulation import squares
from loca_theory.plotting import FIGURES
from loca_theory.plotting.paper import find_figure
from loca_theory.plotting.paper_figure import Computed
from loca_theory.sweeps import Runner
from loca_theory.sweeps.results import load_rows

ALONE = Runner(jobs=1)

COMPUTED = [figure for figure in FIGURES.values() if isinstance(figure.data, Computed)]
SIMULATIONS = [FIGURES["sim_1"], FIGURES["sim_2"]]
TOYS = [figure for figure in COMPUTED if figure.label.startswith("toy_")]
OTHERS = [*SIMULATIONS, *TOYS, FIGURES["methods"], FIGURES["theorem1_margin"]]
STUDIES = [figure for figure in COMPUTED if figure not in OTHERS]
each_simulation = pytest.mark.parametrize("figure", SIMULATIONS, ids=lambda one: one.label)
each_study = pytest.mark.parametrize("figure", STUDIES, ids=lambda one: one.label)


def test_a_figure_stands_under_its_label():
    assert [figure.label for figure in FIGURES.values()] == list(FIGURES)
    assert find_figure("sim_2") is FIGURES["sim_2"]


@each_simulation
def test_what_it_calls_exact_is_exact(figure):
    assert figure.shows.endswith("; exact")
    source = figure.data.source()
    assert source.engines == (Engine.EXACT,)
    for budget in source.budgets:
        assert all(Engine.EXACT in method.engines(budget) for method in source.methods)


@each_simulation
def test_it_needs_neither_torch_nor_a_gpu(figure):
    assert not figure.data.source().uses_dense_sampler


def test_they_show_what_the_paper_shows():
    one, two = (figure.data.source() for figure in SIMULATIONS)
    assert one.shapes[0] == (100, 100)
    assert one.shapes[-1] == (300, 300)
    assert one.ranks == (8, 16, 24, 32)
    assert two.shapes == ((768, 768), (4096, 4096))
    assert two.ranks == tuple(range(8, 33))


@each_simulation
def test_it_draws_from_a_table_of_its_own_kind(figure):
    """With fewer and smaller matrices: one panel per rank, or one per shape."""
    by_size = len(figure.data.source().shapes) > len(figure.data.source().ranks)
    shapes, ranks = (squares((16, 20, 64)), (1, 2)) if by_size else (squares((20, 64)), (1, 2, 3))
    small = replace(figure.data.source(), shapes=shapes, ranks=ranks, draws=3)
    drawn = figure.draw(small.run(ALONE).to_frame())
    titles = [axis.get_title(loc="left") or axis.get_title() for axis in drawn.axes]
    assert titles == (["r = 1", "r = 2"] if by_size else ["20 × 20", "64 × 64"])


@pytest.mark.parametrize("label", ["sim_9", "", "SIM_1"])
def test_an_unknown_label_lists_those_there_are(label):
    with pytest.raises(
        InvalidArgumentError, match=rf"unknown figure {label!r}; .*choose from sim_1, sim_2"
    ):
        find_figure(label)


@each_study
def test_a_study_is_drawn_from_the_table_it_names(figure):
    source = figure.data.source()
    grids = {one.parameter: (0.0, 0.2, 0.4) for one in source.structures}
    small = replace(source, p=24, q=24, ranks=(2, 4), **grids, draws=3, null_draws=400)
    drawn = figure.draw(small.run(ALONE).to_frame(figure.data.table))
    drawn.draw_without_rendering()
    assert any(axis.has_data() for axis in drawn.axes)


def test_the_studies_are_the_appendix_sweep():
    for figure in STUDIES:
        if figure.label == "separable_map":
            continue
        study = figure.data.source()
        assert (study.p, study.q, study.ranks) == (300, 300, (8, 16, 24, 32))
        assert study.grid(STRUCTURES["equicorrelated"]) == tuple(i / 100 for i in range(41))


@pytest.mark.parametrize("figure", TOYS, ids=lambda one: one.label)
def test_the_toy_experiment_is_drawn_from_the_table_it_names(figure):
    source = figure.data.source()
    assert (source.sizes, source.components, source.steps) == ((6,), (3,), 4000)
    small = replace(source, searches=("swap",), problems=20, steps=300)
    drawn = figure.draw(small.run(ALONE).to_frame(figure.data.table))
    drawn.draw_without_rendering()
    assert any(axis.has_data() for axis in drawn.axes)


@pytest.mark.deep
@each_simulation
def test_the_whole_figure_can_be_computed_and_drawn(figure):
    table = figure.data.source().run(ALONE).to_frame()
    figure.draw(table).draw_without_rendering()


@pytest.mark.parametrize("figure", COMPUTED, ids=lambda one: one.label)
def test_what_this_repository_shows_is_drawn_without_computing(figure):
    """Its table is of the settings that the figure asks for."""
    name = figure.data.shared_with or figure.label
    _, origin = load_rows(Path(__file__).parents[2] / "figures", name)
    source = figure.data.source()
    assert (origin["version"], origin["seed"]) == (__version__, getattr(source, "seed", None))
    assert origin["grid"] == source.describe()
