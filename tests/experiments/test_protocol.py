"""Pairing by seed, rates by validation, and runs that are stored once."""

import dataclasses
from itertools import product

import pytest
import torch

from experiments.finetuning import session as session_module
from experiments.finetuning.methods import methods
from experiments.finetuning.protocol import Configuration, best_rate, loca_of, point
from experiments.finetuning.settings import settings, task_names
from loca_theory.errors import InvalidArgumentError

# PEFT builds the sparse increments of SHiRA from indices that it made itself.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")
OF_PEFT = ("lora", "dora", "vera", "fourierft", "waveft", "shira", "c3a")
METHODS = ("full", "bitfit", *OF_PEFT, "loca", "loca-reselect", "loca-gradient")
LORA, FOURIERFT, RESELECT = (
    Configuration("digits", name, 1) for name in ("lora", "fourierft", "loca-reselect")
)


def start_of(run):
    """Head, pretrained weights, adapter and the first batches of a run."""
    state = {
        name.replace("base_layer.", "").replace("modules_to_save.default.", ""): w
        for name, w in run.core.state_dict().items()
    }
    batches = run.batches(300)
    return state, torch.stack([next(batches) for _ in range(12)])


@pytest.mark.parametrize("method", METHODS)
def test_under_one_seed_all_methods_start_alike(begin, method):
    """Also where the run is the second of its group."""
    (probing,) = begin("linear-probing", seeds=(4,)).runs
    reference, batches = start_of(probing)
    (other, first), (state, other_batches) = map(start_of, begin(method, seeds=(3, 4)).runs)
    assert reference.keys() <= state.keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in reference.items())
    assert torch.equal(batches, other_batches)
    # Seeds differ in head, adapter and batches, and not in pretrained weights.
    assert not torch.equal(first, other_batches)
    for name in reference:
        assert torch.equal(state[name], other[name]) != name.startswith("head."), name
    if method in ("lora", "loca"):
        drawn = [name for name in state if "lora_A" in name or "indices" in name]
        assert drawn
        assert not any(torch.equal(state[name], other[name]) for name in drawn)


def test_a_run_sees_its_own_small_training_set_only(begin):
    seen = []
    for run in begin("linear-probing", seeds=(0, 1), train=64).runs:
        batches = run.batches(300)
        seen.append({int(i) for _ in range(40) for i in next(batches)})
    assert [len(examples) for examples in seen] == [64, 64]
    assert seen[0] != seen[1]
    (run,) = begin("linear-probing", train=64, batch=65).runs
    with pytest.raises(InvalidArgumentError, match="batch=65 exceeds the 64 training examples"):
        next(run.batches(300))


def test_the_rate_is_the_best_on_average():
    assert best_rate([0.1, 0.3, 1.0], {0.1: [0.7, 0.7], 0.3: [0.9, 0.6], 1.0: [0.99, None]}) == 0.3
    assert best_rate([0.1, 0.3], {0.1: [None], 0.3: [0.1]}) == 0.3
    assert best_rate([0.1, 0.3], {0.1: [None], 0.3: [None]}) == 0.1


def test_results_are_of_other_seeds_than_rates(session):
    for task, quick in product(task_names(), (False, True)):
        changed = dataclasses.replace(session, quick=quick)
        assert not set(changed.seeds_of(task)) & set(changed.settings(task)["tuning_seeds"])


@pytest.fixture
def made_up(session, digits, monkeypatch):
    """A session whose runs only say what they were asked for, in blocks of two seeds."""
    points_run = []

    def result(p, seed):
        best = abs(p["rate"] - (1e-1 if p["method"] == "loca" else 1e-2)) < 1e-9
        return {"validation": 0.9 if best else 0.5, "metric": seed / 100}

    def run(_, points, *__, **___):
        points_run.extend(point.parameters for point in points)
        return [
            {"runs": [result(point.parameters, seed) for seed in point.parameters["seeds"]]}
            for point in points
        ]

    chosen = {**settings("digits"), "block": 2, "seeds": 3}
    monkeypatch.setattr(session_module.Runner, "run", run)
    monkeypatch.setattr(session_module.Session, "prepared", lambda *_: digits)
    monkeypatch.setattr(session_module.Session, "settings", lambda *_: chosen)
    return dataclasses.replace(session, quick=False), points_run


