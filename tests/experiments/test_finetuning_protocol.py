"""Pairing by seed, rates by validation, and runs that are stored once."""

import dataclasses

import pytest
import torch

from experiments.finetuning import session as session_module
from experiments.finetuning.configurations import described
from experiments.finetuning.methods import methods, rates_beyond
from experiments.finetuning.protocol import Configuration, best_rate, loca_of, point
from experiments.finetuning.settings import settings, task_names
from experiments.finetuning.training import compute
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps import runner

# PEFT builds the sparse increments of SHiRA from indices that it made itself.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")
METHODS = ("linear-probing", "full", "bitfit", "lora", "dora", "vera", "fourierft", "waveft",
           "shira", "c3a", "loca", "loca-reselect", "loca-gradient")  # fmt: skip
LORA, FOURIERFT, RESELECT = (
    Configuration("digits", name, 1) for name in ("lora", "fourierft", "loca-reselect")
)


def start_of(run, total):
    """Head, pretrained weights, adapter and the first batches of a run."""
    state = {
        name.replace("base_layer.", "").replace("modules_to_save.default.", ""): w
        for name, w in run.core.state_dict().items()
    }
    batches = run.batches(total)
    return state, torch.stack([next(batches) for _ in range(12)])


@pytest.mark.parametrize("method", METHODS[1:])
def test_under_one_seed_all_methods_start_alike(begin, method):
    """Also where the run is the second of its group."""
    (probing,) = begin("linear-probing", seeds=(4,)).runs
    reference, batches = start_of(probing, 300)
    state, mine = start_of(begin(method, seeds=(3, 4)).runs[1], 300)
    assert reference.keys() <= state.keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in reference.items())
    assert torch.equal(batches, mine)


@pytest.mark.parametrize("method", ["lora", "loca"])
def test_seeds_differ_in_head_adapter_and_batches_and_not_in_pretrained_weights(begin, method):
    (a, first), (b, second) = (start_of(run, 300) for run in begin(method, seeds=(0, 1)).runs)
    assert a.keys() == b.keys()
    for name in a:
        drawn = "lora_A" in name or "indices" in name or name.startswith("head.")
        assert torch.equal(a[name], b[name]) != drawn, name
    assert not torch.equal(first, second)


def test_a_run_sees_its_own_small_training_set_only(begin):
    seen = []
    for run in begin("linear-probing", seeds=(0, 1), train=64).runs:
        batches = run.batches(300)
        seen.append({int(i) for _ in range(40) for i in next(batches)})
    assert [len(one) for one in seen] == [64, 64]
    assert seen[0] != seen[1]


def test_a_batch_larger_than_the_training_set_is_refused(begin):
    (run,) = begin("linear-probing", train=64, batch=65).runs
    with pytest.raises(InvalidArgumentError, match="use a smaller batch"):
        next(run.batches(300))


def test_the_rate_is_the_best_on_average():
    assert best_rate([0.1, 0.3, 1.0], {0.1: [0.7, 0.7], 0.3: [0.9, 0.6], 1.0: [0.99, None]}) == 0.3
    assert best_rate([0.1, 0.3], {0.1: [None], 0.3: [0.1]}) == 0.3
    assert best_rate([0.1, 0.3], {0.1: [None], 0.3: [None]}) == 0.1


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("task", task_names())
def test_results_are_of_other_seeds_than_rates(session, task, quick):
    one = dataclasses.replace(session, quick=quick)
    assert not set(one.seeds_of(task)) & set(one.settings(task)["tuning_seeds"])


@pytest.fixture
def made_up(session, digits, monkeypatch):
    """A session whose runs only say what they were asked for."""
    asked = []

    def result(p, seed):
        best = abs(p["rate"] - (1e-1 if p["method"] == "loca" else 1e-2)) < 1e-9
        return {"validation": 0.9 if best else 0.5, "metric": seed / 100}

    def run(_, points, *__, **___):
        asked.extend(one.parameters for one in points)
        return [
            {"runs": [result(one.parameters, seed) for seed in one.parameters["seeds"]]}
            for one in points
        ]

    monkeypatch.setattr(session_module.Runner, "run", run)
    monkeypatch.setattr(session_module.Session, "prepared", lambda *_: digits)
    return dataclasses.replace(session, quick=False), asked


