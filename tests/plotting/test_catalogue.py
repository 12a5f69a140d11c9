"""The figure of all methods: lines, labels and key, from a table of its specification."""

import numpy as np
import pytest

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import METHODS, Budget, exact_error
from loca_theory.expressivity.methods.names import display_name
from loca_theory.expressivity.simulation import SimulationResult
from loca_theory.plotting import FIGURES
from loca_theory.plotting.catalogue import MethodCurves, draw_catalogue
from loca_theory.sweeps import Runner

LINEAR = "random Fourier, random DCT, WaveFT, WaveFT-PEFT, SHiRA, SSH, sDCTFT, C3A, MiSS, LoRA-XS"


@pytest.fixture(scope="module")
def result():
    return MethodCurves(32, 32, (1, 2, 3, 4), (2, 4)).run(Runner(jobs=1))


@pytest.fixture(scope="module")
def figure(result):
    return draw_catalogue(result.to_frame())


def test_a_row_for_every_rank_at_which_a_method_exists(result):
    ranks = {}
    for row in result.rows:
        ranks.setdefault(row.method, []).append(row.r)
    assert list(ranks) == list(METHODS)
    assert ranks["D"] == [1, 2, 3, 4]
    assert ranks["GraLoRA"] == ranks["LoHa"] == ranks["DoRA"] == [2, 4]
    for row in result.rows:
        if row.engine == "exact":
            assert row.error == pytest.approx(
                exact_error(row.method, Budget(32, 32, row.r)), rel=1e-12
            )
    engines = {row.method: row.engine for row in result.rows}
    assert {name for name, engine in engines.items() if engine == "monte-carlo"} == {
        "DoRA", "VeRA", "LoHa", "HiRA", "RandLoRA",
    }  # fmt: skip


def test_it_comes_back_from_its_folder(tmp_path, result):
    result.save(tmp_path)
    assert SimulationResult.load(tmp_path).to_json() == result.to_json()


def test_every_method_is_named_once_in_every_panel(result, figure):
    key = " ".join(figure.get_supxlabel().split())
    assert f"linear families (error 1 − trained parameters / pq): {LINEAR}" in key
    two = Budget(32, 32, 2)
    priced = {
        display_name(name) for name, method in METHODS.items() if method.parameters(two) is not None
    }
    for axis, extra in zip(figure.axes, ([], ["rate–distortion bound"]), strict=True):
        labels = [text.get_text() for text in axis.texts]
        names = [name for label in labels for name in label.split(", ")]
        assert sorted(names) == sorted(
            [*(priced - set(LINEAR.split(", "))), "linear families", *extra]
        )


def test_oracles_are_dashed_and_simulated_lines_have_points(figure):
    left = figure.axes[0]
    labels = [text.get_text() for text in left.texts]
    found = {
        label: (line.get_linestyle(), line.get_marker())
        for label in labels
        for line in left.lines
        if np.isclose(line.get_ydata()[-1], left.texts[labels.index(label)].xy[1])
        and np.isclose(line.get_xdata()[-1], left.texts[labels.index(label)].xy[0])
    }
    assert found["Fourier, LoCA, entries"][0] == "--"
    assert found["linear families"] == ("-", "None")
    assert found["VeRA"][1] == "o"


def test_labels_do_not_overlap(figure):
    for axis in figure.axes:
        positions = np.sort([text.get_position()[1] for text in axis.texts])
        assert (np.diff(positions) > 0.03).all()


def test_the_figure_is_that_of_the_paper_sizes():
    source = FIGURES["methods"].data.source()
    assert (source.p, source.q, source.ranks[0], source.ranks[-1]) == (768, 768, 1, 64)


def test_a_rank_that_does_not_fit_is_refused():
    with pytest.raises(InvalidArgumentError, match="budget larger than the matrix: rank 9"):
        MethodCurves(16, 16, (1, 9)).run()
