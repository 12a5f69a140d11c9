"""The analysis of one matrix and of a pair, against dense definitions."""

import copy
import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from loca_theory.checkpoints import (
    COLUMNS,
    MatrixAnalysis,
    Selection,
    Settings,
    adapter_config,
    analyse_matrix,
    analyse_pair,
    open_pair,
    summarise,
    verdict,
)
from loca_theory.checkpoints.matrix import CURVES, STATISTICS, _shuffled
from loca_theory.checkpoints.names import kind_of, layer_of, module_of
from loca_theory.errors import ResourceError
from loca_theory.expressivity import Accounting, Budget, approximate, exact_error
from loca_theory.increments import PrintedTest
from loca_theory.sweeps import ResultStore, Runner

SETTINGS = Settings((2, 4), printed=PrintedTest(copies=10, samples=5000))


@pytest.fixture(scope="module")
def report(pair_files):
    return analyse_pair(open_pair(*pair_files), SETTINGS)


def errors_of(analysis, r):
    return {error["curve"]: error for error in analysis.errors if error["r"] == r}


@pytest.mark.parametrize("shape", [(40, 40), (30, 48), (49, 24)])
def test_errors_are_those_of_the_approximations(shape):
    source = torch.Generator().manual_seed(1)
    w = torch.randn(*shape, generator=source, dtype=torch.float64)
    w += 3 * torch.outer(
        torch.randn(shape[0], generator=source), torch.randn(shape[1], generator=source)
    )
    found = errors_of(analyse_matrix("w", w, SETTINGS), 4)
    budget = Budget(*shape, 4)
    for curve in ("R", "F2", "F3", "D", "S"):
        rest = w - approximate(w, curve, budget)
        expected = float(rest.square().sum() / w.square().sum())
        assert found[curve]["error"] == pytest.approx(expected, rel=1e-9)
    for curve in ("F1", "FourierFT"):
        draws = [
            float((w - approximate(w, curve, budget, np.random.default_rng(seed))).square().sum())
            for seed in range(200)
        ]
        mean = np.mean(draws) / float(w.square().sum())
        error = np.std(draws, ddof=1) / np.sqrt(200) / float(w.square().sum())
        assert abs(found[curve]["error"] - mean) < 4.5 * error


def test_independent_entries_have_their_expected_errors_and_shuffling_changes_nothing():
    w = torch.randn(200, 200, generator=torch.Generator().manual_seed(0))
    analysis = analyse_matrix("w", w, replace(SETTINGS, ranks=(8,)))
    for curve, error in errors_of(analysis, 8).items():
        assert error["error"] == pytest.approx(error["iid_error"], abs=0.01)
        assert error["shuffled_error"] == pytest.approx(error["iid_error"], abs=0.01)
        if curve != "R":
            assert error["iid_error"] == exact_error(curve, Budget(200, 200, 8))
    assert analysis.statistics["tv_p_value"] > 0.05
    assert analysis.statistics["outlier_mass"] < 0.05
    assert analysis.statistics["mp_sigma"] == pytest.approx(1.0, abs=0.02)


class _OnCuda(torch.Tensor):
    """A tensor of the CPU that says it lies on a GPU."""

    device = property(lambda self: torch.device("cuda"))


def test_the_shuffled_order_does_not_depend_on_the_device():
    w = torch.arange(30.0).view(5, 6)
    orders = [
        _shuffled(tensor, np.random.default_rng(7)).tolist()
        for tensor in (w.clone(), w.clone().as_subclass(_OnCuda), w.T.clone().T)
    ]
    assert orders[0] == orders[1] == orders[2] != w.tolist()


