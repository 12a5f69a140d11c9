"""The figure of all methods: a row each, from a table of its specification."""

import pandas as pd
import pytest

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import METHODS, Budget, exact_error
from loca_theory.expressivity.methods.names import display_name
from loca_theory.expressivity.results import SimulationResult
from loca_theory.plotting.method_costs import draw_catalogue
from loca_theory.plotting.method_errors import MethodErrors
from loca_theory.sweeps import Runner

LINEAR = ("random DCT", "WaveFT", "WaveFT-PEFT", "SHiRA", "SSH", "sDCTFT", "C3A", "MiSS")
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


def dots(figure):
    """The dots of each method by how they are filled: white are those of stored bits."""
    (axis,) = figure.axes
    names = [text.get_text() for text in axis.get_yticklabels()]
    found = {"parameters": {}, "bits": {}, "measured": {}}
    for line in axis.lines:
        kind = "bits" if line.get_markerfacecolor() == "#ffffff" else "parameters"
        kind = "measured" if line.get_marker() == "D" else kind
        if line.get_marker() in ("o", "D"):
            points = zip(*line.get_data(), strict=True)
            found[kind] |= {names[int(height)]: gain for gain, height in points}
    return names, found


def test_a_method_has_a_row_with_what_it_retains_for_its_cost(figure):
    names, found = dots(figure)
    four = Budget(32, 32, 4)
    priced = {display_name(name) for name, one in METHODS.items() if one.parameters(four)}
    assert len(names) == len(set(names))
    assert set(names) == priced == set(found["parameters"]) == set(found["bits"])
    for name in LINEAR:
        assert found["parameters"][name] == pytest.approx(1, rel=1e-6), name
    # Of low rank: the energy that is retained, over r(p + q)/pq; of entries over half as much.
    energy = 1 - exact_error("R", four)
    assert found["parameters"]["LoRA"] == found["bits"]["LoRA"] == pytest.approx(energy * 4)
    kept = 1 - exact_error("S", four)
    assert found["parameters"]["entries"] == pytest.approx(kept * 8)
    bits = METHODS["S"].stored_bits(four)
    assert found["bits"]["entries"] == pytest.approx(kept * 16 * 32 * 32 / bits)
    lora, loca = found["parameters"]["LoRA"], found["parameters"]["LoCA"]
    assert figure.get_suptitle().endswith(f": LoRA ×{lora:.1f}, LoCA ×{loca:.1f}")


def test_measured_errors_are_marked_in_their_rows(result):
    marks = pd.DataFrame({"method": ["D", "R"], "p": 32, "q": 32, "r": 4, "error": [0.5, 0.2]})
    figure = draw_catalogue(result.to_frame(), marks, "2 matrices")
    _, found = dots(figure)
    # Gains over 4 (p + q) numbers of pq, and half as many coefficients.
    assert found["measured"] == {"LoCA": pytest.approx(4), "LoRA": pytest.approx(3.2)}
    assert figure.get_suptitle().endswith("LoRA ×3.2, LoCA ×4.0")


def test_a_rank_that_does_not_fit_is_refused():
    with pytest.raises(InvalidArgumentError, match="budget larger than the matrix: rank 9"):
        MethodErrors(16, 16, (1, 9)).run()
