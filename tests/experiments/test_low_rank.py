"""Full fine-tunes with any optimiser: the rank of a step, and the measurements of increments."""

import importlib
import math
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from scipy import fft, stats
from torch import nn

from experiments.finetuning.low_rank.fine_tunes import (
    Case,
    Training,
    TrainingGrid,
    compute,
    evaluate,
    point,
    train,
)
from experiments.finetuning.low_rank.spectra import KINDS, measure, measured_layers
from experiments.finetuning.low_rank.tables import factor_rows
from experiments.finetuning.settings import settings
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import Budget, exact_error

P, Q, TOKENS = 20, 24, 2


class Classifier(nn.Module):
    """Two linear layers with a nonlinearity between; the mean over tokens is classified."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.query, self.head = nn.Linear(Q, P).double(), nn.Linear(P, 3).double()

    def forward(self, inputs, labels):
        logits = self.head(torch.tanh(self.query(inputs)).mean(1))
        return SimpleNamespace(loss=nn.functional.cross_entropy(logits, labels), logits=logits)


def examples(count, seed=0):
    source = torch.Generator().manual_seed(seed)
    return {
        "inputs": torch.randn(count, TOKENS, Q, generator=source, dtype=torch.float64),
        "labels": torch.randint(3, (count,), generator=source),
    }


def one_step(optimizer, batch, **options):
    """ΔW of the first layer after one step, and its gradient before the step."""
    model, pool = Classifier(), examples(batch)
    before = model.query.weight.detach().clone()
    model(**pool).loss.backward()
    gradient = model.query.weight.grad.clone()
    training = Training(optimizer, 1e-3, 1, batch)
    assert train(model, pool, training, np.random.default_rng(0), **options)
    return (model.query.weight.detach() - before).numpy(), gradient.numpy()


@pytest.mark.parametrize("batch", [1, 3, 5])
def test_a_step_of_sgd_has_as_many_ranks_as_the_batch_has_tokens(batch):
    increment, gradient = one_step("SGD", batch)
    np.testing.assert_allclose(increment, -1e-3 * gradient, rtol=1e-10, atol=1e-16)
    # W − ηG is rounded to W's precision, 1e-16, so that smaller singular values are rounding.
    assert np.linalg.matrix_rank(increment, tol=1e-14) == batch * TOKENS


@pytest.mark.parametrize("batch", [1, 3, 5])
def test_a_step_of_adam_is_a_matrix_of_signs_of_higher_rank(batch):
    increment, gradient = one_step("Adam", batch)
    tokens = batch * TOKENS
    # Adam's ε = 1e-8 is added to the modulus of the gradient.
    expected = -1e-3 * gradient / (np.abs(gradient) + 1e-8)
    np.testing.assert_allclose(increment, expected, rtol=1e-9, atol=1e-15)
    signs = np.sign(gradient)
    assert np.linalg.matrix_rank(signs) > tokens
    energies = np.linalg.svd(signs, compute_uv=False) ** 2
    bound = np.abs(gradient).mean() ** 2 / np.square(gradient).mean()
    assert bound <= energies[:tokens].sum() / energies.sum() < 1


def test_decay_shrinks_the_weights():
    plain, decayed = one_step("Adam", 3)[0], one_step("AdamW", 3)[0]
    weights = Classifier().query.weight.detach().numpy()
    np.testing.assert_allclose(decayed - plain, -1e-3 * 0.1 * weights, rtol=1e-9, atol=1e-15)


def test_large_gradients_are_scaled_down():
    model, pool = Classifier(), examples(4)
    before = nn.utils.parameters_to_vector(model.parameters()).detach()
    train(model, pool, Training("SGD", 1e-2, 1, 4), np.random.default_rng(0), most_gradient=1e-3)
    change = nn.utils.parameters_to_vector(model.parameters()).detach() - before
    # clip_grad_norm_ adds 1e-6 to the norm that it divides by.
    assert float(change.norm()) == pytest.approx(1e-5, rel=1e-4)


def test_the_rate_rises_and_falls():
    """With a constant gradient of 1, momentum makes step k as long as 1 + 0.9 + … + 0.9^k."""

    class Slope(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))

        def forward(self, labels):
            return SimpleNamespace(loss=self.weight.sum() + 0 * labels.sum())

    model, pool = Slope(), {"labels": torch.zeros(4)}
    train(model, pool, Training("SGD", 1.0, 6, 2), np.random.default_rng(0), warmup=1 / 3)
    rates = [1 / 2, 1, 1, 3 / 4, 2 / 4, 1 / 4]
    lengths = np.cumsum(0.9 ** np.arange(6))
    assert float(model.weight.detach()) == pytest.approx(-np.dot(rates, lengths), rel=1e-12)


def test_a_loss_that_is_not_finite_ends_the_training():
    model, pool = Classifier(), examples(4)
    pool["inputs"][0, 0, 0] = math.nan
    assert not train(model, pool, Training("SGD", 1e-2, 5, 4), np.random.default_rng(0))
    assert torch.isfinite(model.query.weight).all()


def test_a_seed_has_one_training_set():
    pool = {"labels": torch.arange(40)}

    def passes(batch, batches):
        training = Training("SGD", 1e-2, 1, batch, 12)
        found = training.batches(pool, np.random.default_rng(3))
        return [next(found)["labels"].tolist() for _ in range(batches)]

    first = passes(4, 6)
    seen = sorted(chain(*first[:3]))
    assert len(set(seen)) == 12
    assert sorted(chain(*first[3:])) == seen == sorted(chain(*passes(6, 2)))
    with pytest.raises(InvalidArgumentError, match="batch=13 exceeds the 12 training examples"):
        passes(13, 1)


def test_loss_and_accuracy_are_means_over_examples():
    model, test = Classifier(), examples(450)
    whole = model(**test)
    loss, accuracy = evaluate(model, test)
    assert loss == pytest.approx(float(whole.loss.detach()), rel=1e-12)
    assert accuracy == (whole.logits.argmax(1) == test["labels"]).sum() / 450
    assert 0 < accuracy < 1


def test_the_kinds_of_layers():
    kinds = {
        "blocks.0.query.weight": "query",
        "blocks.1.output.weight": "attention output",
        "blocks.1.expand.weight": "MLP in",
        "blocks.1.contract.weight": "MLP out",
        "encoder.encoder.layer.3.attention.output.dense.weight": "attention output",
        "encoder.encoder.layer.3.output.dense.weight": "MLP out",
    }
    others = ("encoder.embeddings.word_embeddings.weight", "embed.weight", "head.weight")
    state = {name: torch.zeros(2, 2) for name in (*kinds, *others)}
    state |= {"blocks.0.query.bias": torch.zeros(2), "blocks.0.value.weight": torch.zeros(2)}
    assert measured_layers(state) == kinds


def matrix(p=24, q=40, seed=0):
    source = torch.Generator().manual_seed(seed)
    return torch.randn(p, 3, generator=source) @ torch.randn(3, q, generator=source) + 0.5 * (
        torch.randn(p, q, generator=source)
    )


def test_what_is_measured_of_a_matrix():
    """Each number by its definition."""
    p, q = 24, 40
    before = {"blocks.0.expand.weight": matrix(seed=1)}
    zero = {"blocks.0.query.weight": torch.zeros(p, q)}  # unchanged matrices are left out
    (found,) = measure({"blocks.0.expand.weight": matrix(), **zero}, {**before, **zero})
    increment = matrix().double().numpy()
    energies = np.linalg.svd(increment, compute_uv=False) ** 2
    fractions = np.cumsum(energies) / energies.sum()
    assert (found["kind"], found["layer"], found["p"], found["q"]) == ("MLP in", 0, p, q)
    for name, energy in (("rank_50", 0.5), ("rank_90", 0.9), ("rank_99", 0.99)):
        assert found[name] == 1 + int((fractions < energy).sum())
    norm = np.linalg.norm(increment) / np.linalg.norm(before["blocks.0.expand.weight"])
    assert found["relative_norm"] == pytest.approx(norm, rel=1e-5)
    coefficients = np.sort(np.square(fft.dctn(increment, norm="ortho")), axis=None)[::-1]
    assert [row["r"] for row in found["ranks"]] == [1, 2, 3, 6]
    for row in found["ranks"]:
        r = row["r"]
        count = (p + q) * r // 2  # a coefficient costs as much as its index
        f = count / (p * q)
        z = stats.norm.isf(f / 2)
        retained = coefficients[:count].sum() / coefficients.sum()
        assert row["retained"] == pytest.approx(fractions[r - 1], rel=1e-5)
        assert row["cosine"] == pytest.approx(retained, rel=1e-4)
        assert row["threshold"] == pytest.approx(f + 2 * z * stats.norm.pdf(z), rel=1e-9)
        assert row["independent"] == pytest.approx(1 - exact_error("R", Budget(p, q, r)), rel=1e-9)
        assert row["predicted"] == (row["retained"] > row["cosine_predicted"])
        assert row["low_rank"] == (row["retained"] > row["cosine"])


def test_controls_are_what_the_references_say():
    """Means over 40 matrices, within 4 of their standard errors."""
    drawn = torch.randn(40, 32, 32, generator=torch.Generator().manual_seed(0))
    found = measure({f"blocks.{i}.query.weight": one for i, one in enumerate(drawn)})
    for i, r in enumerate((1, 2, 4, 8)):
        gaps = [one["ranks"][i]["retained"] - one["ranks"][i]["independent"] for one in found]
        assert {one["ranks"][i]["r"] for one in found} == {r}
        assert abs(np.mean(gaps)) < 4 * np.std(gaps, ddof=1) / len(gaps) ** 0.5
        assert not any(one["ranks"][i]["low_rank"] for one in found)
    assert {one["relative_norm"] for one in found} == {None}


GRID = TrainingGrid(
    rates={"SGD": 0.03, "Adam": 1e-3, "AdamW": 1e-3},
    default={"steps": 20, "batch": 8, "examples": 30},
    multiples=(0.1, 1, 3),
    varied={"steps": (5, 20), "examples": (30, None)},
)


def test_one_factor_varies_at_a_time():
    cases = GRID.cases()
    for optimizer in ("SGD", "Adam", "AdamW"):
        own = [case for case in cases if case.training.optimizer == optimizer]
        default = next(case.training for case in own if case.factor == "optimizer")
        assert (default.rate, default.steps, default.batch) == (GRID.rates[optimizer], 20, 8)
        found = {}
        for case in own[1:]:
            names = ("rate", "steps", "batch", "examples")
            differs = [n for n in names if getattr(case.training, n) != getattr(default, n)]
            assert differs in ([], [case.factor])
            found.setdefault(case.factor, []).append((case.label, differs == []))
        assert found == {
            "rate": [("0.1", False), ("1", True), ("3", False)],
            "steps": [("5", False), ("20", True)],
            "examples": [("30", True), ("all", False)],
        }


def result(retained, *, accuracy=0.5, diverged=False):
    """A run with a matrix of two kinds each, of one rank."""
    if diverged:
        return {"accuracy": None, "diverged": True, "examples": 90, "matrices": []}
    blank = {"independent": 0.2, "threshold": 0.4, "cosine": 0.3, "cosine_predicted": 0.4}
    matrices = [
        {"kind": kind, "p": 16, "q": 32,
         "ranks": [{"r": 2, "retained": value, "predicted": value > 0.5, "low_rank": True} | blank]}
        for kind, value in zip(("query", "MLP in"), retained, strict=True)
    ]  # fmt: skip
    return {"accuracy": accuracy, "diverged": False, "examples": 90, "matrices": matrices}


def test_the_table_by_factor():
    """Means over matrices, then over seeds; the interval is Student's over seeds."""
    training = Training("SGD", 0.03, 20, 8)
    cases = [Case("optimizer", "SGD", None, training), Case("examples", "all", None, training)]
    results = [result((0.4, 0.6), accuracy=0.7), result((0.6, 0.8)), result((), diverged=True)]
    runs = [{"task": "digits", "seed": seed, **one} for seed, one in enumerate(results)]
    lines = {(line["factor"], line["label"]): line for line in factor_rows(cases, {training: runs})}
    assert list(lines) == [("optimizer", "SGD"), ("kind", "query"), ("kind", "MLP in"),
                           ("examples", "all")]  # fmt: skip
    line = lines["optimizer", "SGD"]
    assert (line["K"], line["r"], line["seeds"], line["diverged"]) == (16, 2, 2, 1)
    assert line["retained"] == pytest.approx(0.6)
    half = stats.t.ppf(0.975, 1) * np.std([0.5, 0.7], ddof=1) / 2**0.5
    assert (line["low"], line["high"]) == pytest.approx((0.6 - half, 0.6 + half))
    assert line["accuracy"] == pytest.approx(0.6)
    assert line["predicted"] == pytest.approx(0.75)
    assert lines["kind", "MLP in"]["retained"] == pytest.approx(0.7)
    assert lines["examples", "all"]["value"] == 90


