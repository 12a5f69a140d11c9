"""Methods at equal updates: which runs there are, and the analysis on made-up scores."""

from collections import OrderedDict
from copy import deepcopy
from itertools import product

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from experiments.equal_updates import __main__ as command
from experiments.equal_updates import analysis, phases
from experiments.equal_updates.phases import DESIGN, EQUAL_UPDATE, ONE_RATE, RULES, TUNED
from experiments.finetuning.adaptation import adapt, count, default_config
from experiments.finetuning.methods import Budget, find_method
from experiments.live_kinds import phases as live
from experiments.pretrained import runs
from loca_theory.adapters import LoCAConfig, first_step

TASKS = [task for tasks in DESIGN["kinds"].values() for task in tasks]
BEST = {"lora-default": 3e-3}  # the others are best at 1e-2, if their grid has it


@pytest.fixture(scope="module")
def design():
    """The design with fewer seeds and draws."""
    small = deepcopy(dict(DESIGN))
    return {**small, "seeds": 2, "draws": 300}


def row_of(trial):
    away = abs(np.log10(trial.rate / BEST.get(trial.method, 1e-2)))
    away += abs(np.log10(trial.head_rate / 3e-3)) / 10
    return {"metric": 0.9 - away / 10 + trial.seed % 2 / 1000, "trivial": 0.3}


@pytest.fixture(scope="module")
def rows(design):
    """All runs, phase by phase, with scores that fall with the distance from the best rate."""
    rows_by_trial = {}
    while trials := phases.next_trials(rows_by_trial, design):
        rows_by_trial |= {trial: row_of(trial) for trial in trials}
    return rows_by_trial


@pytest.fixture(scope="module")
def by_rule(rows, design):
    return phases.rates(phases.tuning(rows, design)[1], design)


def test_what_tunes_and_what_counts_are_disjoint():
    assert not {*TASKS} & {*DESIGN["tuning"]["tasks"]}
    assert {*DESIGN["tasks"]} == {*TASKS} | {*DESIGN["tuning"]["tasks"]}
    assert min(DESIGN["tuning"]["seeds"]) >= DESIGN["seeds"]
    assert {*DESIGN["rates"]} == {*phases.methods()}
    assert {**live.DESIGN["protocol"], "r": 8} == DESIGN["protocol"]


def test_the_tasks_that_count_are_those_of_the_largest_gaps():
    gaps = {kind: live.DESIGN["power"]["gaps"][kind] for kind in live.DESIGN["power"]["kinds"]}
    assert {*DESIGN["kinds"]} == {*sorted(gaps, key=lambda kind: -gaps[kind])[:4]}
    assert all(tasks[0] in live.DESIGN["kinds"][kind] for kind, tasks in DESIGN["kinds"].items())


def test_the_runs_are_as_many_as_the_design_says():
    """LoRA's 72 that tune, 39 of each other method; LoRA's runs are the same by all rules."""
    rows_by_trial = {}
    while trials := phases.next_trials(rows_by_trial):
        rows_by_trial |= {trial: row_of(trial) for trial in trials}
    tunes = [trial for trial in rows_by_trial if trial.tunes]
    assert len(tunes) == 72 + 5 * 39 == 267
    assert len(rows_by_trial) - len(tunes) == 8 * 4 * (1 + 4 * 3 + 2) == 480


def test_the_head_is_tuned_with_lora_and_the_best_rates_win(by_rule):
    for rule, method in product(RULES, by_rule[TUNED]):
        if method in by_rule[rule]:
            assert by_rule[rule][method].head == 3e-3
    assert by_rule[TUNED]["lora-default"].adapter == 3e-3
    assert by_rule[TUNED]["vera-default"].adapter == 1e-2
    assert {*by_rule[ONE_RATE]} == {*DESIGN["defaults"]}
    assert {rates.adapter for rates in by_rule[ONE_RATE].values()} == {3e-3}


@pytest.mark.parametrize(
    ("method", "numbers"),
    list(zip(DESIGN["defaults"], (6144, 1000, 2592, 24576, 640), strict=True)),
    ids=DESIGN["defaults"],
)
def test_a_default_trains_as_many_numbers_as_the_design_says_and_starts_at_0(method, numbers):
    assert f"{numbers:,}" in DESIGN["analysis"]
    torch.manual_seed(0)
    layers = {"query": torch.nn.Linear(384, 384), "head": torch.nn.Linear(384, 2)}
    model, x = torch.nn.Sequential(OrderedDict(layers)), torch.randn(3, 384)
    before, budget = model(x), Budget(8, 100)
    chosen = find_method(method)
    adapted = adapt(model, chosen, budget, targets=["query"], head="head", seed=5)
    assert count(adapted, "head")["trained"] == numbers
    assert torch.allclose(adapted(x), before, atol=1e-6)


@pytest.mark.parametrize("method", phases.methods())
def test_at_one_step_each_method_moves_a_layer_as_far_as_lora(method, by_rule):
    def size(name):
        kind = find_method(name)
        is_default = kind.kind == "default"
        config = default_config(kind, 0) if is_default else LoCAConfig(n_frequency=6144)
        rate = by_rule[EQUAL_UPDATE][name].adapter
        return first_step(config, (384, 384), lr=rate).frobenius.value

    assert size(method) == pytest.approx(size("lora-default"), rel=6e-3)  # three digits


