"""Pairing by seed, rates by validation, and runs that are made once."""

import dataclasses

import pytest
import torch

from experiments.finetuning import session as session_module
from experiments.finetuning.methods import methods
from experiments.finetuning.protocol import Configuration, best_rate, point
from experiments.finetuning.settings import settings, task_names
from experiments.finetuning.training import compute
from loca_theory.adapters import CosineSpectrum
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps import execution

METHODS = (
    "linear-probing",
    "full",
    "bitfit",
    "lora",
    "dora",
    "adalora",
    "vera",
    "fourierft",
    "loca",
    "loca-reselect",
)


def start_of(run):
    """Head, pretrained weights and the first batches of a run."""
    state = {
        name.removeprefix("base_model.model.")
        .replace("base_layer.", "")
        .replace("modules_to_save.default.", ""): w
        for name, w in run.model.state_dict().items()
    }
    batches = run._batches()
    return state, [next(batches) for _ in range(12)]


@pytest.mark.parametrize("method", METHODS[1:])
def test_under_one_seed_all_methods_start_alike(begin, method):
    reference, batches = start_of(begin("linear-probing", seed=4))
    state, mine = start_of(begin(method, seed=4))
    assert reference.keys() <= state.keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in reference.items())
    for a, b in zip(batches, mine, strict=True):
        assert all(torch.equal(a[name], b[name]) for name in a)


def test_seeds_differ_in_head_and_batches_and_not_in_pretrained_weights(begin):
    (a, first), (b, second) = start_of(begin("lora", seed=0)), start_of(begin("lora", seed=1))
    for name in a:
        drawn = "lora_A" in name or (name.startswith("classifier.") and name.endswith("weight"))
        assert torch.equal(a[name], b[name]) != drawn, name
    assert not torch.equal(first[0]["labels"], second[0]["labels"])


def test_a_run_sees_its_own_small_training_set_only(begin):
    run = begin("linear-probing", train=64)
    total = len(run.splits["train"]["labels"])
    run.splits = {**run.splits, "train": {"labels": torch.arange(total)}}
    batches = run._batches()
    seen = {int(i) for _ in range(40) for i in next(batches)["labels"]}
    assert len(seen) == 64


def test_the_rate_is_the_best_on_average():
    found = {0.1: [0.7, 0.7], 0.3: [0.9, 0.6], 1.0: [0.99, None]}
    assert best_rate([0.1, 0.3, 1.0], found, "accuracy") == 0.3
    assert best_rate([0.1, 0.3, 1.0], found, "bits per byte") == 0.1
    assert best_rate([0.1, 0.3], {0.1: [None], 0.3: [0.1]}, "accuracy") == 0.3


@pytest.mark.parametrize("task", task_names())
def test_results_are_of_other_seeds_than_rates(task):
    for quick in (False, True):
        chosen = settings(task, quick=quick)
        assert not set(chosen["seeds"]) & set(chosen["tuning_seeds"])


@pytest.fixture
def made_up(session, monkeypatch):
    """A session whose runs only say what they were asked for."""
    asked = []

    def run(_, points, *__):
        asked.extend(points)
        results = []
        for one in points:
            p = one.parameters
            best = abs(p["rate"] - (3e-2 if p["method"] == "loca" else 3e-3)) < 1e-9
            results.append({"validation": 0.9 if best else 0.5, "metric": 0.1 if best else 0.9})
        return results

    monkeypatch.setattr(session_module.Runner, "run", run)
    return dataclasses.replace(session, quick=False), asked


def test_rates_are_chosen_by_validation_on_the_tuning_seeds(made_up, vision, monkeypatch):
    session, asked = made_up
    monkeypatch.setattr(session_module.Session, "prepared", lambda *_: vision)
    cells = [Configuration("vision", name, 2) for name in ("lora", "loca", "full")]
    rates = session.tune(cells, "")
    assert [rates[configuration] for configuration in cells[:2]] == [3e-3, 3e-2]
    chosen = settings("vision")
    for configuration in cells:
        mine = [p.parameters for p in asked if p.parameters["method"] == configuration.method]
        tried = {(p["rate"], p["seed"]) for p in mine}
        assert tried == {
            (rate, seed)
            for rate in methods()[configuration.method].rates("vision")
            for seed in chosen["tuning_seeds"]
        }
    asked.clear()
    session.run_on_all_seeds(rates.items(), "")
    assert {p.parameters["seed"] for p in asked} == set(chosen["seeds"])


CELLS = [Configuration("vision", name, 1) for name in ("lora", "fourierft", "loca-reselect")]


def without_time(done):
    return [{k: v for k, v in one.result.items() if k != "seconds"} for one in done]


