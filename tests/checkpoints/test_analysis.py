"""The analysis of one matrix and of a pair, against dense definitions."""

import copy
import html
import json
import math
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from loca_theory.checkpoints import analyze, demo_pair
from loca_theory.checkpoints.measure.matrix import analyse_matrix
from loca_theory.checkpoints.measure.settings import ANALYSED, Settings
from loca_theory.checkpoints.model.names import kind_of, layer_of
from loca_theory.checkpoints.report.columns import CHANGE, MATRIX, STATISTIC_COLUMNS
from loca_theory.checkpoints.report.findings import findings
from loca_theory.checkpoints.report.verdict import verdict
from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.expressivity import (
    Accounting,
    Budget,
    Method,
    approximate,
    exact_error,
    spectral_error,
)
from loca_theory.expressivity.coders.coder import Transform
from loca_theory.expressivity.matrices import mean_retained_energies
from loca_theory.expressivity.methods.registry import find_methods
from loca_theory.increments import PrintedTest
from loca_theory.plotting import report
from loca_theory.sweeps import ResultStore, Runner
from tests.checkpoints.files import normal

SETTINGS = Settings((2, 4), printed=PrintedTest(copies=10, samples=5000))
ASKED = {"ranks": (2, 4), "device": "cpu", "printed": SETTINGS.printed}


@pytest.fixture(scope="module")
def analysis():
    return analyze(*demo_pair(), **ASKED)


@pytest.fixture(scope="module")
def weights():
    """(base, tuned) state dictionaries of a small pair that was really trained."""
    return [
        {name: tensor.float() for name, tensor in load_file(path).items()} for path in demo_pair()
    ]


def errors_of(analysis, r):
    return {error.method: error for error in analysis.errors if error.r == r}


def mean_error(analysis, r, method):
    (row,) = [e for e in analysis.summary.all.errors if (e.r, e.method) == (r, method)]
    return row.error


@pytest.mark.parametrize("shape", [(40, 40), (30, 48), (49, 24)])
def test_errors_are_those_of_the_approximations(shape):
    w = normal(*shape).double() + 3 * torch.outer(*(normal(side, seed=1) for side in shape))
    errors = errors_of(analyse_matrix("w", w.clone(), SETTINGS), 4)
    budget, values = Budget(*shape, 4), np.linalg.svd(w, compute_uv=False)
    for method in ("LoRA", "Fourier pairs", "Fourier", "LoCA", "entries"):
        residual = w - approximate(w, method, budget)
        expected = float(residual.square().sum() / w.square().sum())
        assert errors[method].error == pytest.approx(expected, rel=1e-9)
    for method in ("random Fourier", "FourierFT"):
        draws = [
            float((w - approximate(w, method, budget, np.random.default_rng(seed))).square().sum())
            for seed in range(200)
        ]
        mean = np.mean(draws) / float(w.square().sum())
        error = np.std(draws, ddof=1) / np.sqrt(200) / float(w.square().sum())
        assert abs(errors[method].error - mean) < 4.5 * error
    for method, row in errors.items():
        expected = spectral_error(values, method, budget)
        assert row.spectral_error == pytest.approx(expected, abs=1e-9)
    assert errors["LoRA"].shuffled_error > errors["LoRA"].error + 0.2
    assert errors["entries"].shuffled_error == pytest.approx(errors["entries"].error, abs=1e-6)


def test_methods_that_use_the_base_get_the_weights_of_each_layer(weights):
    """Without a base, random weights stand for it, and a note says so."""
    methods, rng = ["LoRA", "LoCA", "OFT", "LoRA-XS", "Super-Tuning"], np.random.default_rng
    analysis = analyze(*weights, methods=methods, include="attention", **ASKED)
    said, gains = "OFT, LoRA-XS, Super-Tuning: with random weights", []
    assert len(analysis.matrices) == 4
    for matrix in analysis.matrices:
        base, change = weights[0][matrix.name], weights[1][matrix.name] - weights[0][matrix.name]
        budget = Budget(*base.shape, 4)
        retained = mean_retained_energies(
            change, find_methods(methods), [budget], rng(0), weights=base
        )
        errors = {e.method: e.error for e in analysis.errors if (e.name, e.r) == (matrix.name, 4)}
        for method in methods:
            expected = 1 - float(retained[method][0] / change.double().square().sum())
            assert errors[method] == pytest.approx(expected, abs=1e-5), method
        alone = analyze(change, methods=methods, **ASKED)
        gains.append(errors_of(alone, 4)["OFT"].error - errors["OFT"])
        assert errors["LoRA"] == pytest.approx(errors_of(alone, 4)["LoRA"].error, abs=1e-5)
        assert said in alone.matrices[0].note
        assert said not in matrix.note
    assert min(gains) > 0


