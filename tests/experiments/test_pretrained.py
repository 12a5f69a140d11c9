"""The ablation on a pretrained model: its design, statistics, texts, and stored runs."""

import json
from copy import deepcopy
from dataclasses import asdict, replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from scipy import stats

from experiments.finetuning.metrics import accuracy, constant_score, correlation
from experiments.finetuning.tasks import published
from experiments.finetuning.training import training_runs
from experiments.pretrained import analysis, runs
from experiments.pretrained.__main__ import main
from experiments.pretrained.runs import Trial
from experiments.verdicts import holm
from loca_theory.errors import ResourceError
from loca_theory.sweeps.tables import store_rows

DESIGN = runs.FIRST


# --- the design ------------------------------------------------------------------------------


@pytest.fixture
def design(monkeypatch):
    """The design, to be changed."""
    for name, value in deepcopy(DESIGN).items():
        monkeypatch.setitem(DESIGN, name, value)
    return DESIGN


def test_the_runs_that_count_have_the_best_of_the_rates_that_were_tried():
    table, rates = pd.DataFrame(runs.stored(runs.STORED).values()), ["rate", "location_rate"]
    counted = table[~table["tunes"]].set_index(["setting", "method"])[rates]
    for key, tried in table[table["tunes"]].groupby(["setting", "method"]):
        means = tried.groupby(rates)["metric"].mean()
        (chosen,) = {*counted.loc[[key]].itertuples(index=False, name=None)}
        assert means[chosen] == means.max()


# --- the statistics --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored():
    """The stored runs that count."""
    rows = runs.stored(runs.STORED).values()
    return [row for row in rows if not row["tunes"]]


def test_the_error_of_the_test_sets_is_that_of_means_of_parts(stored):
    main_rows = [row for row in stored if row["setting"] == "main"]
    text_error = analysis.compare(main_rows, ["loca"]).loc["loca", "text_error"]

    def mean_parts(task, method):
        runs_of_both = [row for row in main_rows if (row["task"], row["method"]) == (task, method)]
        return np.mean([row["parts"] for row in runs_of_both], axis=0)

    of_kinds = []
    for tasks in DESIGN["kinds"].values():
        gaps = [mean_parts(task, "loca") - mean_parts(task, DESIGN["reference"]) for task in tasks]
        variances = [100**2 * np.var(gap, ddof=1) / 10 for gap in gaps]
        of_kinds.append(sum(variances) / len(tasks) ** 2)
    assert text_error == pytest.approx(sum(of_kinds) ** 0.5 / 8)


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
    kinds = {task: n for n, tasks in enumerate(DESIGN["kinds"].values()) for task in tasks}
    # So many points more for every method but the reference, by kind.
    moved = [
        dict(row, metric=row["metric"] + points(kinds[row["task"]]) / 100)
        if row["method"] != DESIGN["reference"] or row["setting"] == "best"
        else row
        for row in stored
    ]
    decided = [(row["comparison"], row["verdict"]) for row in analysis.verdicts(moved)]
    assert decided == [(n, verdict) for n in named]


def test_only_seeds_that_every_task_has_are_compared(stored):
    rows = [dict(row) for row in stored if row["setting"] == "main"]
    (gone,) = [
        row for row in rows if (row["task"], row["method"], row["seed"]) == ("cola", "loca", 3)
    ]
    fewer = [row for row in rows if row is not gone]
    seeds = analysis.compare(fewer, DESIGN["primary"])["seeds"]
    assert seeds.to_dict() == {"loca": DESIGN["seeds"] - 1, "loca-reselect": DESIGN["seeds"]}
    assert analysis.verdicts(fewer) == []
    primary = analysis.primary(fewer)
    assert primary["student_holm"].tolist() == holm(primary["student"]).tolist()
    assert not len(analysis.compare(rows[:5], ["loca"]))
    # A run that diverged has the worst score of its task.
    gone |= {"metric": None, "loss": None, "parts": None, "diverged": True}
    worst = min(row["metric"] for row in rows if row["task"] == "cola" and row["metric"])
    assert analysis.score_table(rows).loc[("cola", 3), "loca"] == pytest.approx(100 * worst)


def test_gains_are_fractions_between_probe_and_full_fine_tuning(stored):
    main_rows = [row for row in stored if row["setting"] == "main"]
    gains = analysis.gains(main_rows, ["linear-probing", "full", "loca"])
    probe, full, loca = gains.drop("gain").mean()
    expected = {"linear-probing": 0, "full": 1, "loca": (loca - probe) / (full - probe)}
    assert gains.loc["gain"].to_dict() == pytest.approx(expected)


def test_metrics():
    rng = np.random.default_rng(0)
    x, y = torch.tensor(rng.normal(size=(2, 50)))
    assert correlation(x, y) == pytest.approx(stats.pearsonr(x, y).statistic)
    assert correlation(torch.ones(5), y[:5]) == 0
    a, b = (x > 0).long(), (y > 0).long()
    assert correlation(a, b) == pytest.approx(np.corrcoef(a, b)[0, 1])  # that of Matthews
    assert accuracy(a, b) == np.mean((a == b).numpy())
    # Of predictions that are all the same: the most frequent class, and no correlation.
    assert constant_score(torch.tensor([2, 0, 2, 1, 2]), accuracy) == 0.6
    assert constant_score(x, correlation) == 0


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


