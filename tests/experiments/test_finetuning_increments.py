"""Errors of increments against naive ways of keeping the best."""

import numpy as np
import pytest
import torch
from scipy.fft import dctn

from experiments.finetuning.increments import describe_increments
from experiments.finetuning.methods import methods

# PEFT builds the sparse increments of SHiRA from indices that it made itself.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")
P, Q, RANKS = 8, 12, [1, 2, 3]


@pytest.fixture(scope="module")
def increments():
    source = torch.Generator().manual_seed(0)
    names = ("x.0.query", "x.1.value")
    return {name: torch.randn(P, Q, generator=source) for name in names}


@pytest.fixture(scope="module")
def found(increments):
    return describe_increments(increments, RANKS, 2)


def error(found, accounting, curve, r):
    keys = {(e["accounting"], e["method"], e["r"]): e["error"] for e in found["errors"]}
    return keys[accounting, curve, r]


def lost(increments, keep):
    """The fraction of energy that is lost, over all matrices together."""
    arrays = [w.double().numpy() for w in increments.values()]
    return 1 - sum(keep(w) for w in arrays) / sum((w**2).sum() for w in arrays)


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


def test_energy_and_pictures(found, increments):
    total = sum(float((w**2).sum()) for w in increments.values())
    assert found["energy"] == pytest.approx(total)
    assert list(found["patterns"]) == ["x.0.query", "x.1.value"]
    blocks = increments["x.0.query"].numpy().reshape(P // 2, 2, Q // 2, 2).mean((1, 3))
    assert np.array(found["patterns"]["x.0.query"]) == pytest.approx(blocks, rel=1e-3)


def test_without_change_there_are_no_errors():
    found = describe_increments({"query": torch.zeros(P, Q)}, RANKS, 0)
    assert found == {"errors": [], "energy": 0.0, "patterns": {}}


def test_a_run_describes_what_training_added(computed):
    wanted = {"ranks": [1, 32], "pool": 1, "seeds": [0]}
    found = computed("full", analyse=wanted, steps=3)[0]["increments"]
    assert found["energy"] > 0
    for accounting, method in (("paper", "R"), ("paper", "D"), ("trainable", "D")):
        assert 1 > error(found, accounting, method, 1) > error(found, accounting, method, 32) >= 0
    # So many free coefficients are all of them.
    assert error(found, "trainable", "D", 32) == pytest.approx(0, abs=1e-9)


RUN = {name: method for name, method in methods().items() if "small" in method.lowest}
# One of each kind, and LoCA whose locations still move at the end.
KINDS = [*{method.kind: name for name, method in reversed(RUN.items())}.values(), "loca-v2"]
LAYERS = [f"blocks.{n}.{name}" for n in (0, 1) for name in ("query", "value")]


def added(layer, plain):
    """ΔW by what a layer of PEFT returns for the unit vectors, or of a layer trained itself."""
    if not hasattr(layer, "get_base_layer"):
        return layer.weight - plain.weight
    unit = torch.eye(plain.in_features)
    return (layer(unit) - plain(unit)).T


@pytest.mark.parametrize("method", KINDS)
def test_increments_are_what_the_layers_add(begin, method):
    """Of the second run of a group, which shares its pretrained weights with the first."""
    group = begin(method, seeds=(0, 1), rate=3e-2, tunes=True)
    group.train()
    plain = begin("linear-probing").runs[0].core
    run = group.runs[1]
    state = {name: tensor.clone() for name, tensor in run.core.state_dict().items()}
    with torch.no_grad():
        run.model.eval()
        expected = {name: added(run.core.get_submodule(name), plain.get_submodule(name))
                    for name in LAYERS}  # fmt: skip
        found = run.increments()
    assert list(found) == LAYERS
    trains = RUN[method].kind not in ("head", "biases")
    for name, increment in found.items():
        torch.testing.assert_close(increment, expected[name], rtol=1e-4, atol=1e-5)
        assert (float(increment.norm()) > 1e-2) == trains
    assert all(torch.equal(state[name], w) for name, w in run.core.state_dict().items())
    other = group.runs[0].increments()
    assert any(not torch.equal(other[name], found[name]) for name in LAYERS) == trains


def test_lora_adds_no_more_than_its_rank(begin):
    group = begin("lora", r=2, rate=3e-2, tunes=True)
    group.train()
    for increment in group.runs[0].increments().values():
        values = torch.linalg.svdvals(increment.double())
        assert values[1] > 1e-4
        assert values[2] < 1e-5