def test_rates_are_chosen_by_validation_on_the_tuning_seeds(made_up):
    session, asked = made_up
    wanted = [Configuration("digits", name, 2) for name in ("lora", "loca", "full")]
    rates = session.tune(wanted, "")
    assert [rates[configuration] for configuration in wanted[:2]] == [1e-2, 1e-1]
    chosen = settings("digits")
    for configuration in wanted:
        mine = [p for p in asked if p["method"] == configuration.method]
        assert all(p["tunes"] for p in mine)
        assert {(p["rate"], seed) for p in mine for seed in p["seeds"]} == {
            (rate, seed)
            for rate in methods()[configuration.method].rates("small")
            for seed in chosen["tuning_seeds"]
        }
    asked.clear()
    session.run_on_all_seeds(rates.items(), "")
    assert {seed for p in asked for seed in p["seeds"]} == set(range(chosen["seeds"]))
    assert not any(p["tunes"] for p in asked)


def test_from_twice_the_budget_on_all_rates_are_lower(made_up):
    session, asked = made_up
    r = settings("digits")["r"]
    session.tune([Configuration("digits", "lora", 2 * r), Configuration("digits", "full", 9)], "")
    tried = {name: [p["rate"] for p in asked if p["method"] == name] for name in ("lora", "full")}
    assert tried["lora"] == list(methods()["lora"].rates("small", beyond=1)[:4])
    assert tried["full"] == list(methods()["full"].rates("small"))


def test_beyond_the_grid_rates_go_on_until_the_best_lies_inside(made_up):
    session, asked = made_up
    lora = Configuration("digits", "lora", 4 * settings("digits")["r"])
    full = Configuration("digits", "full", 2)
    # The first four of full fine-tuning end at 1e-2, which is the best.
    rates = dataclasses.replace(session, beyond_grid=True).tune([lora, full], "")
    assert rates == {lora: 1e-2, full: 1e-2}
    tried = [p["rate"] for p in asked if p["method"] == "full"]
    assert tried == [3e-4, 1e-3, 3e-3, 1e-2, 3e-2]


@pytest.mark.parametrize(
    ("tried", "best", "beyond"),
    [
        ((1e-3, 3e-3, 1e-2), 3e-3, ()),
        ((1e-3, 3e-3, 1e-2), 1e-2, (3e-2,)),
        ((1e-3, 3e-3, 1e-2), 1e-3, (3e-4,)),
        ((1e-5, 3e-5), 1e-5, ()),
        ((3.0, 10.0), 10.0, ()),
    ],
)
def test_the_rate_beyond_those_tried(tried, best, beyond):
    assert rates_beyond(tried, best) == beyond


@pytest.mark.parametrize(
    ("seeds", "blocks"),
    [
        (5, [[0, 1], [2, 3], [4]]),
        (4, [[0, 1], [2, 3]]),
        (None, [[0, 1], [2]]),
    ],
)
def test_seeds_are_trained_in_blocks_and_told_one_by_one(made_up, seeds, blocks, monkeypatch):
    session, asked = made_up
    small = {**settings("digits"), "block": 2, "seeds": 3}
    monkeypatch.setattr(session_module.Session, "settings", lambda *_: small)
    session = dataclasses.replace(session, seeds=seeds)
    wanted = [(Configuration("digits", name, 2), 1e-2) for name in ("lora", "loca")]
    done = session.run_on_all_seeds(wanted, "")
    assert [p["seeds"] for p in asked] == blocks * 2
    count = sum(map(len, blocks))
    assert [one.configuration.method for one in done] == ["lora"] * count + ["loca"] * count
    assert [one.seed for one in done] == list(range(count)) * 2
    assert all(one.result["metric"] == one.seed / 100 for one in done)


def test_what_is_described_of_increments(session):
    """Errors of full fine-tunes and one image of every method, all in the first block."""
    ask = described(session)
    full, lora = (Configuration("digits", name, 4) for name in ("full", "lora"))
    assert ask(full, (0, 1, 2)) == {"ranks": [1, 2, 4], "pool": 1, "seeds": [0, 1, 2]}
    assert ask(lora, (0, 1, 2)) == {"ranks": [], "pool": 1, "seeds": [0]}
    assert ask(full, (8, 9)) is None


def without_time(done):
    return [{k: v for k, v in one.result.items() if k != "seconds"} for one in done]


