"""Full fine-tunes with any optimiser, against a loop of plain torch, and what is measured."""

import importlib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from scipy import fft, stats
from torch import nn, optim

from experiments.finetuning.low_rank.fine_tunes import (
    Training,
    TrainingGrid,
    compute,
    evaluate,
    point,
    train,
)
from experiments.finetuning.low_rank.spectra import KINDS, measure
from experiments.finetuning.settings import settings
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


def examples(count):
    source = torch.Generator().manual_seed(0)
    return {
        "inputs": torch.randn(count, TOKENS, Q, generator=source, dtype=torch.float64),
        "labels": torch.randint(3, (count,), generator=source),
    }


OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, momentum=0.9),
    "Adam": optim.Adam,
    "AdamW": lambda p: optim.AdamW(p, weight_decay=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_is_that_of_a_plain_loop(name):
    """Two passes over 8 random examples of 12; the rate rises for 2 steps of 6 and falls."""
    model, plain, pool = Classifier(), Classifier(), examples(12)
    options = {"warmup": 1 / 3, "most_gradient": 0.3}
    assert train(model, pool, Training(name, 0.05, 6, 3, 8), np.random.default_rng(4), **options)
    rng, optimizer = np.random.default_rng(4), OPTIMIZERS[name](plain.parameters())
    mine = rng.permutation(12)[:8]
    orders = [rng.permutation(mine) for _ in range(3)]
    batches = [order[start : start + 3] for order in orders for start in (0, 3)]
    for which, part in zip(batches, [1 / 2, 1, 1, 3 / 4, 2 / 4, 1 / 4], strict=True):
        optimizer.zero_grad()
        plain(**{key: values[which] for key, values in pool.items()}).loss.backward()
        norm = float(torch.cat([p.grad.flatten() for p in plain.parameters()]).norm())
        assert norm > 0.3
        for p in plain.parameters():
            p.grad *= 0.3 / (norm + 1e-6)  # as clip_grad_norm_
        optimizer.param_groups[0]["lr"] = 0.05 * part
        optimizer.step()
    for found, expected in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_loss_and_accuracy_are_means_over_examples():
    model, test = Classifier(), examples(450)
    whole = model(**test)
    loss, accuracy = evaluate(model, test)
    assert loss == pytest.approx(float(whole.loss.detach()), rel=1e-12)
    assert accuracy == (whole.logits.argmax(1) == test["labels"]).sum() / 450
    assert 0 < accuracy < 1


def test_what_is_measured_of_a_matrix():
    """What low rank and cosines retain, by the definitions; unchanged matrices are left out."""
    p, q = 24, 40
    source = torch.Generator().manual_seed(0)
    increment = torch.randn(p, q, generator=source).cumsum(0)
    increments = {"blocks.0.expand.weight": increment, "blocks.0.query.weight": torch.zeros(p, q)}
    (found,) = measure(increments, {name: torch.ones(p, q) for name in increments})
    assert (found["kind"], found["layer"], found["p"], found["q"]) == ("MLP in", 0, p, q)
    assert found["relative_norm"] == pytest.approx(float(increment.norm()) / (p * q) ** 0.5)
    energies = np.linalg.svd(increment.numpy(), compute_uv=False) ** 2
    coefficients = np.sort(np.square(fft.dctn(increment.numpy(), norm="ortho")), axis=None)[::-1]
    assert [row["r"] for row in found["ranks"]] == [1, 2, 3, 6]
    for row in found["ranks"]:
        r = row["r"]
        count = (p + q) * r // 2  # a coefficient costs as much as its index
        f = count / (p * q)
        z = stats.norm.isf(f / 2)
        retained = coefficients[:count].sum() / coefficients.sum()
        assert row["retained"] == pytest.approx(energies[:r].sum() / energies.sum(), rel=1e-5)
        assert row["cosine"] == pytest.approx(retained, rel=1e-4)
        assert row["threshold"] == pytest.approx(f + 2 * z * stats.norm.pdf(z), rel=1e-9)
        assert row["independent"] == pytest.approx(1 - exact_error("R", Budget(p, q, r)), rel=1e-9)
        assert row["predicted"] == (row["retained"] > row["cosine_predicted"])
        assert row["low_rank"] == (row["retained"] > row["cosine"])


def test_a_run_depends_on_its_point_alone(digits):
    chosen = settings("digits", quick=True)

    def found(training, seed=0):
        return compute(point("digits", digits, chosen, training, seed, "cpu"), digits.folder.parent)

    training = Training("SGD", 0.1, 3, 8, 20)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        state = torch.get_rng_state()
        first = found(training)
        assert torch.equal(torch.get_rng_state(), state)
        assert found(training) == first
    other = found(training, seed=1)
    assert first["matrices"][0]["sigma"] != other["matrices"][0]["sigma"]
    assert not first["diverged"]
    assert 0 <= first["accuracy"] <= 1
    assert {one["kind"] for one in first["matrices"]} == set(KINDS)
    assert all(one["relative_norm"] > 0 for one in first["matrices"])
    control = found(None)
    assert control["accuracy"] is None
    assert len(control["matrices"]) == len(first["matrices"])
    # A run that diverges is not measured.
    wild = found(replace(training, rate=1e30))
    assert (wild["diverged"], wild["accuracy"], wild["matrices"]) == (True, None, [])


def test_the_command_writes_its_tables_and_figure(session, monkeypatch):
    command = importlib.import_module("experiments.low_rank")
    rates = {"SGD": 0.03, "Adam": 1e-3, "AdamW": 1e-3}
    few = TrainingGrid(rates=rates, default={"steps": 2, "batch": 4, "examples": 8}, seeds=2)
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
    assert len(list((out / "runs").glob("low-rank*.json"))) == 2 * 4
