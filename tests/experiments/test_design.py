"""The design of the experiments: what it says, what it refuses, and what it makes of runs."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from experiments import design as command
from experiments.finetuning.methods import find_method
from experiments.finetuning.run_tables import distinct, read_runs
from experiments.finetuning.settings import settings
from experiments.finetuning.verdicts.decisions import plan, progress
from experiments.finetuning.verdicts.design import (
    DESIGN,
    DESIGNS,
    read_design,
)
from experiments.finetuning.verdicts.estimates import differences, scores
from experiments.study import studies
from loca_theory import InvalidArgumentError, ResourceError

CLAIMS = DESIGN.parents[1] / "loca_theory" / "claims" / "claims.toml"
SMALL = """
date = 2026-11-23
analysis = "as it is"
[seeds]
results = 4
tuning = 2
rates = 3
text = 3
[cost]
seconds = 0.5
text = 10
hours = 1
[power]
between = [0.0, 0.5]
wanted = 0.9
[tasks]
all = ["text", "generation"]
[families.a]
title = "First?"
reason = "It is one question."
[families.b]
title = "Second?"
reason = "It is another."
[[comparisons]]
name = "plain"
family = "a"
claims = ["ablation.random-locations"]
question = "Is it better?"
kind = "greater"
method = "loca"
over = "lora"
SAME
[[comparisons]]
name = "curve"
family = "a"
question = "Is it best inside?"
kind = "equivalent"
method = "loca"
setting = "scaling"
inside = [1.0]
outside = [0.5, 4.0]
SAME
[[comparisons]]
name = "fewer"
family = "b"
question = "Do fewer do?"
kind = "not-worse"
method = "loca"
r = [1, 2]
over = "lora"
over_r = 8
tasks = ["text"]
SAME
[context]
methods = ["full"]
[[curves]]
method = "loca"
setting = "scaling"
values = [0.5, 1.0, 2.0]
[[undecided]]
claim = "ablation.joint"
reason = "No time."
"""
SMALL = SMALL.replace(
    "SAME",
    """
