"""The ablation on a pretrained model: its design, statistics, texts, and stored runs."""

import json
from copy import deepcopy
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from scipy import stats

from experiments.finetuning.methods import find_method
from experiments.finetuning.metrics import accuracy, correlation
from experiments.finetuning.statistics import holm
from experiments.finetuning.tasks import published
from experiments.finetuning.training import trained
from experiments.pretrained import analysis, runs, trials
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


@pytest.fixture(scope="module")
def stored():
    """The stored runs that count."""
    rows = runs.stored(Path(__file__).parents[2] / "figures" / "pretrained").values()
    return [row for row in rows if not row["tunes"]]


def by_kind(rows, method):
    """Mean differences of a method from the reference, in points, of each kind."""
    table = pd.DataFrame(row for row in rows if row["setting"] == "main")
    of = 100 * table.pivot_table(index=["task", "seed"], columns="method", values="metric")
    of_task = (of[method] - of[ARMS[0]]).groupby("task").mean()
    kind_of = {task: kind for kind, tasks in DESIGN["kinds"].items() for task in tasks}
    return of_task.groupby(kind_of).mean()


def test_the_error_of_the_test_sets_is_that_of_means_of_parts(stored):
    mine = [row for row in stored if row["setting"] == "main"]
    found = analysis.compare(mine, ["loca"]).loc["loca", "text_error"]
    of_kinds = []
    for tasks in DESIGN["kinds"].values():
        parts = [[np.mean([row["parts"] for row in mine if (row["task"], row["method"]) ==
                           (task, method)], axis=0) for method in ("loca", ARMS[0])]
                 for task in tasks]  # fmt: skip
        variances = [100**2 * np.var(one - other, ddof=1) / 10 for one, other in parts]
        of_kinds.append(sum(variances) / len(tasks) ** 2)
    assert found == pytest.approx(sum(of_kinds) ** 0.5 / 8)


def moved(stored, points):
    """The runs, with so many points more for every method but the reference, by kind."""
    kinds = {task: n for n, tasks in enumerate(DESIGN["kinds"].values()) for task in tasks}
    return [
        dict(row, metric=row["metric"] + points(kinds[row["task"]]) / 100)
        if row["method"] != ARMS[0] or row["setting"] == "best"
        else row
        for row in stored
    ]


@pytest.mark.parametrize(
    ("points", "verdict"),
    [
        (lambda _: 5, "supported"),
        (lambda _: -5, "not supported"),
        (lambda kind: 9 * (-1) ** kind, "inconclusive"),
    ],
)
def test_verdicts_for_the_ledger(stored, points, verdict):
    named = ("pretrained-loca", "pretrained-reselect", "pretrained-best")
    found = analysis.verdicts(moved(stored, points))
    assert [(one["comparison"], one["verdict"]) for one in found] == [(n, verdict) for n in named]


def test_only_seeds_that_every_task_has_are_compared(stored):
    rows = [dict(row) for row in stored if row["setting"] == "main"]
    (gone,) = [row for row in rows
               if (row["task"], row["method"], row["seed"]) == ("cola", "loca", 3)]  # fmt: skip
    fewer = [row for row in rows if row is not gone]
    seeds = analysis.compare(fewer, DESIGN["primary"])["seeds"]
    assert seeds.to_dict() == {"loca": DESIGN["seeds"] - 1, "loca-reselect": DESIGN["seeds"]}
    assert analysis.verdicts(fewer) == []
    found = analysis.primary(fewer)
    assert found["student_holm"].tolist() == holm(found["student"].tolist())
    assert not len(analysis.compare(rows[:5], ["loca"]))
    # A run that diverged has the worst score of its task.
    gone |= {"metric": None, "loss": None, "parts": None, "diverged": True}
    worst = min(row["metric"] for row in rows if row["task"] == "cola" and row["metric"])
    assert analysis.scores(rows).loc[("cola", 3), "loca"] == pytest.approx(100 * worst)


def test_gains_are_fractions_between_probe_and_full_fine_tuning(stored):
    mine = [row for row in stored if row["setting"] == "main"]
    found = analysis.gains(mine, ["linear-probing", "full", "loca"])
    probe, full, loca = (by_kind(stored, name).mean() for name in found)
    expected = {"linear-probing": 0, "full": 1, "loca": (loca - probe) / (full - probe)}
    assert found.loc["gain"].to_dict() == pytest.approx(expected)


def test_metrics():
    rng = np.random.default_rng(0)
    x, y = torch.tensor(rng.normal(size=(2, 50)))
    assert correlation(x, y) == pytest.approx(stats.pearsonr(x, y).statistic)
    assert correlation(torch.ones(5), y[:5]) == 0
    a, b = (x > 0).long(), (y > 0).long()
    assert correlation(a, b) == pytest.approx(np.corrcoef(a, b)[0, 1])  # that of Matthews
    assert accuracy(a, b) == np.mean((a == b).numpy())


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


def test_other_data_are_named_before_anything_is_trained(texts, tmp_path, monkeypatch):
    def refused(words):
        with pytest.raises(ResourceError, match=words):
            runs.prepare_all(texts, tmp_path / "others")

    text = (texts / "pos").read_text()
    (texts / "pos").write_text(text.replace("sad", "cold"))
    refused("the texts of mood differ from those of the design, whose source is made up")
    for name in ("pairs", "neg"):
        (texts / name).unlink()
    refused("has no neg, pairs")
    monkeypatch.setattr(runs, "library_version", lambda _: "0.2.0")
    refused(r"design has [\w-]+ [\d.]+, and 0.2.0 is installed; pip install [\w-]+==")


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
    found = {row["method"]: row["retained"] for row in runs.retained(group, prepared)}
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


def test_the_command_prints_the_design_without_data(tmp_path):
    done = CliRunner().invoke(main, ["--out", str(tmp_path)])
    assert done.exit_code == 0
    assert "Primary, two comparisons" in done.output
    assert "0 rows" in done.output
    assert not list(Path(tmp_path).iterdir())
