"""The figure of all methods: lines, labels and key, from a table of its specification."""

import numpy as np
import pytest

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import METHODS, Budget, exact_error
from loca_theory.expressivity.methods.names import display_name
from loca_theory.expressivity.simulation import SimulationResult
from loca_theory.plotting.method_costs import draw_catalogue
from loca_theory.plotting.method_errors import MethodErrors
from loca_theory.sweeps import Runner

LINEAR = "random Fourier, random DCT, WaveFT, WaveFT-PEFT, SHiRA, SSH, sDCTFT, C3A, MiSS, LoRA-XS"
SIMULATED = {"DoRA", "VeRA", "LoHa", "HiRA", "RandLoRA"}


@pytest.fixture(scope="module")
def result():
    return MethodErrors(32, 32, (1, 2, 3, 4), (2, 4)).run(Runner(jobs=1))


@pytest.fixture(scope="module")
def figure(result):
    return draw_catalogue(result.to_frame())


def test_a_row_for_every_rank_at_which_a_method_exists(result, tmp_path):
    ranks = {}
    for row in result.rows:
        ranks.setdefault(row.method, []).append(row.r)
        assert (row.engine == "monte-carlo") == (row.method in SIMULATED)
        if row.engine == "exact":
            expected = exact_error(row.method, Budget(32, 32, row.r))
            assert row.error == pytest.approx(expected, rel=1e-12)
    assert list(ranks) == list(METHODS)
    assert ranks["D"] == [1, 2, 3, 4]
    assert ranks["GraLoRA"] == ranks["LoHa"] == ranks["DoRA"] == [2, 4]
    result.save(tmp_path)
    assert SimulationResult.load(tmp_path).to_json() == result.to_json()


def test_every_method_is_named_once_in_every_panel_and_apart(figure):
    key = " ".join(figure.get_supxlabel().split())
    assert f"linear families (error 1 − trained parameters / pq): {LINEAR}" in key
    two = Budget(32, 32, 2)
    priced = {display_name(name) for name, one in METHODS.items() if one.parameters(two)}
    for axis, extra in zip(figure.axes, ([], ["rate–distortion bound"]), strict=True):
        names = [name for text in axis.texts for name in text.get_text().split(", ")]
        drawn = [*(priced - set(LINEAR.split(", "))), "linear families", *extra]
        assert sorted(names) == sorted(drawn)
        positions = np.sort([text.get_position()[1] for text in axis.texts])
        assert (np.diff(positions) > 0.03).all()


def test_oracles_are_dashed_and_simulated_lines_have_points(figure):
    left = figure.axes[0]
    found = {
        text.get_text(): (line.get_linestyle(), line.get_marker())
        for text in left.texts
        for line in left.lines
        if np.allclose([line.get_xdata()[-1], line.get_ydata()[-1]], text.xy)
    }
    assert found["Fourier, LoCA, entries"][0] == "--"
    assert found["linear families"] == ("-", "None")
    assert found["VeRA"][1] == "o"


def test_a_rank_that_does_not_fit_is_refused():
    with pytest.raises(InvalidArgumentError, match="budget larger than the matrix: rank 9"):
        MethodErrors(16, 16, (1, 9)).run()