def test_the_grid_of_rates_lies_around_the_equivalents(design):
    for method in phases.methods()[1:]:
        grid = DESIGN["rates"][method]
        equivalents = [phases.equivalent(method, rate) for rate in DESIGN["rates"]["lora-default"]]
        assert grid[0] < equivalents[0]
        assert equivalents[-1] < grid[-1]


def test_scores_are_read_by_rule_and_a_run_that_diverged_has_the_trivial_one(rows, by_rule, design):
    chosen = by_rule[EQUAL_UPDATE]["vera-default"]
    lost = live.trial_at(chosen, "counted", "trec", "vera-default", 1)
    changed = {**rows, lost: {"metric": None, "trivial": 0.25}}
    measured = analysis.scores(changed, by_rule, design)
    assert measured[EQUAL_UPDATE][TASKS.index("trec"), 1, 4] == 25
    assert measured[ONE_RATE].shape == (4, 2, 5)
    assert measured[TUNED].shape == (4, 2, 6)
    # LoRA, the first method, has the same runs by all rules.
    for rule in RULES:
        assert (measured[rule][..., 0] == measured[ONE_RATE][..., 0]).all()


def made_up(scale, gain=0.0, noise=0.05):
    """Scores whose differences between methods are ``scale`` times as large at one step."""
    rng = np.random.default_rng(0)
    effects = rng.normal(size=(4, 1, 6)) * 3
    effects[..., 0] = 0
    return {
        rule: 80 + factor * effects[..., :count] + add + noise * rng.normal(size=(4, 8, count))
        for rule, factor, add, count in (
            (ONE_RATE, 1, 0, 5),
            (EQUAL_UPDATE, scale, 0, 6),
            (TUNED, scale, gain, 6),
        )
    }


def test_the_ratio_by_loops(design):
    measured = made_up(0.5)

    def variance(rule):
        total = 0.0
        for task in range(4):
            means = [measured[rule][task, :, method].mean() for method in range(5)]
            total += sum((mean - sum(means) / 5) ** 2 for mean in means) / 4
        return total / 4

    row = analysis.spread_verdicts(measured, design).loc[
        "spread at equal first updates / at one rate"
    ]
    assert row["value"] == pytest.approx((variance(EQUAL_UPDATE) / variance(ONE_RATE)) ** 0.5)
    assert row["value"] == pytest.approx(0.5, abs=0.05)
    assert row["low"] <= row["value"] <= row["high"]


@pytest.mark.parametrize(
    ("scale", "noise", "shows"), [(0.5, 0.05, "less"), (2, 0.05, "more"), (1, 3, "not shown")]
)
def test_what_the_ratio_shows(scale, noise, shows, design):
    result = analysis.spread_verdicts(made_up(scale, noise=noise), design)
    assert result.loc["spread at equal first updates / at one rate", "shows"] == shows


@pytest.mark.parametrize(
    ("gain", "noise", "shows"),
    [(0.2, 0.05, "equivalent within a margin"), (3, 0.05, "tuning gains"), (0.5, 9, "not shown")],
)
def test_what_tuning_is_worth(gain, noise, shows, design):
    result = analysis.spread_verdicts(made_up(0.5, gain, noise), design)
    row = result.loc["points of tuning beyond equal first updates"]
    assert row["shows"] == shows
    if noise < 1:
        assert row["value"] == pytest.approx(gain, abs=0.05)


def test_an_interval_draws_tasks_and_their_seeds_alike_for_all_rules(design):
    """Scores that differ between rules by a constant have an interval of no width."""
    base = np.random.default_rng(1).normal(size=(4, 8, 6))
    measured = {ONE_RATE: base[..., :5], EQUAL_UPDATE: base, TUNED: base + 2}
    assert analysis.interval(
        measured, lambda drawn: float((drawn[TUNED] - drawn[EQUAL_UPDATE]).mean()), 50
    ) == pytest.approx((2, 2))
    ratios = [analysis.spread(base[[t]][..., :5]) for t in range(4)]
    low, high = analysis.interval(measured, lambda d: analysis.spread(d[ONE_RATE]), 300)
    assert low < np.sqrt(np.mean(np.square(ratios))) < high


def test_the_command_prints_the_design_and_then_the_result(rows, design, monkeypatch):
    done = CliRunner().invoke(command.main, [])
    assert "Adapters: LoRA, FourierFT" in done.output
    for name in ("seeds", "draws"):
        monkeypatch.setitem(DESIGN, name, design[name])
    full = {trial: {**row, "seconds": 1.0} for trial, row in rows.items()}
    monkeypatch.setattr(runs, "stored", lambda _: full)
    done = CliRunner().invoke(command.main, [])
    assert done.exit_code == 0, done.output
    assert "spread at equal first updates / at one rate" in done.output
    assert "at an end of their grid: waveft-default, shira-default" in done.output