def test_rates_are_chosen_by_validation_on_the_tuning_seeds(made_up):
    """From twice the task's budget on, all rates are lower."""
    session, points_run = made_up
    rates_of = {name: list(methods()[name].rates("small")) for name in ("lora", "loca", "full")}
    configurations = [Configuration("digits", name, 2) for name in rates_of]
    rates = session.tune([*configurations, Configuration("digits", "lora", 4)], "")
    assert [rates[configuration] for configuration in configurations[:2]] == [1e-2, 1e-1]
    assert all(p["tunes"] for p in points_run)
    tuning = [[1000, 1001], [1002, 1003]]
    for configuration in configurations:
        name = configuration.method
        of_method = [p for p in points_run if p["method"] == name and p["r"] != 4]
        assert [(p["rate"], p["seeds"]) for p in of_method] == [*product(rates_of[name], tuning)]
    lower = [p["rate"] for p in points_run if p["r"] == 4]
    assert lower[::2] == list(methods()["lora"].rates("small", beyond=1)[:4])


@pytest.mark.parametrize(("seeds", "blocks"), [(5, [[0, 1], [2, 3], [4]]), (None, [[0, 1], [2]])])
def test_seeds_are_trained_in_blocks_and_told_one_by_one(made_up, seeds, blocks):
    session, points_run = made_up
    session = dataclasses.replace(session, seeds=seeds)
    points = [(Configuration("digits", name, 2), 1e-2) for name in ("lora", "loca")]
    done = session.run(points, "")
    expected = [(block, False) for block in blocks] * 2
    assert [(p["seeds"], p["tunes"]) for p in points_run] == expected
    count = sum(map(len, blocks))
    assert [run.configuration.method for run in done] == ["lora"] * count + ["loca"] * count
    assert [run.seed for run in done] == list(range(count)) * 2
    assert all(run.result["metric"] == run.seed / 100 for run in done)


def test_points_differ_with_whatever_decides_a_run(digits):
    def key(configuration=LORA, seeds=(0, 1), rate=1e-2, tunes=False, **changed):
        chosen = {**settings("digits", quick=True), **changed}
        return point(
            configuration, chosen, digits, rate=rate, seeds=seeds, device="cpu", tunes=tunes
        ).key()

    loca = Configuration("digits", "loca", 1)
    keys = [
        key(),
        key(seeds=(0, 2)),
        key(rate=3e-2),
        key(tunes=True),
        key(steps=13),
        key(train=64),
        key(Configuration("digits", "lora", 2)),
        key(loca),
        key(dataclasses.replace(loca, loca={"scaling": 2.0})),
        key(loca, alternating=0.7),
        key(dataclasses.replace(loca, location_rate=1.0)),
    ]
    assert len(set(keys)) == len(keys)
    # A title, more seeds and larger blocks are nothing to a run; settings of LoCA and another
    # budget are nothing to a method without them.
    assert key(title="x", block=3) == key(alternating=0.7) == key()
    assert key(Configuration("digits", "full", 1)) == key(Configuration("digits", "full", 2))
    assert loca_of(LORA, settings("digits")) == {}


def test_regrowth_after_the_end_is_refused_before_anything_runs(session, monkeypatch):
    monkeypatch.setattr(session_module.Runner, "run", lambda *_, **__: pytest.fail("something ran"))
    late = dataclasses.replace(RESELECT, loca={"alternating": 0.1})
    with pytest.raises(InvalidArgumentError, match="prunes and regrows components every 3 steps"):
        session.run([(LORA, 1e-3), (late, 1e-2)], "")


@pytest.mark.parametrize(
    ("method", "alternating", "learned"), [("loca-v1", 0.0, 0), ("loca", 0.5, 1)]
)
def test_a_row_tells_its_run(session, method, alternating, learned):
    """Its seed and result, and the setting that the variant has."""
    done = session.run([(Configuration("digits", method, 1), 1e-2)], "")
    assert [run.row["seed"] for run in done] == [0, 1]
    assert ["patterns" in run.result for run in done] == [True, False]
    for run in done:
        assert run.row["alternating"] == alternating
        for name in ("metric", "loss", "diverged", "moved", "loss_10", "loss_25", "seconds"):
            assert run.row[name] == run.result[name]
        # Learned locations are stored, random ones are not.
        assert run.row["trained"] == 4 * 128
        assert run.row["stored"] == (1 + learned) * run.row["trained"]
        assert [line["seed"] for line in run.curve] == [run.seed] * 2
        assert [line["validation"] for line in run.curve] == [e[3] for e in run.result["curve"]]
    assert done[0].row["loss"] != done[1].row["loss"]