margin = 1.0
margin_from = "chosen"
standard_deviation = 2.0
standard_deviation_from = "assumed"
""",
)
PLAIN, CURVE, FEWER = range(3)


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "design.toml"
    path.write_text(SMALL, encoding="utf-8")
    return read_design(path)


@pytest.fixture(scope="module")
def fixed():
    return read_design()


@pytest.mark.parametrize("path", DESIGNS, ids=lambda path: path.stem)
def test_a_design_can_be_run_in_the_hours_that_there_are(path):
    fixed = read_design(path)
    assert fixed.cost()[1] <= fixed.hours == 30
    names = [one.name for one in fixed.comparisons]
    assert len(set(names)) == len(names)
    for one in fixed.comparisons:
        assert one.family in fixed.families
        assert one.kind in ("greater", "equivalent", "not-worse")
        assert one.measure in ("accuracy", "loss")
        assert one.margin >= 0.5
        assert one.seeds >= 2
        assert not {*one.method} & {*one.over}
        assert {arm.r for arm in one.over} <= {None, 1, 2, 4, 8}
    for task, arm in fixed.arms():
        assert settings(task)
        assert find_method(arm.method)


def test_the_settings_compared_are_those_that_are_run(fixed):
    arms = {arm for one in fixed.comparisons for arm in (*one.method, *one.over) if arm.setting}
    assert {arm.setting for arm in arms} == {"scaling", "alternating", "location_rate"}
    study = studies()["sensitivity"]
    for arm in arms:
        assert arm.method in study.methods
        assert arm.value in study.varied[arm.setting]


def test_what_is_decided_are_empirical_claims_of_the_ledger(fixed):
    claims = {one["id"]: one for one in tomllib.loads(CLAIMS.read_text("utf-8"))["claim"]}
    decided = [claim for one in fixed.comparisons for claim in one.claims]
    assert len(decided) == len(set(decided)) == 11
    for claim in (*decided, *fixed.undecided):
        assert claims[claim]["kind"] == "empirical"


def test_the_cost_counts_shared_runs_once(small):
    # Tuned on text: loca, lora, loca with r = 1 and 2, lora with r = 8, full; on generation: loca,
    # lora, full. On both with a setting: α = 0.5, 1, 4, and 2 for the curve. Each tuned one has 3
    # rates on 2 seeds in addition. Comparisons have the seeds of their task with the fewest.
    text = 6 * (3 + 6) + 4 * 3
    generation = 2 * (3 + 6) + (4 + 6) + 3 * 3 + 4
    runs, hours = small.cost()
    assert runs == text + generation
    assert hours == pytest.approx((10 * text + 0.5 * generation) / 3600)
    assert small.cost([small.comparisons[FEWER]])[0] == 3 * (3 + 6)


def run(task, method, seed, metric, **changed):
    chosen = settings(task)
    is_loca = method.startswith("loca")
    return {
        "task": task,
        "method": method,
        "r": None if method == "full" else chosen["r"],
        "seed": seed,
        "scaling": 1.0 if is_loca else None,
        "alternating": chosen["alternating"] if is_loca else None,
        "location_rate": chosen["location_rate"] if is_loca else None,
        "measure": "accuracy",
        "metric": metric,
        "loss": None if metric is None else 1 - metric,
        "diverged": metric is None,
        **changed,
    }


def table(rows):
    return pd.DataFrame(rows).astype({"metric": float, "loss": float, "scaling": float})


def all_runs(rng):
    """Every run of the small design."""
    rows = []
    for task in ("text", "generation"):
        for seed in range(3):
            kinds = [("loca", {}), ("lora", {}), ("full", {})]
            kinds += [("loca", {"scaling": value}) for value in (0.5, 4.0)]
            kinds += [("loca", {"r": r}) for r in (1, 2) if r != settings(task)["r"]]
            kinds += [("lora", {"r": 8})]
            rows += [run(task, name, seed, rng.uniform(0.6, 0.8), **more) for name, more in kinds]
    return table(rows)


def metrics(runs, task, **wanted):
    mine = runs[(runs["task"] == task) & (runs["seed"] < 3)]
    for name, value in wanted.items():
        mine = mine[mine[name] == value]
    return 100 * mine.sort_values("seed")["metric"].to_numpy()


def test_a_side_with_several_settings_or_budgets_is_their_mean(small):
    """Whatever the order of the runs."""
    runs = all_runs(np.random.default_rng(1)).sample(frac=1, random_state=0)
    plain, curve, fewer = small.comparisons
    own = settings("text")["r"]
    at = {v: metrics(runs, "text", method="loca", r=own, scaling=v) for v in (0.5, 1.0, 4.0)}
    lora = metrics(runs, "text", method="lora", r=own)
    assert differences(runs, plain)[0] == pytest.approx(at[1.0] - lora)
    assert differences(runs, curve)[0] == pytest.approx(at[1.0] - (at[0.5] + at[4.0]) / 2)
    small = [metrics(runs, "text", method="loca", r=r, scaling=1.0) for r in (1, 2)]
    large = metrics(runs, "text", method="lora", r=8)
    assert differences(runs, fewer)[0] == pytest.approx(sum(small) / 2 - large)


def test_a_run_that_diverged_has_the_worst_score_of_its_task():
    runs = table([run("text", "loca", 0, None), run("text", "loca", 1, 0.7),
                  run("text", "lora", 0, 0.5), run("generation", "lora", 0, 0.2)])  # fmt: skip
    assert list(scores(runs, "accuracy")) == pytest.approx([50, 70, 50, 20])


def test_runs_without_a_score_are_refused():
    with pytest.raises(InvalidArgumentError, match="bits per byte"):
        scores(table([run("text", "loca", 0, 2.0, measure="bits per byte")]), "accuracy")
    lacking = table([run("text", "loca", 3, None, loss=1.0, diverged=False)])
    with pytest.raises(InvalidArgumentError, match="the run task text, method loca, seed 3 has no"):
        scores(lacking, "accuracy")
    assert scores(lacking, "loss").tolist() == [0.0]


def test_without_some_runs_there_is_power_and_no_verdict(small):
    runs = all_runs(np.random.default_rng(3))
    is_missing = (runs["task"] == "generation") & (runs["method"] == "lora") & (runs["seed"] == 1)
    (plain, pairs, decision), curve, _ = progress(small, runs[~is_missing])
    assert pairs == (3, 2)
    assert decision is None
    assert curve[2] is not None
    so_far = plan(plain, 2, 0.5, pairs)
    assert (so_far.tasks, so_far.seeds, so_far.level) == (2, 2, 0.025)
    assert plan(plain, 2, 0.5, (3, 1)) is None
    assert plan(plain, 2, 0.5).seeds == 3


def test_tables_are_read_once_and_without_the_runs_at_other_rates(tmp_path):
    runs = all_runs(np.random.default_rng(4))
    runs.to_parquet(tmp_path / "runs.parquet")
    runs.head(5).to_parquet(tmp_path / "again.parquet")
    curve = runs.head(3).assign(setting="rate", metric=0.1)
    curve.to_parquet(tmp_path / "curve.parquet")
    pd.DataFrame({"method": ["loca"], "mean": [0.5]}).to_parquet(tmp_path / "summary.parquet")
    found = read_runs(tmp_path)
    assert len(found) == len(runs)
    assert sorted(found["metric"]) == pytest.approx(sorted(runs["metric"]))


def test_tables_that_disagree_or_lack_a_column_are_refused(tmp_path):
    runs = all_runs(np.random.default_rng(5))
    with pytest.raises(ResourceError, match="disagree on the run task text, method loca, seed 0"):
        distinct(pd.concat([runs, runs.head(1).assign(metric=0.123)]))
    with pytest.raises(ResourceError, match="no table of runs"):
        read_runs(tmp_path)
    runs.drop(columns=["scaling", "loss"]).to_parquet(tmp_path / "runs.parquet")
    with pytest.raises(ResourceError, match=r"runs\.parquet has runs without loss, scaling"):
        read_runs(tmp_path)
    (tmp_path / "runs.parquet").write_bytes(b"no table")
    with pytest.raises(ResourceError, match="cannot be read"):
        read_runs(tmp_path)


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    path = tmp_path / "design.toml"
    path.write_text(SMALL, encoding="utf-8")
    monkeypatch.setattr(command, "DESIGNS", (path,))
    return lambda *arguments: CliRunner().invoke(command.main, [str(one) for one in arguments])


def test_the_command_prints_the_plan(invoke):
    result = invoke("--words")
    assert result.exit_code == 0, result.output
    for word in ("as it is", "First?", "plain", "2 × 3", "CPU hours", "fixed on 2026-11-23",
                 "not decided: ablation.joint. No time."):  # fmt: skip
        assert word in result.output
    only = invoke("--family", "b").output
    assert "fewer" in only
    assert "plain" not in only


def test_the_command_prints_and_stores_verdicts(invoke, tmp_path):
    runs = all_runs(np.random.default_rng(6))
    folder = tmp_path / "runs"
    folder.mkdir()
    is_plain = (runs["method"] == "lora") & (runs["r"] < 8)
    runs[~(is_plain & (runs["seed"] == 2))].to_parquet(folder / "runs.parquet")
    result = invoke(folder, "--out", tmp_path / "found")
    assert result.exit_code == 0, result.output
    assert "Runs are missing: the power so far" in result.output
    stored = pd.read_parquet(tmp_path / "found" / "verdicts.parquet").set_index("comparison")
    assert pd.isna(stored.loc["plain", "verdict"])
    assert stored.loc["plain", "pairs"] == 4
    assert re.search(rf"^fewer +{stored.loc['fewer', 'verdict']} ", result.output, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--family", "z"], "there is no family z; use one of a, b"),
        (["--out", "somewhere"], "--out needs the FOLDER"),
        ([Path("no-such-folder")], "has no table of runs"),
    ],
)
def test_the_command_refuses_in_one_line(invoke, arguments, message):
    result = invoke(*arguments)
    assert result.exit_code != 0
    assert message in result.output
    assert len(result.output.strip().splitlines()) == 1