def test_oft_turns_the_inputs_of_a_layer_that_is_stored_transposed():
    """Inputs turned by skew blocks of 8, in a linear layer and in the transposed ``Conv1D``."""
    from transformers.pytorch_utils import Conv1D

    weight, block = normal(32, 24), normal(8, 8)
    change = 1e-3 * weight @ torch.block_diag(*[block - block.T] * 3)

    class Network(torch.nn.Module):
        def __init__(self, layer, matrix):
            super().__init__()
            self.fc = layer
            self.fc.weight.data = matrix.clone()

    for layer, stored, moved in (
        (torch.nn.Linear(24, 32), weight, change),
        (Conv1D(32, 24), weight.T, change.T),
    ):
        pair = (Network(copy.deepcopy(layer), matrix) for matrix in (stored, stored + moved))
        analysis = analyze(*pair, methods=["LoRA", "LoCA", "OFT", "MiSS"], **ASKED)
        errors = errors_of(analysis, 2)
        assert errors["OFT"].error < 1e-6
        assert errors["OFT"].iid_error == pytest.approx(exact_error("OFT", Budget(32, 24, 2)))
        columns = mean_retained_energies(change, find_methods("MiSS"), [Budget(32, 24, 2)])["MiSS"]
        expected = 1 - float(columns[0] / change.double().square().sum())
        assert errors["MiSS"].error == pytest.approx(expected, abs=1e-4)


def test_independent_entries_have_their_expected_errors_and_shuffling_changes_nothing():
    w = normal(200, 200)
    analysis = analyse_matrix("w", w, replace(SETTINGS, ranks=(8,)))
    for method, error in errors_of(analysis, 8).items():
        assert error.error == pytest.approx(error.iid_error, abs=0.01)
        assert error.shuffled_error == pytest.approx(error.iid_error, abs=0.01)
        assert error.axes_shuffled_error is None, "the basis of D is worth nothing here"
        if method != "LoRA":
            assert error.iid_error == exact_error(method, Budget(200, 200, 8))
    assert analysis.matrix.tv_p_value > 0.05
    assert analysis.matrix.outlier_mass < 0.05
    assert analysis.matrix.mp_sigma == pytest.approx(1.0, abs=0.02)


def test_a_result_of_a_gpu_is_that_of_the_cpu(accelerator):
    w = normal(40, 30).double()
    on_cpu, on_gpu = (
        analyse_matrix("w", w.clone(), replace(SETTINGS, device=str(device)))
        for device in ("cpu", accelerator)
    )
    # Orthogonal maps and eigenvalues in float64: a few hundred roundings of the energy.
    close = partial(pytest.approx, rel=1e-9, abs=1e-12)
    rows = zip((*on_cpu.errors, on_cpu.matrix), (*on_gpu.errors, on_gpu.matrix), strict=True)
    for row, other in rows:
        for name, value in vars(row).items():
            expected = close(value) if isinstance(value, float) else value
            assert getattr(other, name) == expected, name
    assert on_gpu.entries == on_cpu.entries


def test_the_increment_is_not_copied_where_it_lies(device):
    w = normal(12, 10).double()
    before = w.clone()
    analyse_matrix("w", w, replace(SETTINGS, device=str(device)))
    assert torch.equal(w, before) == (device.type != "cpu")


def test_a_device_without_memory_says_what_to_leave_out(monkeypatch):
    def full(*_):
        raise torch.cuda.OutOfMemoryError("Tried to allocate 3.00 GiB.")

    monkeypatch.setattr("loca_theory.checkpoints.measure.matrix.squared_singular_values", full)
    message = r"^the analysis of w \(4x5\) does not fit into the memory of cpu: it needs 3.00 GiB "
    message += 'more; leave it out with max_size=19, or use device="cpu"$'
    with pytest.raises(ResourceError, match=message):
        analyse_matrix("w", torch.arange(20.0).view(4, 5), SETTINGS)