def test_a_run_depends_on_its_point_alone(digits):
    chosen = settings("digits", quick=True)

    def found(training, seed=0):
        return compute(point(digits, chosen, training, seed, "cpu"), digits.folder.parent)

    training = Training("SGD", 0.1, 3, 8, 20)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        state = torch.get_rng_state()
        first = found(training)
        assert torch.equal(torch.get_rng_state(), state)
        assert found(training) == first
    other = found(training, seed=1)
    assert first["matrices"][0]["sigma"] != other["matrices"][0]["sigma"]
    assert (first["examples"], first["diverged"]) == (20, False)
    assert 0 <= first["accuracy"] <= 1
    assert {one["kind"] for one in first["matrices"]} == set(KINDS)
    assert all(one["relative_norm"] > 0 for one in first["matrices"])
    control = found(None)
    assert control["accuracy"] is None
    assert len(control["matrices"]) == len(first["matrices"])


def test_a_run_that_diverges_is_not_measured(digits):
    chosen = settings("digits", quick=True)
    one = point(digits, chosen, Training("SGD", 1e30, 4, 8, 20), 0, "cpu")
    result = compute(one, digits.folder.parent)
    assert (result["diverged"], result["accuracy"], result["matrices"]) == (True, None, [])


def test_the_command_writes_its_tables_and_figure_once(session, monkeypatch):
    command = importlib.import_module("experiments.low_rank")
    few = TrainingGrid(rates=GRID.rates, default={"steps": 2, "batch": 4, "examples": 8}, seeds=2)
    monkeypatch.setattr(command, "_QUICK", few)
    out = session.out
    given = ["--quick", "--out", str(out), "--task", "digits", "-j", "1", "--device", "cpu"]
    outcome = CliRunner().invoke(command.main, given)
    assert outcome.exit_code == 0, outcome.output
    folder = out / "quick"
    tables = {
        name: pd.read_parquet(folder / f"low_rank-digits{name}.parquet")
        for name in ("", "-statistics", "-matrices", "-ranks")
    }
    matrices = tables["-matrices"]
    assert set(matrices["optimizer"]) == {"SGD", "Adam", "AdamW", "independent"}
    assert len(tables["-ranks"]) == 5 * len(matrices)  # r = 1 to 16 of K = 64
    assert set(tables[""]["factor"]) == {"optimizer", "kind"}
    assert (folder / "low_rank-digits.pdf").stat().st_size > 1000
    stored = {path: path.stat().st_mtime_ns for path in (out / "runs").glob("low-rank*.json")}
    assert len(stored) == 2 * 4
    monkeypatch.setattr(command.Session, "draw", lambda *_: None)
    outcome = CliRunner().invoke(command.main, given)
    assert outcome.exit_code == 0, outcome.output
    assert {path: path.stat().st_mtime_ns for path in stored} == stored
    pd.testing.assert_frame_equal(pd.read_parquet(folder / "low_rank-digits.parquet"), tables[""])
