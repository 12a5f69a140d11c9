"""Groups of runs: what a run comes to, in any group, and what it tells."""

import math

import pytest
import torch

from experiments.finetuning.settings import settings
from loca_theory.adapters import CosineSpectrum


@pytest.mark.parametrize("method", ["lora", "loca", "full", "linear-probing"])
def test_a_run_has_the_same_result_in_any_group(computed, method):
    analyse = {"ranks": [1], "pool": 0, "seeds": [1]}
    together = computed(method, seeds=(0, 1, 2), analyse=analyse)
    alone = computed(method, seeds=(1,), analyse=analyse)[1]
    mine = together[1]
    assert not alone["diverged"]
    test_examples = 1300 - 5 * 130 - 300 - 100  # of the made-up digits; see the quick settings
    assert mine["metric"] == pytest.approx(alone["metric"], abs=1.01 / test_examples)
    assert mine["loss"] == pytest.approx(alone["loss"], rel=1e-4)
    assert mine["loss_10"] == pytest.approx(alone["loss_10"], rel=1e-4)
    for entry, other in zip(mine["curve"], alone["curve"], strict=True):
        assert entry[:3] == pytest.approx(other[:3], rel=1e-4)
    assert (mine["counts"], mine["moved"]) == (alone["counts"], alone["moved"])
    energies = [one["increments"]["energy"] for one in (mine, alone)]
    assert energies[0] == pytest.approx(energies[1], rel=1e-3)
    # The seeds are not all alike, or this test says nothing.
    assert abs(together[0]["loss"] - mine["loss"]) > 1e-3 * mine["loss"]


@pytest.mark.parametrize("method", ["lora", "full"])
def test_a_run_that_diverges_leaves_the_others_alone(begin, method):
    expected = begin(method, seeds=(0, 1, 2), rate=1e-3).train()
    group = begin(method, seeds=(0, 1, 2), rate=1e-3)
    group.runs[1].schedule.base_lrs = [1e30 for _ in group.runs[1].schedule.base_lrs]
    found = group.train()
    assert [one["diverged"] for one in found] == [False, True, False]
    assert found[1]["metric"] is None
    for number in (0, 2):
        assert found[number]["loss"] == pytest.approx(expected[number]["loss"], rel=1e-4)
        assert found[number]["curve"][-1][1:3] == pytest.approx(
            expected[number]["curve"][-1][1:3], rel=1e-4
        )


@pytest.mark.parametrize("method", ["lora", "full", "bitfit", "loca"])
def test_a_diverged_run_is_recorded(computed, method):
    result = computed(method, rate=1e30, analyse={"ranks": [1], "pool": 1, "seeds": [0]})[0]
    assert result["diverged"]
    assert (result["metric"], result["loss"]) == (None, None)
    assert "increments" not in result


def test_the_updates_of_a_run_end_with_a_loss_that_is_not_finite(begin):
    (run,) = begin("linear-probing").runs
    before = run.core.head.weight.detach().clone()
    run.core.head.weight.grad = torch.full_like(before, math.nan)
    run.update(math.inf)
    run.core.head.weight.grad = torch.ones_like(before)
    run.update(1.0)
    assert run.diverged
    assert torch.equal(run.core.head.weight, before)


def test_a_run_tells_the_metric_of_its_last_step(begin):
    group = begin("full", seeds=(0, 1), rate=1e-3, steps=7, every=3)
    results = group.train()
    looked = group._evaluate("validation", settings("digits", quick=True)["looks"])
    tested = group._evaluate("test")
    for number, (run, result) in enumerate(zip(group.runs, results, strict=True)):
        assert [entry[0] for entry in result["curve"]] == [3, 6, 7]
        means = [sum(run.losses[a:b]) / (b - a) for a, b in ((0, 3), (3, 6), (6, 7))]
        assert [entry[1] for entry in result["curve"]] == pytest.approx(means)
        assert result["curve"][-1][2:] == list(looked[number])
        assert (result["loss"], result["metric"]) == tested[number]


def test_loss_and_accuracy_are_means_over_all_examples(begin):
    """Also where the last batch of the evaluation is smaller than the others."""
    group = begin("lora", seeds=(0, 1))
    group.splits = {"test": {name: t[:130] for name, t in group.splits["test"].items()}}
    with torch.no_grad():
        for run, (loss, metric) in zip(group.runs, group._evaluate("test"), strict=True):
            output, labels = run.model(**group.splits["test"]), group.splits["test"]["labels"]
            assert loss == pytest.approx(float(output.loss), rel=1e-5)
            right = int((output.logits.argmax(-1) == labels).sum())
            assert metric == pytest.approx(right / 130)


@pytest.mark.parametrize("steps", [9, 10, 24, 25])
def test_early_losses_are_means_over_their_steps_if_there_are_as_many(begin, steps):
    group = begin("linear-probing", rate=1e-3, steps=steps, every=steps, tunes=True)
    (result,) = group.train()
    losses = group.runs[0].losses
    assert len(losses) == steps
    for name, part in {"loss_10": range(10), "loss_25": range(15, 25)}.items():
        if steps > part[-1]:
            assert result[name] == pytest.approx(sum(losses[i] for i in part) / 10)
        else:
            assert result[name] is None


def test_only_the_runs_asked_for_are_analysed(computed):
    wanted = {"ranks": [1], "pool": 2, "seeds": [1, 2]}
    found = computed("lora", seeds=(0, 1, 2), analyse=wanted)
    assert [seed for seed, result in found.items() if "increments" in result] == [1, 2]
    assert all(found[seed]["increments"]["errors"] for seed in (1, 2))
    assert [bool(found[seed]["increments"]["patterns"]) for seed in (1, 2)] == [True, False]


def test_runs_that_tune_never_see_the_test_set(begin):
    group = begin("full", seeds=(0, 1), rate=1e-3, tunes=True)
    group.splits = {name: split for name, split in group.splits.items() if name != "test"}
    for result, (_, metric) in zip(group.train(), group._evaluate("validation"), strict=True):
        assert result["validation"] == metric
        assert "metric" not in result
        assert result["curve"] == []


def test_clipping_takes_in_the_gradients_of_locations(begin, monkeypatch):
    clipped = set()
    cut = torch.nn.utils.clip_grad_norm_
    monkeypatch.setattr(
        torch.nn.utils,
        "clip_grad_norm_",
        lambda group, most: clipped.update(map(id, group)) or cut(group, most),
    )
    group = begin("loca-v3")
    (run,) = group.runs
    which = next(run.batches(300))[None]
    for _ in range(2):  # the coefficients of the first step are zero
        group._step({name: values[which] for name, values in group.splits["train"].items()})
    assert run.spectra
    assert all(isinstance(spectrum, CosineSpectrum) for spectrum in run.spectra)
    for spectrum in run.spectra:
        assert {id(spectrum.coefficients), id(spectrum.offset)} <= clipped
        assert spectrum.offset.any()
