"""Studies that are refused, and properties of their tables."""

import json

import numpy as np
import pytest
import torch

from loca_theory.dependence import CorrelationResult, Structure, ar1, blocks, correlate
from loca_theory.dependence.design import Protocol
from loca_theory.dependence.draws import DrawCell, evaluate
from loca_theory.dependence.structures import STRUCTURES
from loca_theory.dependence.study import Study
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import Budget, Method, approximate, exact_error
from loca_theory.expressivity.methods import Cosine, Selection
from loca_theory.expressivity.methods.bounds import Bound
from loca_theory.expressivity.methods.registry import find_methods
from loca_theory.plotting import plot
from loca_theory.sweeps import Runner, generator
from loca_theory.transforms.matrices import dct_matrix

SMALL = {"draws": 8, "detect": True, "null_draws": 400}
ALONE = Runner(jobs=1)
SAME, IID = Protocol


class RandomRows(Method):
    name, title = "rows", "rows at random"

    def approximate(self, matrix, budget, rng=None):
        rows_alone = torch.zeros_like(matrix)
        rows = rng.permutation(budget.p)[: budget.numbers // budget.q]
        rows_alone[rows] = matrix[rows]
        return rows_alone


def tables(result):
    return result.rows, result.crossings, result.detection


def test_one_call_is_the_study_with_plain_arguments_and_comes_back_as_it_was_saved(tmp_path):
    result = correlate(
        shape=(12, np.int64(16)),
        ranks=np.arange(1, 3),
        structures=["ar1:0.1", "blocks:4"],
        protocols="same-draw",
        rho=np.linspace(0, 0.4, 3),
        **SMALL,
        seed=3,
        runner=ALONE,
    )
    study = Study(
        12,
        16,
        (1, 2),
        structures=(ar1(0.1), blocks(4)),
        protocols=(SAME,),
        rho=(0.0, 0.2, 0.4),
        **SMALL,
        seed=3,
    )
    assert tables(result) == tables(study.run(ALONE))
    assert result.manifest["grid"] == study.describe()
    assert study.describe()["options"] == {"ar1": 0.1, "blocks": 4}
    assert (result.manifest["seed"], result.manifest["device"]) == (3, "cpu")
    document = result.to_json()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    names = {path.name for path in result.save(tmp_path)}
    assert names == {"correlate.parquet", "correlate.manifest.json"}
    assert CorrelationResult.load(tmp_path) == result


def test_where_one_side_wins_throughout_the_tables_say_which():
    grids = {"fraction": (0.6, 0.7), "rho": (0.0, 0.1)}
    result = correlate(24, ranks=2, structures=("spiked", "ar1"), **grids, **SMALL, runner=ALONE)
    crossings = {
        (row.structure, row.protocol): (row.crossing, row.finding) for row in result.crossings
    }
    assert crossings["spiked", "same-draw"] == (None, "LoRA throughout")
    assert crossings["ar1", "same-draw"] == (None, "LoCA throughout")


def test_the_size_of_each_test_is_at_most_its_level():
    result = correlate(shape=(20, 30), ranks=2, structures="ar1", rho=0.1, **SMALL, runner=ALONE)
    null = [row for row in result.detection if row.structure == "independent"]
    assert {row.statistic for row in null} == {"T", "largest", "spikes"}
    assert all(row.power <= row.level for row in null)
    # T has an atom at 0, which F1(0) tends to for square matrices.
    assert all(0.4 < row.at_zero < 1 for row in null if row.statistic == "T")


def drawn(draw):
    """A draw of ``ar1`` as a cell of seed 5 draws it."""
    return STRUCTURES["ar1"].family(9, 16, generator(5, "dependence", 9, 16, "ar1", draw))(0.3)


def cell(draws, *methods, **options):
    return DrawCell(STRUCTURES["ar1"], 0.3, 9, 16, (2,), 5, (0, draws), *methods, **options)


def test_centring_needs_no_second_transform():
    """The low frequencies of a centred matrix, against the definition."""
    result, fractions = evaluate(cell(2, with_centred=True)), []
    for w in map(drawn, range(2)):
        z = dct_matrix(9).numpy() @ (w - w.mean(axis=0)) @ dct_matrix(16).numpy().T
        fractions.append((z[:3, :4] ** 2).sum() / (z**2).sum())
    assert result.centred_statistics["low-frequency"] == pytest.approx(fractions, rel=1e-12)


# --- methods by name and of the user's own --------------------------------------------------


def test_each_method_loses_what_its_approximation_does():
    """Shared decompositions and transforms, against one approximation of each draw."""
    cosines = Selection("cosines", basis=Cosine())
    names = (
        "LoRA",
        "random Fourier",
        "Fourier pairs",
        "Fourier",
        "LoCA",
        "entries",
        "random DCT",
        "DoRA",
    )
    losses = evaluate(cell(3, (*find_methods(names), cosines))).losses
    assert set(losses) == {*names, "cosines"}
    assert losses["cosines"] == losses["LoCA"]
    budget, energy = Budget(9, 16, 2), STRUCTURES["ar1"].energy(9, 16, 0.3)
    for name in ("LoRA", "Fourier pairs", "Fourier", "LoCA", "entries", "DoRA"):
        rests = [w - approximate(w, name, budget).numpy() for w in map(drawn, range(3))]
        mean = np.mean([np.square(residual).sum() for residual in rests]) / energy
        assert losses[name].mean == pytest.approx([mean], rel=1e-9), name


def test_methods_that_are_named_stand_beside_the_two_compared():
    grid = {"structures": "ar1", "rho": (0.0, 0.3)}
    result = correlate(
        12,
        ranks=(1, 2),
        methods=["random DCT", "printed line", "rate-distortion"],
        **grid,
        **SMALL,
        runner=ALONE,
    )
    usual = correlate(12, ranks=(1, 2), **grid, **SMALL, runner=ALONE)
    for protocol, names in (
        (SAME, ["LoRA", "LoCA", "random DCT", "printed line"]),
        (IID, ["LoRA", "LoCA", "random DCT", "printed line", "rate-distortion"]),
    ):
        under = [row.method for row in result.rows if row.protocol == protocol]
        assert list(dict.fromkeys(under)) == names
    assert (result.crossings, result.detection) == (usual.crossings, usual.detection)
    usual_rows = set(usual.rows)
    assert all(
        row in usual_rows for row in result.rows if row.method in ("LoRA", "LoCA", "printed line")
    )
    assert all(
        row.error == exact_error(row.method, Budget(12, 12, row.r)) and row.draws is None
        for row in result.rows
        if row.protocol == "iid-reference" and row.method != "LoRA"
    )
    assert result.manifest["grid"]["methods"] == ["random DCT", "printed line", "rate-distortion"]
    assert "methods" not in usual.manifest["grid"]


def test_a_picture_says_which_methods_are_off_the_budget():
    result = correlate(8, ranks=1, methods="DoRA", structures="ar1", rho=0.1, **SMALL, runner=ALONE)
    assert "Methods that spend another budget: DoRA 150% of it" in plot(result).caption


def test_a_method_of_the_users_own_has_rows_and_a_line():
    half = Bound("half", error=lambda _: 0.5)
    result = correlate(
        12,
        ranks=1,
        methods=[RandomRows(), half],
        structures="power-law",
        exponent=(0.0, 1.0),
        draws=50,
        runner=ALONE,
    )
    by_method = {(row.method, row.protocol): row for row in result.rows}
    users = {key for key in by_method if key[0] in ("rows", "half")}
    assert users == {("rows", SAME), ("half", IID)}
    assert by_method["half", IID].error == 0.5
    # Random rows retain their fraction on average, 2 of 12: five standard errors.
    for row in (row for row in result.rows if row.method == "rows"):
        assert abs(row.error - 10 / 12) < 5 * row.standard_error
        assert (row.draws, row.closed_form) == (50, None)
    figure = plot(result)
    labels = [text.get_text() for axis in figure.axes for text in axis.texts]
    assert any("rows" in label for label in labels)
    assert any("half" in label for label in labels)
    assert "rows at random" in figure.caption
    assert any("only LoRA on dependent" in axis.get_title("left") for axis in figure.axes)


def test_a_definition_that_nobody_can_tell_from_another_is_not_stored():
    users = RandomRows()
    assert cell(2, (users,)).is_storable
    users.anything = lambda: 0  # cannot be pickled
    assert not cell(2, (users,)).is_storable


# --- structures of the user's own -----------------------------------------------------------


class RankOne(Structure):
    """Independent entries and a random product of two vectors, which is all at ρ = 1."""

    name, parameter, title = "rank-one", "rho", "a random product of vectors"

    def bounds(self, p, q):  # noqa: ARG002
        return 0.0, 1.0

    def family(self, p, q, rng):
        z, u, v = (rng.standard_normal(shape) for shape in ((p, q), p, q))
        return lambda rho: np.sqrt(1 - rho) * z + np.sqrt(rho) * np.outer(u, v)


def cells(structure):
    return [DrawCell(structure, 1.0, 8, 8, (1,), 0, (draw, draw + 1)) for draw in range(3)]


def test_a_structure_of_the_users_own_is_itself_on_workers(monkeypatch):
    """Also under a name of the package, which only ``correlate`` refuses."""
    monkeypatch.setattr(RankOne, "__module__", "__main__")  # workers do not find this file
    for name in ("rank-one", "ar1"):
        monkeypatch.setattr(RankOne, "name", name)
        blocks = Runner(jobs=2).run(cells(RankOne()), evaluate, is_long=True)
        assert blocks == ALONE.run(cells(RankOne()), evaluate)
        losses = [block.losses["LoRA"].mean[0] for block in blocks]
        # Rounding errors of a decomposition of 64 entries.
        assert losses == pytest.approx([0] * 3, abs=64 * np.finfo(float).eps)


def test_a_structure_of_the_users_own_has_rows_crossings_and_a_picture():
    options = {"rho": (0.0, 0.9), **SMALL, "runner": ALONE}
    result = correlate(12, ranks=1, structures=["ar1", RankOne], **options)
    assert {row.structure for row in result.rows} == {"ar1", "rank-one"}
    findings = {(row.structure, row.protocol): row.finding for row in result.crossings}
    assert findings["rank-one", SAME] == "crossing"
    assert plot(result, "rank-one").caption


def test_a_structure_of_the_users_own_is_stored_by_its_definition():
    plain, other = RankOne(), RankOne()
    other.strength = 2
    first, second, repeated = (cells(kind)[0].key() for kind in (plain, other, RankOne()))
    assert first == repeated != second
    other.strength = lambda: 2  # cannot be pickled
    assert [cells(structure)[0].is_storable for structure in (plain, other)] == [True, False]


@pytest.mark.parametrize("matrix", [np.ones((3, 3)), np.full((8, 8), np.nan), None])
def test_matrices_of_another_kind_are_refused(monkeypatch, matrix):
    monkeypatch.setattr(RankOne, "family", lambda *_: lambda _: matrix)
    with pytest.raises(InvalidArgumentError, match=r"rank-one.family must give finite 8x8 mat"):
        evaluate(cells(RankOne())[0])