def test_texts_of_other_files_are_in_no_split(tmp_path):
    lines = [f"{score}\tfirst {score}\tsecond" for score in range(6)]
    (tmp_path / "all").write_text("\n".join(lines))
    (tmp_path / "some").write_text("\n".join(lines[:2]))
    chosen = {**runs.trial_settings("similarity"), "data": str(tmp_path), "pool": 9}
    labels_of = {}
    for excluded in ([], ["some"]):
        files = {"train_files": ["all"], "without_files": excluded}
        splits, _ = published.make({**chosen, **files})
        labels = torch.cat([split["labels"] for split in splits.values()])
        labels_of[len(excluded)] = sorted(labels.tolist())
    assert labels_of[0] == pytest.approx([score / 5 for score in range(6)])
    assert labels_of[1] == pytest.approx([score / 5 for score in range(2, 6)])


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
    examples = {"train": 24, "pool": 24, "validation": 20, "test": 30}
    design["protocol"] |= {"steps": 12, "batch": 4, "length": 8, **examples, "every": 12}
    mood = {"title": "m", "pattern": "^(.+)$", "classes": 2, "train_files": ["neg", "pos"]}
    similar = {"title": "s", "pattern": r"^(.+)\t(.+)\t(.+)$", "classes": 1}
    similar |= {"train_files": ["pairs"], "pairs": True, "measure": "correlation"}
    shared = {"source": "made up", "test_files": []}
    design["tasks"] = {"mood": {**shared, **mood}, "similar": {**shared, **similar}}
    design["kinds"] = {"mood": ["mood"], "similar": ["similar"]}
    design["settings"] = {"main": {"device": "cpu"}}
    design["digests"] = {}
    prepared = runs.prepare_all(data, tmp_path / "tasks")
    design["digests"] = {task: task_files.digest for task, task_files in prepared.items()}
    return data


def test_splits_are_disjoint_and_sorted_by_length(texts, design):
    for task in design["tasks"]:
        splits, _ = published.make({**runs.trial_settings(task), "data": str(texts)})
        assert [len(splits[split]["labels"]) for split in ("train", "validation", "test")] == [
            24,
            20,
            30,
        ]
        rows = torch.cat([split["input_ids"].flatten(1) for split in splits.values()])
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


def test_runs_continue_and_repeat_to_the_bit(texts, tmp_path, monkeypatch):
    out, prepared = tmp_path / "out", runs.prepare_all(texts, tmp_path / "tasks")
    trials = [
        Trial("main", task, method, 1e-2, 5e-3, 1e-2, 1000 * tunes, tunes=tunes)
        for tunes in (False, True)
        for task, method in product(prepared, ("loca-v1", "loca"))
    ]
    stops = iter([False] * 3 + [True])
    runs.continue_runs(trials, prepared, out, stops=stops.__next__)
    first = runs.stored(out)
    assert list(first) == trials[:3]
    store_rows([asdict(trial) for trial in trials], {}, tmp_path / "before", runs.TABLE)
    monkeypatch.setattr(runs, "STORED", tmp_path / "before")
    monkeypatch.setattr("experiments.pretrained.__main__.TASKS", tmp_path / "tasks")

    def call(*options):
        return CliRunner().invoke(main, ["--data", str(texts), "--out", str(out), *options])

    assert call().exit_code == 0
    rows = runs.stored(out)
    assert list(rows) == trials
    assert {trial: rows[trial] for trial in first} == first
    for trial, row in rows.items():
        assert len(row["parts"]) == 10
        assert row["measure"] == ("correlation" if trial.task == "similar" else "accuracy")
        assert row["head"] == (385 * 2 if trial.task == "mood" else 2 * 384 + 1)
    scores = {t: row["metric"] for t, row in rows.items() if not t.tunes and t.task == "mood"}
    assert min(scores.values()) > 0.7
    repeated = call("--again", "mood")
    assert repeated.output.splitlines() == ["mood, loca-v1: the same", "mood, loca: the same"]
    assert repeated.exit_code == 0
    store_rows([{**row, "code": "other"} for row in first.values()], {}, out, runs.TABLE)
    refused = call()
    assert f"{out} has rows of the code other, and this is {runs.code_of(DESIGN)}" in refused.output
    assert refused.exit_code
    refused = call("--again", "nope")
    assert "has no run with seed 0 of nope from CPU, torch" in refused.output
    assert refused.exit_code


def test_components_are_put_where_another_increment_is_largest(texts, tmp_path, design):
    design["settings"]["best"] = {"device": "cpu", "located_by": {"method": "full", "rate": 1e-3}}
    prepared = runs.prepare_all(texts, tmp_path / "tasks")["mood"]
    trial = Trial("best", "mood", "loca-v1", 1e-3, 5e-3, 1e-2, 0, tunes=False)
    _, point = runs.point_of(trial, prepared)
    located = runs._located(trial, prepared)
    with training_runs(point, prepared.folder.parent, located) as (group, *_):
        (run,) = group.runs
        energies = runs.spectra(replace(trial, setting="main", method="full"), prepared)
        for energy, spectrum in zip(energies, run.spectra, strict=True):
            largest, _ = energy.flatten().topk(len(spectrum.indices))
            assert energy[tuple(spectrum.indices.T)].sum() == pytest.approx(float(largest.sum()))
    assert run.moved() == 0


def test_the_command_prints_the_design_without_data(tmp_path):
    done = CliRunner().invoke(main, ["--out", str(tmp_path)])
    assert done.exit_code == 0
    assert "Primary, two comparisons" in done.output
    assert "0 rows" in done.output
    assert not list(tmp_path.iterdir())


def test_the_command_prints_the_stored_result():
    done = CliRunner().invoke(main, [])
    assert done.exit_code == 0, done.output
    for title in ("main: primary", "still: mean scores", "best: mean scores", "that are stored"):
        assert title in done.output
    assert "still: primary" not in done.output
    assert f"{len(runs.stored(runs.STORED))} rows" in done.output
