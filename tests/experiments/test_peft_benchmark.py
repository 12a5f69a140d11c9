"""PEFT's public comparison beside first steps: what is stored, recomputed apart."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from experiments.peft_benchmark import analysis, page, predicted, runs
from experiments.peft_benchmark.__main__ import STORED, main
from loca_theory.sweeps.tables import store_rows

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
    """Runs of ten types with made-up steps and losses, for both tasks."""
    rng, rows = np.random.default_rng(0), []
    for i in range(80):
        step, numbers = 10 ** rng.uniform(-4, 0), 10 ** rng.uniform(4, 8)
        task = "MetaMathQA" if i < 40 else "image-gen"
        loss = 1.5 - 0.1 * math.log10(numbers) - 0.05 * math.log10(step) + 0.02 * rng.normal()
        run = {"task": task, "experiment": f"{i}", "peft_type": f"TYPE{i % 10}"}
        sizes = {"trained": numbers, "file_size": 4 * numbers, "lr": 10 ** rng.uniform(-5, -2)}
        outcomes = {"train_loss": loss, "accuracy": -loss, "dino": -loss}
        steps = {"frobenius": step, "spectral": step / 10, "decrease": step * 30, "reason": ""}
        rows.append({**RUN, **run, **sizes, **outcomes, **steps})
    frame = pd.DataFrame(rows)
    steps = ["experiment", "frobenius", "spectral", "decrease", "reason"]
    return analysis.joined(frame.drop(columns=steps[1:]), frame[steps])


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


def test_what_is_stored_is_published_runs_with_a_step_or_a_reason():
    published, steps = runs.stored_runs(STORED), runs.stored_steps(STORED)
    assert len(published) == 94
    assert sorted(steps["experiment"]) == sorted(published["experiment"])
    assert (steps["frobenius"].notna() == (steps["reason"] == "")).all()


def test_a_stored_step_is_what_its_formula_says():
    """FourierFT, two draws of both layers: 5%."""
    candidates = predicted.candidates().set_index(["adapter", "lr"])
    step = runs.stored_steps(STORED).set_index("experiment")
    for name in ("frobenius", "decrease"):
        expected = candidates.loc[("FourierFT, 5000 of 300", 1e-2), name] / 100
        stored = step.loc["fourierft--llama-3.2-3B-n_frequency-5000", name]
        assert stored == pytest.approx(expected, rel=0.05)


def test_the_hypotheses_hold_where_they_were_put_in(table):
    hypotheses = analysis.hypotheses(table).set_index("hypothesis")
    assert hypotheses["holds"].all()
    shuffled = table.assign(train_loss=np.random.default_rng(1).permutation(table["train_loss"]))
    assert not analysis.hypotheses(shuffled)["holds"].any()


def test_a_prediction_is_the_model_with_its_interval(table):
    predictions = analysis.predictions(table, predicted.candidates())
    runs = table[table["task"] == "MetaMathQA"]
    x = np.column_stack([np.ones(len(runs)), np.log10(runs["trained"]), np.log10(runs["decrease"])])
    model = np.linalg.lstsq(x, runs["train_loss"], rcond=None)[0]
    row = predictions.iloc[0]
    expected = model @ [1, math.log10(row["trained"]), math.log10(row["decrease"])]
    assert row["train_loss"] == pytest.approx(expected)
    assert row["low"] < row["train_loss"] < row["high"]
    assert row["high"] - row["low"] < 0.2


def test_the_models_by_hand(table):
    """Least squares by the normal equations, one type left out in a loop of its own."""
    runs = table[table["is_fitted"] & (table["task"] == "MetaMathQA")]
    x = np.column_stack([np.ones(len(runs)), np.log10(runs["trained"]), np.log10(runs["decrease"])])
    y, kinds = runs["train_loss"].to_numpy(), runs["peft_type"].to_numpy()
    outside = np.empty(len(y))
    for i, kind in enumerate(kinds):
        a, b = x[kinds != kind], y[kinds != kind]
        outside[i] = x[i] @ np.linalg.solve(a.T @ a, a.T @ b)
    rows = analysis.models(table, "MetaMathQA", "train_loss").set_index("model")
    row = rows.loc["numbers and decrease"]
    assert row["error, type left out"] == pytest.approx(np.sqrt(np.mean((y - outside) ** 2)))
    inside = x @ np.linalg.solve(x.T @ x, x.T @ y)
    assert row["R²"] == pytest.approx(1 - np.var(y - inside) / np.var(y))


def test_correlations_by_ranks(table, monkeypatch):
    monkeypatch.setattr(analysis, "DRAWS", 40)
    runs = table[table["is_fitted"] & (table["task"] == "image-gen")]
    ranks = runs[["frobenius", "train_loss"]].rank()
    correlations = analysis.correlations(table, "image-gen")
    row = correlations.set_index(["runs", "outcome", "predictor"]).loc[
        ("all", "train_loss", "first step, Frobenius norm")
    ]
    assert row["spearman"] == pytest.approx(ranks["frobenius"].corr(ranks["train_loss"]))
    assert row["low"] <= row["spearman"] <= row["high"]


def test_the_command_prints_the_tables_once_all_steps_are_there(table, monkeypatch, tmp_path):
    steps = runs.stored_steps(STORED)
    monkeypatch.setattr(runs, "stored_steps", lambda _: steps.head(93))
    done = CliRunner().invoke(main, [])
    assert "93 of 94 runs have a first step, or a reason why not" in done.output
    monkeypatch.setattr(analysis, "DRAWS", 20)
    monkeypatch.setattr(runs, "stored_runs", lambda _: table)
    monkeypatch.setattr(runs, "stored_steps", lambda _: table)
    monkeypatch.setattr(analysis, "joined", lambda _runs, _steps: table)
    done = CliRunner().invoke(main, ["--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert page.printed(page.stored(tmp_path)) in done.output
    for title in ("final training loss and", "on image generation", "90% interval"):
        assert title in done.output


def test_a_step_that_is_missing_is_computed_once(tmp_path, monkeypatch):
    store_rows([RUN], {}, tmp_path, runs.RUNS)
    computed = []

    def step_of(run):
        computed.append(run["experiment"])
        return {"experiment": run["experiment"], "reason": "none"}

    monkeypatch.setattr(runs, "step_of", step_of)
    for _ in range(2):
        assert not CliRunner().invoke(main, ["--steps", "--out", str(tmp_path)]).exit_code
    assert computed == list(runs.stored_steps(tmp_path)["experiment"]) == ["e"]