@pytest.mark.deep
def test_workers_and_company_change_nothing(session, monkeypatch):
    rated = [(configuration, 1e-2) for configuration in CELLS]
    alone = without_time(session.run_on_all_seeds(rated, ""))
    again = dataclasses.replace(session, jobs=2)
    for path in (session.out / "runs").glob("*.json"):
        path.unlink()
    # Workers are taken however little there is to do.
    monkeypatch.setattr(execution, "_WORKER_START_S", 0.0)
    assert without_time(again.run_on_all_seeds(rated[::-1], "")) == [
        alone[2 * (2 - i // 2) + i % 2] for i in range(6)
    ]


def test_what_is_finished_is_not_made_again(session, monkeypatch):
    made = []

    def counted(one, folder):
        made.append(one.parameters["method"])
        return compute(one, folder)

    monkeypatch.setattr(session_module, "compute", counted)
    rated = [(configuration, 1e-2) for configuration in CELLS[:2]]
    first = without_time(session.run_on_all_seeds(rated[:1], ""))
    assert without_time(session.run_on_all_seeds(rated, ""))[:2] == first
    assert made == ["lora"] * 2 + ["fourierft"] * 2
    session.run_on_all_seeds(rated, "")
    assert len(made) == 4
    session.run_on_all_seeds([(CELLS[0], 3e-2)], "")  # another rate is another run
    assert len(made) == 6


def test_a_damaged_result_is_made_again(session):
    first = session.run_on_all_seeds([(CELLS[0], 1e-2)], "")
    path = next((session.out / "runs").glob("*.json"))
    path.write_text(path.read_text().replace('"diverged": false', '"diverged": true'))
    assert without_time(session.run_on_all_seeds([(CELLS[0], 1e-2)], "")) == without_time(first)


def test_points_differ_with_whatever_decides_a_run(vision):
    def key(configuration=CELLS[0], seed=0, rate=1e-2, **changed):
        chosen = {**settings("vision", quick=True), **changed}
        return point(configuration, chosen, vision, rate=rate, seed=seed, device="cpu").key("v")

    keys = [
        key(),
        key(seed=1),
        key(rate=3e-2),
        key(steps=13),
        key(batch=16),
        key(warmup=0.5),
        key(Configuration("vision", "lora", 2)),
        key(Configuration("vision", "loca", 1)),
        key(Configuration("vision", "loca", 1, {"scaling": 2.0})),
        key(Configuration("vision", "loca", 1), alternating=0.7),
        key(Configuration("vision", "loca", 1, location_rate=1.0)),
    ]
    assert len(set(keys)) == len(keys)
    # Neither the name of the task nor another budget is anything to a method without one.
    assert key(title="x") == key()
    assert key(Configuration("vision", "full", 1)) == key(Configuration("vision", "full", 2))


@pytest.mark.parametrize("method", ["lora", "full", "adalora", "loca"])
def test_a_diverged_run_is_recorded(computed, method):
    result = computed(method, rate=1e30, analyse={"ranks": [1], "pool": 1})
    assert result["diverged"]
    assert (result["metric"], result["loss"]) == (None, None)
    assert "increments" not in result


def test_a_run_tells_the_metric_of_its_last_step(begin):
    run = begin("full", rate=1e-3, steps=7, every=3)
    result = run.train()
    assert [entry[0] for entry in result["curve"]] == [3, 6, 7]
    looked = run._evaluate("validation", settings("vision", quick=True)["looks"])
    assert result["curve"][-1][2:] == list(looked)
    assert result["metric"] == run._evaluate("test")[1]


def test_a_run_that_tunes_never_sees_the_test_set(begin):
    run = begin("full", rate=1e-3)
    run.p["tunes"] = True
    run.splits = {name: split for name, split in run.splits.items() if name != "test"}
    result = run.train()
    assert result["validation"] == run._evaluate("validation")[1]
    assert "metric" not in result
    assert result["curve"] == []


def test_clipping_leaves_the_gradients_of_locations_out(begin, monkeypatch):
    clipped = set()
    cut = torch.nn.utils.clip_grad_norm_
    monkeypatch.setattr(
        torch.nn.utils,
        "clip_grad_norm_",
        lambda group, most: clipped.update(map(id, group)) or cut(group, most),
    )
    run = begin("loca-v3")
    spectra = [m for m in run.model.modules() if isinstance(m, CosineSpectrum)]
    before = [spectrum.search.locations.detach().clone() for spectrum in spectra]
    for step in (1, 2):  # the coefficients of the first are zero
        run._step(next(run._batches()), step)
    assert {id(spectrum.coefficients) for spectrum in spectra} <= clipped
    for spectrum, old in zip(spectra, before, strict=True):
        assert id(spectrum.search.locations) not in clipped
        assert not torch.equal(spectrum.search.locations, old)


@pytest.mark.parametrize("name", ["loca-reselect", "loca-swap"])
def test_regrowth_after_the_end_is_refused_before_anything_runs(name, session, monkeypatch):
    monkeypatch.setattr(session_module.Runner, "run", lambda *_: pytest.fail("something ran"))
    configuration = Configuration("vision", name, 1, {"alternating": 0.1})
    with pytest.raises(InvalidArgumentError, match="prunes and regrows components every 3 steps"):
        session.run_on_all_seeds(
            [(Configuration("vision", "lora", 1), 1e-3), (configuration, 1e-2)], ""
        )


def test_a_row_tells_the_setting_that_the_variant_has(session):
    one = session.run_on_all_seeds([(Configuration("vision", "loca-v1", 1), 1e-2)], "")[0]
    assert one.row["alternating"] == 0.0
