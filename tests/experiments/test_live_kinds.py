"""The ablation over live kinds: its rules, its power, and its command."""

from copy import deepcopy
from itertools import product

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy import stats

from experiments.live_kinds import phases, power
from experiments.live_kinds.__main__ import STORED, main
from experiments.live_kinds.phases import DESIGN, Rates
from experiments.live_kinds.verdicts import with_verdicts
from experiments.pretrained import analysis, runs
from experiments.pretrained.runs import Trial
from experiments.verdicts import holm
from loca_theory.sweeps.tables import store_rows


@pytest.fixture
def design(monkeypatch):
    """The design with fewer kinds and rates and one task to tune on, to be changed."""
    small = deepcopy(dict(DESIGN))
    small["kinds"] = {
        "lively": ["sst2", "customers"],
        "questions": ["trec"],
        "intents": ["clinc"],
        "dead": ["cola"],
    }
    small["tuning"] |= {
        "tasks": ["mpqa"],
        "seeds": [1000, 1001],
        "rungs": [1, 2],
        "head_rates": [1e-3, 1e-2],
        "location_rates": [5e-3, 2e-2],
    }
    small["rates"] = {method: rates[1:3] for method, rates in small["rates"].items()}
    small["liveness"]["seeds"] = [1000]
    small["seeds"] = dict.fromkeys(small["seeds"], 2) | {"loca": 3, "loca-v1": 3}
    small["liveness"]["dead_seeds"] = 1
    for name, value in small.items():
        monkeypatch.setitem(DESIGN, name, value)
    return DESIGN


def score(trial):
    """Best at rates of 1e-2 where it tunes; full fine-tuning leads by 2 points, but on CoLA."""
    if trial.setting == "tuning":
        away = abs(np.log10([trial.head_rate, trial.rate]) + 2)
        return 0.5 - away @ [0.1, 0.05] + 0.01 * (trial.location_rate == 2e-2)
    return 0.5 + 0.001 * (trial.seed % 5) + 0.02 * (trial.method == "full" and trial.task != "cola")


def row_of(trial, **values):
    row = {**trial.__dict__, "metric": score(trial), "trivial": 0.2, "seconds": 1.0}
    return {**row, "parts": [score(trial)] * 10, "loss": 1.0, "loss_25": 1.0, "code": "", **values}


def complete(design, answer=row_of):
    rows = {}
    while trials := phases.next_trials(rows, design):
        rows |= {trial: answer(trial) for trial in trials}
    return rows


# --- the design ------------------------------------------------------------------------------


def test_what_tunes_and_what_counts_are_disjoint():
    tasks = {task for tasks in DESIGN["kinds"].values() for task in tasks}
    assert not tasks & {*DESIGN["tuning"]["tasks"]}
    assert {*DESIGN["tasks"]} == tasks | {*DESIGN["tuning"]["tasks"]} == {*DESIGN["digests"]}
    seeds = {*DESIGN["tuning"]["seeds"], *DESIGN["liveness"]["seeds"]}
    seeds |= {trial.seed for trial in runs.stored(STORED / "diagnosis")}
    assert min(seeds) >= max(DESIGN["seeds"].values())
    assert any(DESIGN["tasks"][task]["pairs"] for task in DESIGN["tuning"]["tasks"][2:])
    assert DESIGN["protocol"] == runs.FIRST["protocol"]