def test_every_matrix_of_a_real_pair_has_a_row_and_totals_weigh_by_energy(analysis, weights):
    base, tuned = weights
    expected = {
        name for name, tensor in tuned.items() if tensor.ndim == 2 and min(tensor.shape) >= 16
    }
    assert {row.name for row in analysis.matrices} == expected
    assert not any(skipped.damaged for skipped in analysis.skipped)
    assert [(e.name, e.r, e.method) for e in analysis.errors] == [
        (row.name, r, c.name) for row in analysis.matrices for r in (2, 4) for c in ANALYSED
    ]
    for row in analysis.matrices:
        increment = (tuned[row.name] - base[row.name]).double()
        energy = float(increment.square().sum())
        assert row.zero_fraction == float((increment == 0).double().mean())
        assert row.energy == pytest.approx(energy, rel=1e-5)
        assert row.sigma == pytest.approx(float(increment.std(correction=0)), rel=1e-5)
        for fraction, axis in ((row.row_mean_energy, 1), (row.column_mean_energy, 0)):
            means = increment.mean(axis, keepdim=True).expand_as(increment)
            assert fraction == pytest.approx(float(means.square().sum()) / energy, rel=1e-4)
    left = sum(
        row.energy * row.error for row in analysis.errors if (row.r, row.method) == (2, "LoRA")
    )
    total = sum(row.energy for row in analysis.matrices)
    assert mean_error(analysis, 2, "LoRA") == pytest.approx(left / total)
    best = [row.best_on for row in analysis.summary.all.errors if row.r == 2]
    assert sum(best) == len(analysis.matrices)


@pytest.mark.parametrize("accounting", list(Accounting))
def test_ranks_whose_budget_does_not_fit_are_left_out_of_that_matrix(accounting):
    w = normal(32, 16)
    analysis = analyse_matrix("w", w, replace(SETTINGS, ranks=(1, 16, 40), accounting=accounting))
    # R's own numbers are counted as the paper does, and 16·(32 + 16) are more than 512.
    assert {error.r for error in analysis.errors} == {1}
    assert "no errors at r =" in analysis.matrix.note


UNCHANGED = (
    "zero_fraction",
    "excess_kurtosis",
    "row_mean_energy",
    "tv",
    "mp_distance",
    "spikes",
    "outlier_mass",
    "stable_rank",
    "effective_rank",
    "tail_exponent",
)
F32, F64 = torch.float32, torch.float64


@pytest.mark.parametrize(
    ("dtype", "scale"), [(F32, 1e30), (F32, 1e-40), (F64, 1e300), (F64, 1e-300)]
)
def test_finite_increments_of_any_size_are_analysed(dtype, scale):
    """As a matrix of ordinary size with the very digits that are stored."""
    w = (normal(40, 32).double() * scale).to(dtype)
    analysis = analyze({"w": torch.zeros_like(w)}, {"w": w}, **ASKED)
    (row,) = analysis.matrices
    power = int(np.frexp(float(w.double().abs().max()))[1])
    plain = analyse_matrix("w", torch.from_numpy(np.ldexp(w.double().numpy(), -power)), SETTINGS)
    # Sums of 1280 squares, in the type of the entries.
    close = partial(pytest.approx, rel=1280 * torch.finfo(dtype).eps, abs=1e-9)
    for name in UNCHANGED:
        assert getattr(row, name) == close(getattr(plain.matrix, name)), name
    for name in ("sigma", "mean", "mp_sigma"):
        assert getattr(row, name) == close(getattr(plain.matrix, name) * 2.0**power)
    for error, other in zip(analysis.errors, plain.errors, strict=True):
        assert (error.error, error.shuffled_error) == close((other.error, other.shuffled_error))
    assert mean_error(analysis, 2, "LoCA") == pytest.approx(errors_of(analysis, 2)["LoCA"].error)
    energy = pytest.approx(float(w.double().square().sum()), rel=1e-4)
    assert row.energy == (energy if dtype == F32 else None)
    assert ("energy does not fit float64" in row.note) == (dtype == F64)
    assert analysis.summary.all.energy == row.energy
    json.dumps(analysis.to_json(), allow_nan=False)