def test_a_result_of_a_gpu_is_that_of_the_cpu(accelerator):
    w = torch.randn(40, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    here, there = (
        analyse_matrix("w", w, replace(SETTINGS, device=str(device)))
        for device in ("cpu", accelerator)
    )
    # Orthogonal maps and eigenvalues in float64: a few hundred roundings of the energy.
    for mine, other in zip(here.errors, there.errors, strict=True):
        assert other == {key: pytest.approx(value, abs=1e-12) if isinstance(value, float) else value
                         for key, value in mine.items()}  # fmt: skip
    assert there.statistics == pytest.approx(here.statistics, rel=1e-9)
    assert (there.counts.counts == here.counts.counts).all()


@pytest.mark.parametrize("consume", [False, True])
def test_the_increment_is_left_as_it_is_wherever_it_lies(consume, device):
    w = torch.randn(12, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    before = w.clone()
    analyse_matrix("w", w, replace(SETTINGS, device=str(device)), consume=consume)
    assert torch.equal(w, before) == (not consume or device.type != "cpu")


def test_a_device_without_memory_says_what_to_leave_out(monkeypatch):
    def full(*_):
        raise torch.cuda.OutOfMemoryError("Tried to allocate 3.00 GiB.")  # noqa: EM101

    monkeypatch.setattr("loca_theory.checkpoints.matrix.squared_singular_values", full)
    message = r"^the analysis of w \(4x5\) does not fit into the memory of cpu: it needs 3.00 GiB "
    message += 'more; leave it out with max_size=19, or use device="cpu"$'
    with pytest.raises(ResourceError, match=message):
        analyse_matrix("w", torch.arange(20.0).view(4, 5), SETTINGS)


def test_shuffling_tells_dependence_from_distribution():
    source = torch.Generator().manual_seed(0)
    u, v = (torch.randn(200, 3, generator=source) for _ in range(2))
    low_rank = u @ v.T / 3**0.5 + 0.3 * torch.randn(200, 200, generator=source)
    heavy = torch.from_numpy(np.random.default_rng(0).standard_t(2.5, (200, 200))).float()
    dependent = errors_of(analyse_matrix("a", low_rank, replace(SETTINGS, ranks=(8,))), 8)
    assert dependent["R"]["error"] < 0.2
    assert dependent["R"]["shuffled_error"] > 0.75
    marginal = errors_of(analyse_matrix("b", heavy, replace(SETTINGS, ranks=(8,))), 8)
    assert marginal["S"]["error"] < 0.9 * marginal["S"]["iid_error"]
    assert marginal["S"]["shuffled_error"] == pytest.approx(marginal["S"]["error"], abs=1e-6)


def test_rounding_to_few_bits_shows_as_zeros():
    source = torch.Generator().manual_seed(0)
    base = torch.randn(64, 64, generator=source)
    tuned = base + 1e-3 * torch.randn(64, 64, generator=source)
    increment = tuned.bfloat16().float() - base.bfloat16().float()
    found = analyse_matrix("w", increment, SETTINGS).statistics
    assert found["zero_fraction"] == float((increment == 0).float().mean())
    assert found["zero_fraction"] > 0.5


def test_an_analysis_survives_being_stored():
    w = torch.randn(40, 30, generator=torch.Generator().manual_seed(0))
    analysis = analyse_matrix("w", w, SETTINGS)
    back = MatrixAnalysis.from_json(json.loads(json.dumps(analysis.to_json())))
    assert back.statistics == analysis.statistics
    assert back.errors == analysis.errors
    assert back.bulk == analysis.bulk
    np.testing.assert_array_equal(back.eigenvalues, analysis.eigenvalues)
    np.testing.assert_array_equal(back.counts.counts, analysis.counts.counts)


def test_every_matrix_of_a_real_pair_has_a_row(report, weights):
    base, tuned = weights
    expected = {
        name for name, value in tuned.items()
        if value.ndim == 2 and not torch.equal(value, base[name])
    }  # fmt: skip
    assert {row["name"] for row in report.rows} == expected
    assert report.is_complete
    for row in report.rows:
        assert set(COLUMNS) | {"errors"} == set(row)
        assert [(e["r"], e["curve"]) for e in row["errors"]] == [
            (r, c) for r in (2, 4) for c in CURVES
        ]
        increment = tuned[row["name"]] - base[row["name"]]
        assert row["energy"] == pytest.approx(float(increment.double().square().sum()), rel=1e-5)
        assert row["sigma"] == pytest.approx(float(increment.double().std(correction=0)), rel=1e-5)


def test_results_do_not_depend_on_what_else_is_analysed(pair_files, report):
    alone = analyse_pair(open_pair(*pair_files, Selection("linear1")), SETTINGS)
    both = {row["name"]: row for row in report.rows}
    assert alone.rows
    assert all(row == both[row["name"]] for row in alone.rows)


def test_a_stored_analysis_is_used_again(pair_files, tmp_path, report, monkeypatch):
    store = ResultStore(tmp_path / "points", "v")
    some = Selection("linear1")
    first = analyse_pair(open_pair(*pair_files, some), SETTINGS, Runner(store))
    monkeypatch.setattr("loca_theory.checkpoints.report.analyse_matrix", None)
    again = analyse_pair(open_pair(*pair_files, some), SETTINGS, Runner(store))
    assert again.rows == first.rows
    assert first.rows == [row for row in report.rows if "linear1" in row["name"]]


def test_damage_costs_the_matrix_and_is_marked(tmp_path, weights):
    base, tuned = weights
    changed = {name: value.clone() for name, value in tuned.items()}
    changed["head.weight"][3, 5] = float("nan")
    changed["embed.weight"] = base["embed.weight"]
    changed["encoder.layers.0.linear1.weight"] = base["encoder.layers.0.linear1.weight"] + 1.0
    save_file(base, tmp_path / "a.safetensors")
    save_file(changed, tmp_path / "b.safetensors")
    found = analyse_pair(
        open_pair(tmp_path / "a.safetensors", tmp_path / "b.safetensors"), SETTINGS
    )
    assert not found.is_complete
    reasons = {one.name: one.reason for one in found.skipped}
    assert reasons["head.weight"] == "not finite: 1 of 3072 entries are NaN or infinite"
    assert reasons["embed.weight"] == "unchanged: every entry of the increment is 0"
    (row,) = [row for row in found.rows if row["name"] == "head.weight"]
    assert row["sigma"] is None
    assert row["note"] == reasons["head.weight"]
    # The rest is done, and summarised without it.
    assert summarise(found.rows, (2, 4))["all"]["matrices"] == len(found.rows) - 1


@pytest.mark.parametrize("accounting", list(Accounting))
def test_ranks_whose_budget_does_not_fit_are_left_out_of_that_matrix(accounting):
    w = torch.randn(32, 16, generator=torch.Generator().manual_seed(0))
    found = analyse_matrix("w", w, replace(SETTINGS, ranks=(1, 16, 40), accounting=accounting))
    # R's own numbers are counted as the paper does, and 16·(32 + 16) are more than 512.
    assert {error["r"] for error in found.errors} == {1}
    assert "no errors at r =" in found.notes[-1]


def test_the_increment_is_left_as_it_was():
    w = torch.randn(30, 40, generator=torch.Generator().manual_seed(0))
    before = w.clone()
    analyse_matrix("w", w, SETTINGS)
    assert torch.equal(w, before)


WITH_UNITS = ("sigma", "mean", "mp_sigma")
# The noise of the printed test has a size of its own.
WITHOUT = set(STATISTICS) - {*WITH_UNITS, "energy", "tv_p_value_as_printed"}


def stored_pair(folder, base, tuned):
    for name, tensors in (("a", base), ("b", tuned)):
        save_file(tensors, folder / f"{name}.safetensors")
    return open_pair(folder / "a.safetensors", folder / "b.safetensors")


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [
        (torch.float32, 1e30),
        (torch.float32, 1e-40),
        (torch.float64, 1e300),
        (torch.float64, 1e-300),
    ],
    ids=["1e30", "1e-40", "1e300", "1e-300"],
)
def test_finite_increments_of_any_size_are_analysed(tmp_path, dtype, scale):
    """As a matrix of ordinary size with the very digits that are stored."""
    source = torch.Generator().manual_seed(0)
    w = (torch.randn(40, 32, generator=source, dtype=torch.float64) * scale).to(dtype)
    pair = stored_pair(tmp_path, {"w.weight": torch.zeros_like(w)}, {"w.weight": w})
    found = analyse_pair(pair, SETTINGS)
    (row,) = found.rows
    assert found.is_complete
    power = int(np.frexp(float(w.double().abs().max()))[1])
    plain = analyse_matrix(
        "w.weight", torch.from_numpy(np.ldexp(w.double().numpy(), -power)), SETTINGS
    )
    # Sums of 1280 squares, in the type of the entries.
    close = partial(pytest.approx, rel=1280 * torch.finfo(dtype).eps, abs=1e-9)
    for name in WITHOUT:
        assert row[name] == close(plain.statistics[name]), name
    for name in WITH_UNITS:
        assert row[name] == close(plain.statistics[name] * 2.0**power)
    for mine, other in zip(row["errors"], plain.errors, strict=True):
        assert mine["error"] == close(other["error"])
        assert mine["shuffled_error"] == close(other["shuffled_error"])
    total = summarise(found.rows, (2, 4))["all"]
    (mean,) = [e["error"] for e in total["errors"] if (e["r"], e["curve"]) == (2, "D")]
    assert mean == pytest.approx(row["errors"][CURVES.index("D")]["error"])
    if dtype == torch.float32:
        assert row["energy"] == pytest.approx(float(w.double().square().sum()), rel=1e-4)
        assert total["energy"] == row["energy"]
    else:
        assert row["energy"] is None
        assert total["energy"] is None
        assert "energy does not fit float64" in row["note"]
    json.dumps([found.rows, total], allow_nan=False)


@pytest.mark.parametrize(
    ("base", "tuned"),
    [
        pytest.param(1e30, 1.0, id="base"),
        pytest.param(1.0, 1e30, id="tuned"),
        pytest.param(3e38, -3e38, id="both, further apart than float32 reaches"),
    ],
)
def test_one_huge_side_is_analysed(tmp_path, base, tuned):
    source = torch.Generator().manual_seed(0)
    a, b = (torch.rand(20, 24, generator=source) * scale for scale in (base, tuned))
    found = analyse_pair(stored_pair(tmp_path, {"w": a}, {"w": b}), SETTINGS)
    (row,) = found.rows
    change = b.double() - a.double()
    scale = float(change.abs().max())
    assert row["sigma"] == pytest.approx(
        scale * float((change / scale).std(correction=0)), rel=1e-5
    )
    assert found.is_complete


NO_BULK = {
    "nearly constant": lambda: torch.full((20, 24), 0.1).index_put(
        (torch.tensor(3), torch.tensor(4)), torch.tensor(0.10000001)
    ),
    "rank 1": lambda: torch.outer(torch.arange(1.0, 21), torch.arange(1.0, 25)),
    "one row": lambda: torch.eye(20)[:, :1] @ torch.arange(24.0)[None],
}


@pytest.mark.parametrize("make", NO_BULK.values(), ids=NO_BULK.keys())
def test_a_spectrum_without_a_bulk_has_no_fit_and_says_so(tmp_path, make):
    w = make()
    found = analyse_pair(stored_pair(tmp_path, {"w": torch.zeros_like(w)}, {"w": w}), SETTINGS)
    (row,) = found.rows
    assert [row[f"mp_{name}"] for name in ("sigma", "distance", "wasserstein")] == [None] * 3
    assert (row["spikes"], row["outlier_mass"]) == (1, 1.0)
    assert row["tail_exponent"] is None
    assert "the spectrum has no bulk: 1 eigenvalues, and rounding" in row["note"]
    summary = summarise(found.rows, (2, 4))
    assert summary["all"]["median_mp_distance"] is None
    assert summary["all"]["follow_mp"] == 0
    assert "In 0 of 1 the bulk of the spectrum is close" in verdict(summary, (2, 4), 0.001)
    json.dumps([found.rows, summary], allow_nan=False)


def test_totals_weigh_by_energy(report):
    total = summarise(report.rows, (2, 4))["all"]
    (mean,) = [e["error"] for e in total["errors"] if (e["r"], e["curve"]) == (2, "R")]
    left = sum(
        row["energy"] * e["error"]
        for row in report.rows for e in row["errors"] if (e["r"], e["curve"]) == (2, "R")
    )  # fmt: skip
    assert mean == pytest.approx(left / sum(row["energy"] for row in report.rows))
    best = [e["best_on"] for e in total["errors"] if e["r"] == 2]
    assert sum(best) == len(report.rows)


@pytest.mark.parametrize(
    ("best", "name", "config", "size"),
    [
        ("R", "LoRA", "LoraConfig", {"r": 2, "lora_alpha": 4}),
        # The smallest of the matrices that are no embeddings has 48 rows and 48 columns.
        ("D", "LoCA (best DCT coefficients)", "LoCAConfig", {"n_frequency": 96}),
        ("FourierFT", "FourierFT", "FourierFTConfig", {"n_frequency": 192}),
    ],
)
def test_the_verdict_names_the_winner_and_the_configuration_is_its(
    report, best, name, config, size
):
    summary = copy.deepcopy(summarise(report.rows, (2, 4)))
    for error in summary["all"]["errors"]:
        if (error["curve"], error["r"]) == (best, 2):
            error["error"] = 0.001
    text = verdict(summary, (2, 4), 0.001)
    assert f"of {len(report.rows)} increments are within" in text
    assert f"At the budget of r = 2 {name} keeps 100% of it" in text
    space = {}
    exec(adapter_config(report.rows, summary, (2, 4)), space)
    assert type(space["config"]).__name__ == config
    assert {field: getattr(space["config"], field) for field in size} == size
    assert {"linear1", "linear2", "out_proj"} <= space["config"].target_modules


def test_a_verdict_on_nothing():
    assert verdict(summarise([], (2,)), (2,), 0.001) == "No matrix could be analysed."


NAMES = {
    "model.layers.7.self_attn.q_proj.weight": ("query", 7, "q_proj"),
    "model.layers.11.mlp.down_proj.weight": ("MLP out", 11, "down_proj"),
    "encoder.layer.3.attention.self.value.weight": ("value", 3, "value"),
    "encoder.layer.3.attention.output.dense.weight": ("attention output", 3, "output.dense"),
    "encoder.layer.3.output.dense.weight": ("MLP out", 3, "output.dense"),
    "encoder.layer.3.intermediate.dense.weight": ("MLP in", 3, "intermediate.dense"),
    "decoder.block.2.layer.2.DenseReluDense.wo.weight": ("MLP out", 2, "wo"),
    "gpt_neox.layers.5.attention.dense.weight": ("attention output", 5, "attention.dense"),
    "gpt_neox.layers.5.mlp.dense_h_to_4h.weight": ("MLP in", 5, "dense_h_to_4h"),
    "gpt_neox.layers.5.mlp.dense_4h_to_h.weight": ("MLP out", 5, "dense_4h_to_h"),
    "layers.4.mlp.Wi.weight": ("MLP in", 4, "Wi"),
    "transformer.h.0.attn.c_attn.weight": ("query, key, value", 0, "c_attn"),
    "transformer.h.0.attn.c_proj.weight": ("attention output", 0, "c_proj"),
    "transformer.h.0.mlp.c_fc.weight": ("MLP in", 0, "c_fc"),
    "embeddings.word_embeddings.weight": ("embedding", None, "word_embeddings"),
    "lm_head.weight": ("embedding", None, "lm_head"),
    "something": ("other", None, "something"),
}


@pytest.mark.parametrize(("name", "expected"), NAMES.items(), ids=NAMES.keys())
def test_names(name, expected):
    assert (kind_of(name), layer_of(name), module_of(name)) == expected
