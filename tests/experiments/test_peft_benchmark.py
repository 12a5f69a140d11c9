"""PEFT's public comparison beside first steps: what is stored, recomputed apart."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from experiments.peft_benchmark import analysis, predicted, runs
from experiments.peft_benchmark.__main__ import STORED, main
from loca_theory import InvalidArgumentError

RUN = {
    "task": "MetaMathQA",
    "experiment": "e",
    "optimizer": "AdamW",
    "lr": 1e-4,
    "peft_type": "WAVEFT",
    "trained": 28 * 2 * 50,
    "config": json.dumps({"n_frequency": 50, "target_modules": ["q_proj", "v_proj"]}),
}


@pytest.fixture
def small(monkeypatch):
    """The design with small layers."""
    task = runs.DESIGN["tasks"]["MetaMathQA"]
    monkeypatch.setitem(task, "shapes", {"q_proj": [24, 24], "k_proj": [8, 24], "v_proj": [8, 24]})


@pytest.fixture(scope="module")
def table():
    return analysis.joined(runs.stored_runs(STORED), runs.stored_steps(STORED))


def test_the_step_of_a_run_is_over_all_its_layers(small):
    """Orthonormal wavelets times 25: every layer moves by 25·lr·√50."""
    row = runs.step_of(RUN)
    assert row["frobenius"] == pytest.approx(25e-4 * math.sqrt(28 * 2 * 50))
    assert row["reason"] == ""
    assert analysis.expected_error(RUN) == pytest.approx(1 - 100 / (24 * 24 + 8 * 24))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"optimizer": "lora-fa"}, "trained with lora-fa"),
        ({"peft_type": "LN_TUNING"}, "changes no linear layer"),
        ({"peft_type": None}, "no adapter"),
        ({"config": json.dumps({"target_modules": ["norm"]})}, "names none of q_proj"),
        ({"config": json.dumps({"n_frequency": 10**6, "target_modules": ["q_proj"]})}, "does not"),
    ],
)
def test_a_run_without_a_step_has_its_reason(small, changes, reason):
    row = runs.step_of({**RUN, **changes})
    assert reason in row["reason"]
    assert "frobenius" not in row


def test_every_published_run_has_a_step_or_a_reason(table):
    assert len(table) == len(runs.stored_runs(STORED)) == 94
    has_step = table["frobenius"].notna()
    assert (has_step == (table["reason"] == "")).all()
    assert not table[table["peft_type"].isin(["ADALORA", "DELORA"])]["is_fitted"].any()


def test_steps_that_have_a_formula_are_what_it_says(table):
    """LoRA, FourierFT, WaveFT and SHiRA: two draws, so 5%."""
    assert {one["adapter"] for _, one in predicted.candidates().iterrows()} >= {"LoCA, α = 1"}
    known = {
        "lora--llama-3.2-3B-rank32": ("LoRA, r = 32, α = 64", 1e-3, 1e-4),
        "fourierft--llama-3.2-3B-n_frequency-5000": ("FourierFT, 5000 of 300", 1e-2, 1e-4),
        "waveft--llama-3.2-3B-n_frequency-5000": ("WaveFT, 5000 of 25", 1e-5, 1e-4),
        "shira--llama-3.2-3B-lr_0.0003-random_seed_42": ("SHiRA, r = 32", 1e-4, 3e-4),
    }
    candidates = predicted.candidates().set_index(["adapter", "lr"])
    stored = table.set_index("experiment")
    for experiment, (adapter, at, rate) in known.items():
        for name in ("frobenius", "decrease"):
            expected = candidates.loc[(adapter, at), name] * rate / at
            assert stored.loc[experiment, name] == pytest.approx(expected, rel=0.05)


def test_the_models_by_hand(table):
    """Least squares by the normal equations, one type left out in a loop of its own."""
    own = table[table["is_fitted"] & (table["task"] == "MetaMathQA")]
    x = np.column_stack([np.ones(len(own)), np.log10(own["trained"]), np.log10(own["decrease"])])
    y, kinds = own["train_loss"].to_numpy(), own["peft_type"].to_numpy()
    outside = np.empty(len(y))
    for i, kind in enumerate(kinds):
        others = kinds != kind
        outside[i] = x[i] @ np.linalg.solve(x[others].T @ x[others], x[others].T @ y[others])
    rows = analysis.models(table, "MetaMathQA", "train_loss").set_index("model")
    row = rows.loc["numbers and decrease"]
    assert row["error, type left out"] == pytest.approx(np.sqrt(np.mean((y - outside) ** 2)))
    inside = x @ np.linalg.solve(x.T @ x, x.T @ y)
    assert row["R²"] == pytest.approx(1 - np.var(y - inside) / np.var(y))


def test_correlations_by_ranks(table):
    own = table[table["is_fitted"] & (table["task"] == "image-gen")]
    ranks = own[["frobenius", "train_loss"]].rank()
    found = analysis.correlations(table, "image-gen").set_index(["runs", "outcome", "predictor"])
    row = found.loc[("all", "train_loss", "first step, Frobenius norm")]
    assert row["spearman"] == pytest.approx(ranks["frobenius"].corr(ranks["train_loss"]))
    assert row["low"] <= row["spearman"] <= row["high"]


def test_the_command_prints_every_table():
    done = CliRunner().invoke(main, [])
    assert done.exit_code == 0
    for title in ("left out of the fits", "linear models", "hypotheses", "predictions"):
        assert title in done.output


def test_a_table_of_something_else_is_refused(tmp_path):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InvalidArgumentError, match="has no column task"):
        runs.store_runs(tmp_path / "other.csv", tmp_path)
    pd.DataFrame([RUN | {"train_loss": 1.0}]).to_csv(tmp_path / "runs.csv", index=False)
    runs.store_runs(tmp_path / "runs.csv", tmp_path / "out")
    assert list(runs.stored_runs(tmp_path / "out")["experiment"]) == ["e"]
    assert runs.stored_steps(tmp_path / "out").empty