@pytest.mark.deep
def test_workers_and_company_change_nothing(session, monkeypatch):
    rated = [(configuration, 1e-2) for configuration in (LORA, FOURIERFT, RESELECT)]
    alone = without_time(session.run_on_all_seeds(rated, ""))
    again = dataclasses.replace(session, jobs=2)
    for path in (session.out / "runs").glob("*.json"):
        path.unlink()
    # Workers are taken however little there is to do.
    monkeypatch.setattr(runner, "_WORKER_START_S", 0.0)
    assert without_time(again.run_on_all_seeds(rated[::-1], "")) == [
        alone[2 * (2 - i // 2) + i % 2] for i in range(6)
    ]


def test_what_is_finished_is_not_made_again(session, monkeypatch):
    made = []

    def counted(one, folder):
        made.append(one.parameters["method"])
        return compute(one, folder)

    monkeypatch.setattr(session_module, "compute", counted)
    rated = [(configuration, 1e-2) for configuration in (LORA, FOURIERFT)]
    first = without_time(session.run_on_all_seeds(rated[:1], ""))
    assert without_time(session.run_on_all_seeds(rated, ""))[:2] == first
    assert made == ["lora", "fourierft"]
    session.run_on_all_seeds(rated, "")
    assert len(made) == 2
    session.run_on_all_seeds([(LORA, 3e-2)], "")  # another rate is another run
    assert len(made) == 3


def test_a_damaged_result_is_made_again(session):
    first = session.run_on_all_seeds([(LORA, 1e-2)], "")
    path = next((session.out / "runs").glob("*.json"))
    path.write_text(path.read_text().replace('"diverged": false', '"diverged": true'))
    assert without_time(session.run_on_all_seeds([(LORA, 1e-2)], "")) == without_time(first)


def test_points_differ_with_whatever_decides_a_run(digits):
    def key(configuration=LORA, seeds=(0, 1), rate=1e-2, tunes=False, analyse=None, **changed):
        chosen = {**settings("digits", quick=True), **changed}
        return point(
            configuration, chosen, digits, rate=rate, seeds=seeds, device="cpu", tunes=tunes,
            analyse=analyse,
        ).key()  # fmt: skip

    keys = [
        key(),
        key(seeds=(0, 2)),
        key(seeds=(0,)),
        key(rate=3e-2),
        key(tunes=True),
        key(analyse={"ranks": [], "pool": 1, "seeds": [0]}),
        key(steps=13),
        key(batch=16),
        key(train=64),
        key(head_rate=1e-3),
        key(warmup=0.5),
        key(Configuration("digits", "lora", 2)),
        key(Configuration("digits", "loca", 1)),
        key(Configuration("digits", "loca", 1, {"scaling": 2.0})),
        key(Configuration("digits", "loca", 1), alternating=0.7),
        key(Configuration("digits", "loca", 1, location_rate=1.0)),
    ]
    assert len(set(keys)) == len(keys)
    # A title, more seeds and larger blocks are nothing to a run; settings of LoCA and another
    # budget are nothing to a method without them.
    assert key(title="x", block=3) == key(alternating=0.7) == key()
    assert key(Configuration("digits", "full", 1)) == key(Configuration("digits", "full", 2))
    assert loca_of(LORA, settings("digits")) == {}


@pytest.mark.parametrize("name", ["loca-reselect", "loca-swap"])
def test_regrowth_after_the_end_is_refused_before_anything_runs(name, session, monkeypatch):
    monkeypatch.setattr(session_module.Runner, "run", lambda *_, **__: pytest.fail("something ran"))
    configuration = Configuration("digits", name, 1, {"alternating": 0.1})
    with pytest.raises(InvalidArgumentError, match="prunes and regrows components every 3 steps"):
        session.run_on_all_seeds(
            [(Configuration("digits", "lora", 1), 1e-3), (configuration, 1e-2)], ""
        )


def test_a_row_tells_its_run(session):
    """Its seed and result, and the setting that the variant has."""
    done = session.run_on_all_seeds([(Configuration("digits", "loca-v1", 1), 1e-2)], "")
    assert [one.row["seed"] for one in done] == [0, 1]
    for one in done:
        assert one.row["alternating"] == 0.0
        for name in ("metric", "loss", "diverged", "moved", "loss_10", "loss_25", "seconds"):
            assert one.row[name] == one.result[name]
        assert (one.row["loss_10"] is None, one.row["loss_25"] is None) == (False, True)
        assert [line["seed"] for line in one.curve] == [one.seed] * 2
        assert [line["validation"] for line in one.curve] == [e[3] for e in one.result["curve"]]
    assert done[0].row["loss"] != done[1].row["loss"]


@pytest.mark.parametrize("method", ["loca", "loca-gradient", "loca-reselect"])
def test_a_row_counts_learned_locations_as_stored(session, method):
    (one, _) = session.run_on_all_seeds([(Configuration("digits", method, 1), 1e-2)], "")
    assert one.row["stored"] == 2 * one.row["trained"]


def test_a_row_counts_no_random_locations(session):
    (one, _) = session.run_on_all_seeds([(Configuration("digits", "loca-v1", 1), 1e-2)], "")
    assert one.row["stored"] == one.row["trained"] == 4 * 128