@pytest.mark.parametrize(
    ("dtype", "base", "tuned"),
    [(F32, 1e-40, 1e-40), (F64, 1e300, 1e300), (F64, 1e-300, 1e-300), (F64, 1e-200, 1.0)],
)
def test_the_cosine_of_the_weights_is_that_of_the_vectors(dtype, base, tuned):
    first, second = normal(2, 600, 20).double()
    sides = [(base * first).to(dtype), (tuned * (0.3 * first + second)).to(dtype)]
    (row,) = analyze(*({"w": side} for side in sides), **ASKED).matrices
    # The range of an extended float holds the squares of all of these.
    a, b = (side.double().numpy().astype(np.longdouble) for side in sides)
    expected = float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))
    # W′ is recomputed from W₀ and the rounded ΔW, which is at most twice as long.
    assert row.weights_cosine == pytest.approx(expected, abs=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize(("base", "tuned", "expected"), [(-310, -310, 2.0), (-200, 150, None)])
def test_the_relative_norm_of_extreme_numbers(base, tuned, expected):
    w = np.random.default_rng(0).normal(size=(20, 24))
    analysis = analyze({"a.weight": 10.0**base * w}, {"a.weight": -(10.0**tuned) * w}, ranks=[2])
    norm = analysis.matrices[0].relative_norm
    assert norm == (None if expected is None else pytest.approx(expected, rel=1e-9))
    assert "NaN" not in json.dumps(analysis.to_json(), allow_nan=False)


def sides_of(*cosines):
    """A base with one matrix per cosine, and another checkpoint at these cosines to it."""
    rows = np.linalg.qr(np.random.default_rng(0).normal(size=(800, 2 * len(cosines))))[0].T
    base, apart, other = {}, {}, {}
    for i, cosine in enumerate(cosines):
        name = f"{i}.fc.weight"
        base[name], apart[name] = rows.reshape(-1, 2, 20, 40)[i]
        other[name] = cosine * base[name] + (1 - cosine**2) ** 0.5 * apart[name]
    return base, other


@pytest.mark.parametrize(
    ("cosines", "said", "remarked"),
    [
        ((0.99, 0.98, 0.1), None, 1),
        ((0.99, 0.2, 0.1), "are unrelated (median cosine 0.20, almost", 2),
        ((0.51,), None, 0),
        ((-0.001,), "are unrelated (cosine 0.00, almost", 1),  # without the sign of a rounded 0
    ],
)
def test_checkpoints_of_two_trainings_are_said_to_be_unrelated(cosines, said, remarked):
    analysis = analyze(*sides_of(*cosines), **ASKED)
    cosine = pytest.approx(list(cosines), abs=1e-6)
    assert [row.weights_cosine for row in analysis.matrices] == cosine
    assert analysis.summary.all.median_weights_cosine == pytest.approx(np.median(cosines), abs=1e-6)
    assert (
        sum("unrelated to the base's weight" in row.note for row in analysis.matrices) == remarked
    )
    assert len(analysis.warnings) == (said is not None)
    assert analysis.to_json()["summary"]["warnings"] == list(analysis.warnings)
    if said is not None:
        assert said in analysis.warnings[0]
        assert analysis.verdict == f"{analysis.message} {analysis.warnings[0]}"
        assert analysis._repr_html_().startswith(f"<p>{html.escape(analysis.verdict)}</p>")


def test_a_spectrum_without_a_bulk_has_no_fit_and_says_so():
    analysis = analyze(torch.outer(torch.arange(1.0, 21), torch.arange(1.0, 25)), **ASKED)
    (row,) = analysis.matrices
    assert [row.mp_sigma, row.mp_distance, row.mp_wasserstein, row.tail_exponent] == [None] * 4
    assert (row.spikes, row.outlier_mass) == (1, 1.0)
    assert "the spectrum has no bulk: all but 1 eigenvalues are rounding errors" in row.note
    assert analysis.summary.all.follow_mp == 0
    assert "of independent entries in 0 of 1 matrix." in analysis.findings[-2]
    json.dumps(analysis.to_json(), allow_nan=False)


def summary_with(analysis, method, **fields):
    """The summary if the mean error of a method were another."""
    errors = [
        replace(row, **fields) if (row.method, row.r) == (method, 2) else row
        for row in analysis.summary.all.errors
    ]
    return replace(analysis.summary, all=replace(analysis.summary.all, errors=tuple(errors)))


BASIS = "a basis unrelated to the matrices would retain"


@pytest.mark.parametrize(
    ("method", "fields", "said"),
    [
        ("LoRA", {"error": 0.001}, "At the budget of LoRA with r = 2, LoRA retains 100%"),
        ("LoCA", {"error": 0.4, "spectral_error": 0.5}, f"The DCT retains 60%, {BASIS} 50%."),
        (
            "LoCA",
            {"error": 0.4, "spectral_error": 0.41},
            f"{BASIS} 59%: rows and columns are in no order that the DCT could use.",
        ),
    ],
)
def test_the_findings_name_the_winner_and_what_the_dct_is_worth(analysis, method, fields, said):
    summary = summary_with(analysis, method, **fields)
    assert said in " ".join(findings(summary, analysis.matrices, (), 0.001))


def test_there_are_five_findings_the_last_on_normality(analysis):
    rejected = sum(row.tv_p_value < 0.05 for row in analysis.matrices)
    rejected = f"is rejected at the level 5% in {rejected} of {len(analysis.matrices)} "
    sentences = analysis.findings
    assert len(sentences) == 5
    assert f"Normality of the entries, up to a total variation of 0.001, {rejected}" in sentences[4]
    assert analysis.to_json()["summary"]["findings"] == list(sentences)


BUDGET = "at the budget of LoRA of rank 2"
SMALL = "No form retains half of the change at this budget."


@pytest.mark.parametrize(
    ("method", "error", "lora", "first", "second"),
    [
        ("LoRA", 0.001, 0.001, "LoRA of rank 2 retains 100% of the change of 8 matrices; ", ()),
        ("LoCA", 0.001, 0.3, f"LoCA (best DCT coefficients) {BUDGET} retains 100% of the ", ()),
        ("entries", 0.4, 0.9, f"The largest plain entries {BUDGET} retain 60% of the ", ()),
        ("entries", 0.6, 0.9, "The largest plain entries at the budget", (SMALL,)),
    ],
)
def test_the_verdict_is_what_to_use_and_one_warning(analysis, method, error, lora, first, second):
    other = replace(analysis, matrices=analysis.matrices)
    for key, value in {"LoRA": lora, method: error}.items():
        vars(other)["summary"] = summary_with(other, key, error=value)
    said = verdict(other.summary, other.matrices, (), None, ())
    needed = sorted(row.rank_90 for row in other.matrices)
    assert said[0].startswith(first)
    assert (f"of the change of 8 matrices, LoRA {1 - lora:.0%}; " in said[0]) is (method != "LoRA")
    last = f"; each matrix alone needs rank {needed[0]} to {needed[-1]} for 90%."
    assert said[0].endswith(last)
    assert said[1:] == second
    assert verdict(other.summary, other.matrices, (), None, ("One.", "Two."))[1:] == ("One.",)


def test_the_verdict_says_why_nothing_was_compared():
    matrix = np.random.default_rng(0).normal(size=(24, 20))
    first, _, last = analyze(matrix, ranks=[20]).message.partition("; ")
    assert first == "No form was compared, since the budget of every rank is larger than the matrix"
    assert last.startswith("it needs rank ")
    damaged = analyze({"a": matrix}, {"a": matrix * np.nan}, ranks=[2]).message
    assert damaged == "No matrix could be analysed; left out: 1 tensor (not finite)."


def test_printing_an_analysis_wraps_its_verdict(analysis, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = str(analysis).splitlines()[1:]
    assert max(map(len, lines)) <= 40
    assert " ".join(lines) == analysis.verdict


def test_paths_state_dicts_modules_and_arrays_give_the_same(tmp_path):
    modules = [torch.nn.Linear(24, 20, bias=False) for _ in range(2)]
    states = [module.state_dict() for module in modules]
    paths = [tmp_path / f"{index}.safetensors" for index in range(2)]
    for state, path in zip(states, paths, strict=True):
        save_file(state, path)
    arrays = [{"weight": state["weight"].numpy()} for state in states]
    forms = [paths, list(map(str, paths)), modules, states, arrays]
    sides = zip(forms, [*forms[1:], paths], strict=True)
    first, *analyses = (analyze(base[0], tuned[1], **ASKED) for base, tuned in sides)
    for analysis in analyses:
        assert analysis.errors == first.errors
        # Each source has its own name for a type.
        assert [replace(row, dtype="F32") for row in analysis.matrices] == list(first.matrices)
    assert analyses[1].manifest["grid"]["base"] == "Linear"


def test_one_matrix_is_its_own_increment_and_shown_down_the_page(weights):
    base, tuned = (side["layers.0.up_proj.weight"] for side in weights)
    alone, pair = analyze(tuned - base, **ASKED), analyze(base, tuned, **ASKED)
    # Only the base says how large the change is in proportion, and whether it is one.
    size = pytest.approx(float((tuned - base).norm() / base.norm()), rel=1e-5)
    assert [row.relative_norm for row in (*alone.matrices, *pair.matrices)] == [None, size]
    without = replace(
        pair.matrices[0],
        relative_norm=None,
        weights_cosine=None,
        format="",
        changed=None,
        rounding=None,
    )
    assert alone.matrices == (without,)
    assert [picture.quantity for picture in alone.figure_data] == ["entries", "increment"]
    assert alone.config_source == "", "no module has that name"
    for name in ("mp_distance", "tv_p_value", "LoRA, r = 2", "FourierFT, r = 2"):
        assert f"<th>{name}</th>" in alone._repr_html_()


def test_an_overview_has_no_value_where_the_page_has_none():
    base = {f"{i}.weight": torch.zeros(64, 48) for i in range(2)}
    tuned = {"0.weight": normal(64, 48), "1.weight": normal(64, 48) / torch.arange(1, 49) ** 2}
    analysis = analyze(base, tuned, ranks=[2])
    rows = dict(zip(analysis.matrices, analysis.overview().to_dict("records"), strict=True))
    assert [row.follows_law for row in rows] == [True, False]
    columns = {column.value: column for column in (*MATRIX, *CHANGE, *STATISTIC_COLUMNS)}
    for row, shown in rows.items():
        for name in columns.keys() & shown.keys():
            value = shown[name]
            assert value == columns[name].read(row) or (
                math.isnan(value) and columns[name].text(row) == "none"
            )
    alone = analyze(tuned["1.weight"], ranks=[2])._repr_html_()
    assert re.search(r"<th>spikes</th>\s*<td>None</td>", alone)


NAMES = {
    "model.layers.7.self_attn.q_proj.weight": ("query", 7),
    "encoder.layer.3.attention.self.value.weight": ("value", 3),
    "encoder.layer.3.attention.output.dense.weight": ("attention output", 3),
    "decoder.block.2.layer.2.DenseReluDense.wo.weight": ("MLP out", 2),
    "gpt_neox.layers.5.attention.dense.weight": ("attention output", 5),
    "gpt_neox.layers.5.mlp.dense_h_to_4h.weight": ("MLP in", 5),
    "layers.4.mlp.Wi.weight": ("MLP in", 4),
    "transformer.h.0.attn.c_attn.weight": ("query, key, value", 0),
    "transformer.h.0.mlp.c_fc.weight": ("MLP in", 0),
    "lm_head.weight": ("embedding", None),
    "model.layers.2.mlp.experts.down_proj[5]": ("MLP out", 2),
    "model.layers.2.mlp.experts.gate_up_proj[5]": ("MLP in", 2),
    "model.layers.2.block_sparse_moe.gate.weight": ("router", 2),
    "down_blocks.1.resnets.0.conv1.weight": ("convolution", 1),
    "layers.²³.q_proj.weight": ("query", None),
    f"layers.{2**63}.q_proj.weight": ("query", None),
    "encoder.layer.3.output.dense.weight": ("MLP out", 3),
    "encoder.layer.3.intermediate.dense.weight": ("MLP in", 3),
    "gpt_neox.layers.5.mlp.dense_4h_to_h.weight": ("MLP out", 5),
    "transformer.h.0.attn.c_proj.weight": ("attention output", 0),
    "embeddings.word_embeddings.weight": ("embedding", None),
    "down_blocks.1.attentions.0.attn1.to_q.weight": ("query", 1),
    "something": ("other", None),
}


def test_names_tell_kinds_and_layers_and_an_expression_other_kinds():
    assert {name: (kind_of(name), layer_of(name)) for name in NAMES} == NAMES
    groups = (r"\.([HC])\.", "weight|bias", "none")
    assert [kind_of("0.H.1.weight", group) for group in groups] == ["H", "weight", "other"]
    analysis = analyze(
        {"a.fc1": torch.zeros(20, 20)}, {"a.fc1": normal(20, 20)}, ranks=1, group="f."
    )
    assert analysis.matrices[0].kind == "fc"


class Half(Method):
    name, title = "half", "half of every entry"

    def approximate(self, matrix, budget, rng=None):  # noqa: ARG002
        return matrix / 2


def test_a_method_of_the_users_own_stands_beside_the_others(tmp_path):
    delta = np.random.default_rng(0).normal(size=(64, 48))
    runner = Runner(ResultStore(tmp_path / "points"))
    analysis = analyze(delta, ranks=[4], methods=[Half(), "random DCT"], runner=runner)
    by_method = {error.method: error for error in analysis.errors}
    assert list(by_method)[-2:] == ["half", "random DCT"]
    half = by_method["half"]
    assert (half.error, half.iid_error, half.spectral_error) == (pytest.approx(0.25), None, None)
    assert by_method["random DCT"].iid_error == exact_error("random DCT", Budget(64, 48, 4))
    assert analysis.summary.all.errors[-2].iid_error is None
    assert analysis.manifest["grid"]["methods"][-2:] == ["half", "random DCT"]
    assert (
        analyze(delta, ranks=[4], methods=[Half(), "random DCT"], runner=runner).errors
        == analysis.errors
    )
    columns = [name for name in analysis.overview().columns if name.endswith(", r = 4")]
    assert set(columns) == {
        f"{name}, r = 4" for name in ("LoRA", "LoCA", "FourierFT", "entries", "half", "random DCT")
    }


def test_entries_are_shuffled_in_the_middle_layer_of_each_kind_or_in_all():
    names = [f"{layer}.{kind}.weight" for layer in range(10, 15) for kind in ("query", "value")]
    tuned = {name: normal(20, 20, seed=i) for i, name in enumerate([*names, "other.weight"])}
    base = {name: torch.zeros(20, 20) for name in tuned}
    middle_shuffled, all_shuffled = (
        analyze(base, tuned, ranks=[2], **options) for options in ({}, {"shuffle": "all"})
    )
    shuffled = {(row.name, row.method): row for row in all_shuffled.errors}
    assert None not in {row.shuffled_error for row in all_shuffled.errors}
    middle = {"12.query.weight", "12.value.weight", "other.weight"}
    for row in middle_shuffled.errors:
        full = shuffled[row.name, row.method]
        assert row == (full if row.name in middle else replace(full, shuffled_error=None))
    assert middle_shuffled.summary.all.errors[0].shuffled_error is None
    assert middle_shuffled.summary.controlled.matrices == 3
    assert (
        middle_shuffled.to_json()["summary"]["controlled"]["errors"][0]["shuffled_error"]
        is not None
    )

    def shuffled_in(tuned, **options):
        errors = analyze(base, tuned, ranks=[2], **options).errors
        return {row.name for row in errors if row.shuffled_error is not None}

    assert shuffled_in(tuned, group="weight") == {"12.query.weight"}
    # What did not change cannot be shuffled: another matrix of its kind is.
    frozen = tuned | dict.fromkeys(("12.query.weight", "11.query.weight"), torch.zeros(20, 20))
    assert shuffled_in(frozen) == {"13.query.weight", "12.value.weight", "other.weight"}
    with pytest.raises(InvalidArgumentError, match="unknown shuffle"):
        analyze(base, tuned, shuffle="none")


def smooth(axis):
    """Random walks along an axis, each less its mean."""
    walks = np.cumsum(np.random.default_rng(3).standard_normal((96, 80)), axis)
    return torch.from_numpy(walks - walks.mean(axis, keepdims=True))


def test_errors_with_shuffled_axes_say_which_axis_the_dct_suits():
    for axis, name, other in ((0, "outputs", "inputs"), (1, "inputs", "outputs")):
        matrix = smooth(axis)
        settings = replace(SETTINGS, ranks=(2,))
        errors = errors_of(analyse_matrix("w", matrix, settings, has_control=False), 2)
        assert torch.equal(matrix, smooth(axis)), "the matrix is put back"
        row = errors.pop("LoCA")
        assert getattr(row, f"{name}_shuffled_error") - row.error > 0.1
        assert abs(getattr(row, f"{other}_shuffled_error") - row.error) < 0.05
        assert {row.axes_shuffled_error for row in errors.values()} == {None}
    # A constant row times random numbers suits the DCT in any order.
    constant = normal(96, 1) + normal(96, 80, seed=1)
    row = errors_of(analyse_matrix("w", constant, replace(SETTINGS, ranks=(2,))), 2)["LoCA"]
    assert row.axes_shuffled_error == pytest.approx(row.error, abs=0.03)
    assert row.spectral_error - row.error > 0.05


def findings_on(changes, ranks=2):
    """The findings on layers that have changed from zero."""
    tuned = {f"{name}.weight": change for name, change in changes.items()}
    base = {name: torch.zeros_like(change) for name, change in tuned.items()}
    return " ".join(analyze(base, tuned, ranks=ranks).findings)


def test_a_total_of_numbers_and_the_errors_have_one_accounting():
    sides = demo_pair()
    split = analyze(*sides, include="q_proj", allocate=600, **ASKED)
    assert split.errors == analyze(*sides, include="q_proj", accounting="trainable", **ASKED).errors
    assert split.config("LoCA", rank=2).n_frequency == Budget(96, 96, 2, "trainable").numbers
    said = [
        report(analysis).html.count("Budget: ") for analysis in (split, analyze(*sides, **ASKED))
    ]
    assert said == [1, 1]
    assert split.budget in html.unescape(report(split).html)
    assert "Only trainable numbers count" in split.budget
    in_bytes = analyze(*sides, include="q_proj", accounting="bits", allocate="4kB", **ASKED)
    assert in_bytes.budget.endswith(
        "in bits. The 4,000 bytes are those of the tensors that PEFT stores, with their locations."
    )


def test_the_findings_count_the_matrices_that_the_dct_suits():
    plain = {str(i): normal(96, 80, seed=i).double() for i in range(6)}
    assert "3 points more" not in findings_on(plain)
    text = findings_on(plain | {"0": smooth(1), "1": smooth(0)})
    assert re.search(
        r"; in 2 of 6 matrices the DCT retains at least 3 points more, up to \d\d\. ", text
    )


def test_the_findings_count_spectra_instead_of_averaging_them():
    noise, spike = normal(2, 96, 80), torch.outer(normal(96), normal(80, seed=1))
    text = findings_on({"0": noise[0], "1": noise[1] + spike})
    assert re.search(r"in 1 of 2 matrices, and in 1 but for a few larger values that hold 5", text)


def test_coders_are_compared_at_equal_bits():
    w = torch.from_numpy(np.random.default_rng(0).standard_normal((64, 48)))
    analysis = analyze(
        {"fc.weight": torch.zeros(64, 48)}, {"fc.weight": w}, ranks=[2], bits=[0.5, 1]
    )
    assert {row.bits for row in analysis.bits} == {0.5, 1.0}
    rows = {(row.method, row.transform): row for row in analysis.bits if row.bits == 1}
    assert {transform for method, transform in rows if method == "BitDelta"} == {*Transform}
    signs = rows["BitDelta", "none"]
    assert signs.stored_bits == pytest.approx(1 + 16 / w.numel())
    expected = 1 - float(w.abs().mean() ** 2 / w.square().mean())
    assert signs.error == pytest.approx(expected, abs=1e-6)
    assert signs.iid_error == pytest.approx((1 - 2 / math.pi) * (1 - 1 / w.numel()))
    for (method, _), row in rows.items():
        if method == "Delta-CoMe":
            assert row.gain is row.excess_gain is None
            continue
        assert row.gain == rows[method, "none"].error - row.error
        assert row.excess_gain == rows[method, "random"].error - row.error
    assert len(analysis.to_json()["bits"]) == len(analysis.bits) == len(analysis.to_frame("bits"))


# --- spectra: histograms of eigenvalues, and leading subspaces ---


RNG = np.random.default_rng(0)
NOISE = RNG.normal(size=(90, 60))
MATRICES = {
    "noise": NOISE,
    "noise with a spike": NOISE + 3 * np.outer(RNG.normal(size=90), RNG.normal(size=60)),
    "low rank": RNG.normal(size=(90, 3)) @ RNG.normal(size=(3, 60)),
    # The smallest eigenvalue is 10^-5.9: at 10^-6, rounding would decide in which decade it is.
    "decades": np.linalg.qr(RNG.normal(size=(60, 60)))[0] * 10.0 ** -np.linspace(0, 2.95, 60),
    "tiny entries": 1e-200 * NOISE,
}


@pytest.mark.parametrize("name", MATRICES)
def test_every_eigenvalue_is_counted_in_its_cell(name):
    """A bulk is shown beside its law, and other spectra by decades."""
    matrix = MATRICES[name]
    spectrum = analyze(matrix, ranks=[1])
    (row,), (spectrum,) = spectrum.matrices, spectrum.spectra
    singular, (p, q) = np.linalg.svd(matrix, compute_uv=False), matrix.shape
    assert spectrum.is_logarithmic == (name in ("low rank", "decades"))
    if spectrum.is_logarithmic:
        values = 2 * np.log10(np.maximum(singular / singular.max(), 1e-30))
        assert (spectrum.start, spectrum.stop) == (np.floor(values[values > -20].min()), 0)
    else:
        values = (singular / (math.sqrt(p) * row.mp_sigma)) ** 2
        assert (spectrum.start, spectrum.stop) == (
            0,
            pytest.approx(1.3 * (1 + math.sqrt(q / p)) ** 2),
        )
    below = spectrum.below + np.cumsum([0, *spectrum.counts])
    # An eigenvalue within 1e-6 of an edge may be counted on either side of it.
    for edge, count in zip(np.linspace(spectrum.start, spectrum.stop, 41), below, strict=True):
        assert (values < edge - 1e-6).sum() <= count <= (values <= edge + 1e-6).sum()
    assert below[-1] + spectrum.above == len(values)
    beyond = [value for value in values if value > spectrum.stop + 1e-6]
    assert spectrum.leading == pytest.approx(beyond[:12], rel=1e-5)


@pytest.mark.parametrize("k", [1, 5, 40, 100])
def test_leading_subspaces_are_those_of_dense_decompositions(k):
    # A decaying spectrum.
    w = normal(60, 40) @ torch.diag(10 * 0.9 ** torch.arange(40))
    change = 0.8 * normal(60, 40, seed=1)
    (row,) = analyze(w, w + change, ranks=1, subspaces=k).matrices
    k = min(k, 40)
    (ud, _, vd), (u0, _, v0), (ua, _, _) = (
        np.linalg.svd(matrix.double().numpy()) for matrix in (change, w, w + change)
    )
    cosines = np.abs(u0[:, : min(4 * k, 40)].T @ ua[:, :k]).max(axis=0)
    assert np.abs(cosines - 0.5).min() > 1e-3, "no cosine is too close to the threshold"
    assert row.intruders == (cosines < 0.5).sum()
    assert 0 <= row.subspace_error < 1e-4
    # Angles between spans move by the rounding over the gap of the singular values, here about 1%.
    assert row.left_alignment == pytest.approx(((u0[:, :k].T @ ud[:, :k]) ** 2).sum() / k, abs=1e-3)
    assert row.right_alignment == pytest.approx(((v0[:k] @ vd[:k].T) ** 2).sum() / k, abs=1e-3)
    (plain,) = analyze(w, w + change, ranks=1).matrices
    assert (plain.left_alignment, plain.intruders, plain.subspace_error) == (None, None, None)