# --- tuning ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("loca-v1", [48, 24, 24, 24]),
        ("loca", [48, 24, 24, 24, 48]),
        ("linear-probing", [18, 9, 12, 12]),
    ],
)
def test_halving_keeps_the_better_half_of_each_rung(method, expected, seed):
    rng, rows, sizes = np.random.default_rng(seed), {}, []
    while trials := [t for t in phases.halving(method, rows)[0] if t not in rows]:
        sizes.append(len(trials))
        rows |= {
            trial: {"metric": rng.random() if rng.random() < 0.9 else None, "trivial": 0.3}
            for trial in trials
        }
    assert sizes == expected

    def mean(rates, seeds):
        chosen = [
            row
            for t, row in rows.items()
            if Rates(t.rate, t.head_rate, t.location_rate) == rates and t.seed in seeds
        ]
        assert len(chosen) == 3 * len(seeds)
        return np.mean([0.3 if row["metric"] is None else row["metric"] for row in chosen])

    left = {Rates(t.rate, t.head_rate, t.location_rate) for t in rows if t.location_rate == 5e-3}
    for count in (1, 2, 4, 8):
        seeds = range(1000, 1000 + count)
        left = {*sorted(left, key=lambda rates: -mean(rates, seeds))[: (len(left) + 1) // 2]}
    best = max(left, key=lambda rates: mean(rates, range(1000, 1008)))
    if method == "loca":
        moved = [best._replace(location=rate) for rate in (1e-3, 5e-3, 2e-2)]
        best = max(moved, key=lambda rates: mean(rates, range(1000, 1008)))
    assert phases.halving(method, rows)[1] == best


def test_of_equal_rates_the_lower_ones_win():
    rows = {}
    while trials := [t for t in phases.halving("lora", rows)[0] if t not in rows]:
        rows |= {trial: {"metric": 0.5, "trivial": 0.3} for trial in trials}
    assert phases.halving("lora", rows)[1] == (3e-4, 1e-3, 5e-3)


# --- live kinds, and what counts -------------------------------------------------------------


def test_live_kinds_are_those_with_a_gap(design):
    rows = complete(design)
    assert phases.gaps(rows) == pytest.approx(
        {"lively": 2, "questions": 2, "intents": 2, "dead": 0}
    )
    design["liveness"]["gap"] = 1.99
    assert phases.live_kinds(rows) == ["lively", "questions", "intents"]
    design["liveness"]["gap"] = 2.01
    assert phases.live_kinds(rows) == []


def test_each_phase_waits_for_the_one_before_and_uses_its_rates(design):
    design["liveness"]["gap"] = 1.9
    settings = [trial.setting for trial in complete(design)]
    assert settings == sorted(settings, key=["tuning", "liveness", "counted"].index)
    counted = [trial for trial in complete(design) if trial.setting == "counted"]
    assert {(t.rate, t.head_rate, t.location_rate) for t in counted if t.method == "loca"} == {
        (1e-2, 1e-2, 2e-2)
    }
    assert [t.seed for t in counted] == sorted(t.seed for t in counted)
    assert not any(trial.tunes for trial in counted)
    seeds = pd.DataFrame(counted).groupby(["task", "method"])["seed"].apply(list)
    assert seeds["sst2", "loca"] == seeds["customers", "loca-v1"] == [0, 1, 2]
    assert seeds["customers", "full"] == [0, 1]
    assert {tuple(chosen) for chosen in seeds["cola"]} == {(0,)}


def test_a_run_fails_whose_score_is_nearer_to_the_trivial_one(design):
    probe = complete(design)
    (mean,) = {
        row["metric"]
        for t, row in probe.items()
        if (t.setting, t.task, t.method) == ("liveness", "cola", "linear-probing")
    }
    low, high = (0.2 + mean) / 2 - 1e-6, (0.2 + mean) / 2 + 1e-6
    values = {("cola", "loca", 0): low, ("cola", "lora", 0): high, ("sst2", "full", 1): None}
    rows = {
        trial: dict(row, metric=values.get((trial.task, trial.method, trial.seed), row["metric"]))
        if trial.setting == "counted"
        else row
        for trial, row in probe.items()
    }
    failed = phases.failures(rows)
    assert {method: tasks for method, tasks in failed.items() if tasks} == {
        "loca": {"cola": 1},
        "full": {"sst2": 1},
    }
    # Where the probe itself is not better than trivial, a trivial score fails.
    scores = {"counted": 0.9, "liveness": 0.8}
    rows = {
        trial: dict(row, trivial=0.9, metric=scores.get(trial.setting, row["metric"]))
        for trial, row in probe.items()
    }
    assert phases.failures(rows)["fourierft"] == {
        "sst2": 2,
        "customers": 2,
        "trec": 2,
        "clinc": 2,
        "cola": 1,
    }


# --- verdicts --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows():
    """Rows that count, in which LoCA and V1 are alike, and `reselect` 5 points better in a kind."""
    rng, tasks = np.random.default_rng(1), [t for kind in DESIGN["kinds"].values() for t in kind]
    methods = ["loca-v1", "loca", "loca-reselect"]
    trials = [
        Trial("counted", *case, 1e-2, 5e-3, 1e-2, seed, tunes=False)
        for *case, seed in product(tasks, methods, range(8))
    ]
    better = {("trec", "loca-reselect"): 0.05}
    return [
        row_of(t, metric=0.5 + rng.normal(0, 0.003) + better.get((t.task, t.method), 0))
        for t in trials
    ]


def test_verdicts_are_fragile_where_one_kind_decides(rows):
    kinds = {kind: tasks for kind, tasks in DESIGN["kinds"].items() if kind != "acceptability"}
    design, gaps = {**DESIGN, "kinds": kinds}, dict.fromkeys(kinds, 5.0)
    verdicts = with_verdicts(rows, design, gaps)
    assert verdicts["verdict"].to_dict() == {
        "loca": "equivalent within a margin",
        "loca-reselect": "inconclusive, fragile",
    }
    decides = verdicts.loc["loca-reselect", "decides"]
    assert decides == "without questions equivalent within a margin"
    assert verdicts.loc["loca", "fraction difference"] == pytest.approx(
        verdicts.loc["loca", "difference"] / 5
    )
    # With small gaps the same differences are not small fractions.
    small = with_verdicts(rows, design, dict.fromkeys(kinds, 0.1))
    assert small.loc["loca", "verdict"] == "inconclusive"


# --- power -----------------------------------------------------------------------------------


def test_the_power_rests_on_the_first_study():
    rows = [row for row in runs.stored(runs.STORED).values() if row["setting"] == "main"]
    chosen = DESIGN["power"]

    def spread(kinds):
        table = analysis.compare(rows, runs.FIRST["primary"], design={**runs.FIRST, "kinds": kinds})
        return table[list(kinds)].astype(float).std(axis=1, ddof=1).max()

    usual = spread(chosen["kinds"])
    expected = [usual, 2 * usual, spread(runs.FIRST["kinds"])]
    assert chosen["spreads"] == pytest.approx(expected, abs=0.05)
    kinds = {**DESIGN["kinds"], "similarity": ["similarity"]}
    means = analysis.gains(rows, ["full", "linear-probing"], {**runs.FIRST, "kinds": kinds})
    gaps = means["full"] - means["linear-probing"]
    assert chosen["gaps"] == pytest.approx(gaps[[*chosen["gaps"]]].to_dict(), abs=0.05)


@pytest.mark.parametrize(("kinds", "spread"), [(6, 0.73), (8, 0.73)])
def test_power_is_that_of_another_simulation(kinds, spread):
    gaps = sorted(DESIGN["power"]["gaps"].values(), reverse=True)[:kinds]
    computed = power.powers(gaps, spread)
    draws, rng = 300, np.random.default_rng(5)
    covariance = spread**2 * np.array([[1, 0.5], [0.5, 1]])
    signs = np.array(list(product((-1, 1), repeat=kinds)))
    hits = dict.fromkeys(computed, 0)
    for _ in range(draws):
        none = rng.multivariate_normal([0, 0], covariance, size=kinds).T
        everywhere, alone = none + 1, none + np.array([[1], [0]])

        def first(test, differences):
            return holm([test(sample) for sample in differences])[0] <= 0.05

        def student(sample):
            return stats.ttest_1samp(sample, 0).pvalue

        def exact(sample):
            return np.mean(np.abs(signs @ sample) >= abs(sample.sum()) - 1e-9)

        def inside(sample, margin):
            ends = stats.ttest_1samp(sample, 0).confidence_interval()
            return all(abs(end) < margin for end in ends)

        points, fractions = inside(none[0], 1), inside(none[0] / gaps, 0.33)
        now = {
            "shown": first(student, everywhere),
            "alone": first(student, alone),
            "signs": first(exact, everywhere),
            "points": points,
            "fractions": fractions,
            "equivalent": points and fractions and not first(student, none),
        }
        hits = {name: hits[name] + now[name] for name in hits}
    for name, hit in hits.items():
        fraction = computed[name]
        error = np.sqrt(max(fraction * (1 - fraction), 1 / draws) * (1 / draws + 1 / 20_000))
        assert hit / draws == pytest.approx(fraction, abs=4 * error)


def test_the_powers_in_the_words_of_the_design():
    table = power.table().set_index(["spread", "kinds"])
    words = " ".join(DESIGN["analysis"].split())
    at = {
        key: [f"{line[name]:.0%}" for name in ("shown", "equivalent")]
        for key, line in table.iterrows()
    }
    assert (
        "shown with a power of {}, and without any, equivalence with {}.".format(*at[0.36, 8])
        in words
    )
    assert (
        "it is {} and {}; with seven live kinds {} and {}, and with six {} and {},".format(
            *at[0.73, 8], *at[0.73, 7], *at[0.73, 6]
        )
        in words
    )
    assert f"third of the gap ({table.loc[(0.73, 8), 'fractions']:.0%})" in words
    assert table.loc[(0.73, 6), "signs"] == 0


def test_stored_runs_are_of_one_code_and_follow_the_rules():
    rows = runs.stored(STORED)
    assert len({row["code"] for row in rows.values()}) == 1
    # A run that is resumed begins with what is ready, so that rounds of two methods may alternate.
    replayed = {}
    while done := {*phases.next_trials(replayed)} & rows.keys() - replayed.keys():
        replayed |= {trial: rows[trial] for trial in done}
    assert replayed.keys() == rows.keys()


# --- the command -----------------------------------------------------------------------------


@pytest.fixture
def call(design, tmp_path, monkeypatch):
    """Call the command, whose runs are not trained; it is killed before the run of this number."""
    killed_before = {"run": None}

    def train(trial, prepared, design):
        if killed_before["run"] == 0:
            raise KeyboardInterrupt
        if killed_before["run"] is not None:
            killed_before["run"] -= 1
        return row_of(trial, code=runs.code_of(design))

    monkeypatch.setattr(runs, "train", train)
    monkeypatch.setattr(
        runs, "prepare_all", lambda data, folder, design: dict.fromkeys(design["tasks"])
    )

    def invoke(*arguments, killed=None):
        killed_before["run"] = killed
        return CliRunner().invoke(main, ["--out", str(tmp_path / "out"), *arguments])

    return invoke


def test_killed_runs_go_on_and_other_code_is_refused(call, tmp_path, design):
    out, data = tmp_path / "out", ("--data", str(tmp_path))
    assert call(*data, killed=7).exit_code
    first = runs.stored(out)
    assert len(first) == 7
    done = call(*data, "--minutes", "0")
    assert not done.exit_code
    assert len(runs.stored(out)) == 7
    call(*data, killed=60)
    assert "runs that count are missing" in call().output
    assert not call(*data).exit_code
    rows = runs.stored(out)
    assert {trial: rows[trial] for trial in first} == first
    assert rows == {
        trial: {**row, "code": runs.code_of(design)} for trial, row in complete(design).items()
    }
    assert "primary comparisons" in call().output
    store_rows([{**row, "code": "other"} for row in first.values()], {}, out, runs.TABLE)
    refused = call(*data)
    assert refused.exit_code
    assert f"has rows of the code other, and this is {runs.code_of(design)}; run" in refused.output
    # A row of this code and another design is one of another hash.
    code = runs.code_of(design)
    design["margin"] = 2.0
    assert runs.code_of(design) != code


def test_the_command_prints_the_scores_of_the_diagnosis():
    assert "diagnosis: scores by seed" in CliRunner().invoke(main, []).output
