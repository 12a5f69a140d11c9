"""Errors of increments against naive ways of keeping the best."""

import numpy as np
import pytest
import torch
from scipy.fft import dctn

from experiments.finetuning.increments import describe_increments

P, Q, RANKS = 8, 12, [1, 2, 3]


@pytest.fixture(scope="module")
def weights():
    source = torch.Generator().manual_seed(0)
    names = ("x.0.query.weight", "x.1.value.weight", "x.1.other.weight", "x.0.query.bias")
    sizes = ((P, Q), (P, Q), (P, Q), (P,))
    before = {n: torch.randn(s, generator=source) for n, s in zip(names, sizes, strict=True)}
    after = {n: w + torch.randn(w.shape, generator=source) for n, w in before.items()}
    return before, after


@pytest.fixture(scope="module")
def increments(weights):
    before, after = weights
    return [
        (after[n] - before[n]).double().numpy() for n in ("x.0.query.weight", "x.1.value.weight")
    ]


@pytest.fixture(scope="module")
def found(weights):
    return describe_increments(*weights, ["query", "value"], {"ranks": RANKS, "pool": 2})


def error(found, accounting, curve, r):
    keys = {(e["accounting"], e["method"], e["r"]): e["error"] for e in found["errors"]}
    return keys[accounting, curve, r]


def lost(increments, keep):
    """The fraction of energy that is lost, over all matrices together."""
    total = sum((w**2).sum() for w in increments)
    return 1 - sum(keep(w) for w in increments) / total


@pytest.mark.parametrize("r", RANKS)
def test_the_rank_error_is_that_of_the_truncated_svd(found, increments, r):
    def kept(w):
        u, s, v = np.linalg.svd(w, full_matrices=False)
        near = (u[:, :r] * s[:r]) @ v[:r]
        return (w**2).sum() - ((w - near) ** 2).sum()

    assert error(found, "paper", "R", r) == pytest.approx(lost(increments, kept))


@pytest.mark.parametrize(("accounting", "cost"), [("trainable", 1), ("paper", 2)])
@pytest.mark.parametrize("r", RANKS)
def test_the_cosine_error_keeps_the_largest_coefficients(found, increments, accounting, cost, r):
    count = (P + Q) * r // cost

    def kept(w):
        return np.sort((dctn(w, norm="ortho") ** 2).ravel())[::-1][:count].sum()

    assert error(found, accounting, "D", r) == pytest.approx(lost(increments, kept))


@pytest.mark.parametrize("r", RANKS)
def test_the_sparse_error_keeps_the_largest_entries(found, increments, r):
    def kept(w):
        return np.sort((w**2).ravel())[::-1][: (P + Q) * r].sum()

    assert error(found, "trainable", "S", r) == pytest.approx(lost(increments, kept))


def test_energy_and_pictures_are_of_the_targets_alone(found, increments):
    assert found["energy"] == pytest.approx(sum((w**2).sum() for w in increments))
    assert list(found["patterns"]) == ["x.0.query.weight", "x.1.value.weight"]
    blocks = increments[0].reshape(P // 2, 2, Q // 2, 2).mean((1, 3))
    shown = np.array(found["patterns"]["x.0.query.weight"])
    assert shown == pytest.approx(blocks, rel=1e-3)


def test_without_change_there_are_no_errors(weights):
    before, _ = weights
    wanted = {"ranks": RANKS, "pool": 0}
    found = describe_increments(before, before, ["query"], wanted)
    assert found == {"errors": [], "energy": 0.0, "patterns": {}}


def test_a_run_describes_what_training_added(computed):
    found = computed("full", analyse={"ranks": [1, 32], "pool": 1}, steps=3)["increments"]
    assert found["energy"] > 0
    for accounting, curve in (("paper", "R"), ("paper", "D"), ("trainable", "D")):
        assert 1 > error(found, accounting, curve, 1) > error(found, accounting, curve, 32) >= 0
    # So many free coefficients are all of them.
    assert error(found, "trainable", "D", 32) == pytest.approx(0, abs=1e-9)


def test_lora_adds_no_more_than_its_rank(begin):
    run = begin("lora", r=2, rate=3e-2)
    state = run.model.state_dict().items()
    before = {n.removeprefix("base_model.model.").replace("base_layer.", ""): w.clone()
              for n, w in state}  # fmt: skip
    run.train()
    merged = run.merged()
    for name, weight in merged.items():
        if name.endswith(("q_proj.weight", "query.weight")):
            values = torch.linalg.svdvals((weight - before[name]).double())
            assert values[1] > 1e-4
            assert values[2] < 1e-5
