"""The designs of the experiments: what they say, what they refuse, and what they make of runs."""

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from experiments import design as command
from experiments.finetuning.comparisons.design import DESIGN, DESIGNS, read_design
from experiments.finetuning.comparisons.differences import scores
from experiments.finetuning.methods import find_method
from experiments.finetuning.run_tables import read_runs
from experiments.finetuning.settings import settings
from experiments.study import studies
from loca_theory import InvalidArgumentError, ResourceError
from loca_theory.claims import load_ledger

ROOT = DESIGN.parents[1]
# All runs, with the choice of rates, and their planned CPU hours.
COSTS = {"design": (25680, 4.856), "many-tasks": (5760, 2.24), "after-the-runs": (4992, 0.832)}


@pytest.fixture(scope="module")
def fixed():
    return read_design()


@pytest.fixture(scope="module")
def runs():
    return read_runs(ROOT / "figures" / "finetuning")


@pytest.mark.parametrize("path", DESIGNS, ids=lambda path: path.stem)
def test_a_design_can_be_run_in_the_hours_that_there_are(path):
    fixed = read_design(path)
    assert fixed.cost() == (COSTS[path.stem][0], pytest.approx(COSTS[path.stem][1]))
    assert fixed.cost()[1] <= fixed.file["cost"]["hours"] == 30
    names = [comparison.name for comparison in fixed.comparisons]
    assert len(set(names)) == len(names)
    for comparison in fixed.comparisons:
        assert comparison.family in fixed.file["families"]
        assert comparison.kind in ("greater", "equivalent", "not-worse")
        assert comparison.measure in ("accuracy", "loss")
        assert comparison.margin >= 0.5
        assert not {*comparison.method} & {*comparison.over}
    for task, arm in fixed.arms():
        assert settings(task)
        assert find_method(arm.method)


def test_the_settings_compared_are_those_that_are_run(fixed):
    arms = {arm for pair in fixed.comparisons for arm in (*pair.method, *pair.over) if arm.setting}
    assert {arm.setting for arm in arms} == {"scaling", "alternating", "location_rate"}
    study = studies()["sensitivity"]
    for arm in arms:
        assert arm.method in study.methods
        assert arm.value in study.varied[arm.setting]


def test_what_is_decided_are_empirical_claims_of_the_ledger(fixed):
    kinds = {claim.id: claim.kind for claim in load_ledger().claims}
    decided = [claim for comparison in fixed.comparisons for claim in comparison.claims]
    assert len(decided) == len(set(decided)) == 11
    for claim in (*decided, *(undecided["claim"] for undecided in fixed.file["undecided"])):
        assert kinds[claim] == "empirical"


def test_runs_without_a_score_are_refused(runs):
    runs = runs[runs["task"] == "digits"].head(4)
    with pytest.raises(InvalidArgumentError, match="bits per byte"):
        scores(runs.assign(measure="bits per byte"), "accuracy")
    lacking = runs.assign(metric=None, loss=1.0, diverged=False)
    with pytest.raises(InvalidArgumentError, match=r"the run task digits, method .* has no acc"):
        scores(lacking, "accuracy")
    assert scores(lacking, "loss").tolist() == [0.0] * 4
    # A run that diverged has the worst score of its task.
    worst = scores(runs.assign(metric=[0.9, None, 0.7, 0.8], diverged=[0, 1, 0, 0]), "accuracy")
    assert worst.tolist() == pytest.approx([90, 70, 70, 80])


def test_tables_are_read_once_and_without_the_runs_at_other_rates(runs, tmp_path):
    runs = runs.head(9)
    runs.to_parquet(tmp_path / "runs.parquet")
    runs.head(5).to_parquet(tmp_path / "again.parquet")
    curve = runs.head(3).assign(setting="rate", metric=0.1)
    curve.to_parquet(tmp_path / "curve.parquet")
    pd.DataFrame({"method": ["loca"], "mean": [0.5]}).to_parquet(tmp_path / "summary.parquet")
    assert sorted(read_runs(tmp_path)["metric"]) == pytest.approx(sorted(runs["metric"]))


def test_tables_that_disagree_or_lack_a_column_are_refused(runs, tmp_path):
    with pytest.raises(ResourceError, match="no table of runs"):
        read_runs(tmp_path)
    runs = runs.head(9)
    pd.concat([runs, runs.head(1).assign(metric=0.123)]).to_parquet(tmp_path / "runs.parquet")
    with pytest.raises(ResourceError, match=r"disagree on the run task \w+, method \S+, seed \d"):
        read_runs(tmp_path)
    runs.drop(columns=["scaling", "loss"]).to_parquet(tmp_path / "runs.parquet")
    with pytest.raises(ResourceError, match=r"runs\.parquet has runs without loss, scaling"):
        read_runs(tmp_path)
    (tmp_path / "runs.parquet").write_bytes(b"no table")
    with pytest.raises(ResourceError, match="cannot be read"):
        read_runs(tmp_path)


@pytest.fixture
def invoke(fixed, monkeypatch):
    """The command on two comparisons of the first design, each in a family of its own."""
    first, other = fixed.comparisons[0], fixed.comparisons[7]
    families = {name: fixed.file["families"][name] for name in (first.family, other.family)}
    small = replace(fixed, comparisons=(first, other), file={**fixed.file, "families": families})
    monkeypatch.setattr(command, "DESIGNS", (DESIGN,))
    monkeypatch.setattr(command, "read_design", lambda *_: small)
    return lambda *arguments: CliRunner().invoke(command.main, [*map(str, arguments)])


def test_the_command_prints_the_plan(invoke, fixed):
    result = invoke("--words")
    assert result.exit_code == 0, result.output
    words = ("loca-over-random", "6 × 64", "CPU hours", "not decided: visualization")
    of_file = (fixed.file["analysis"].strip()[:40], f"fixed on {fixed.file['date']}")
    for word in (*words, *of_file):
        assert word in result.output


def test_the_command_prints_and_stores_verdicts(invoke, fixed, runs, tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    first = fixed.comparisons[0]
    gone = (runs["task"] == first.tasks[0]) & (runs["method"] == first.over[0].method)
    runs[~(gone & (runs["seed"] == 1))].to_parquet(folder / "runs.parquet")
    result = invoke(folder, "--out", tmp_path / "found")
    assert result.exit_code == 0, result.output
    assert "Runs are missing" in result.output
    stored = pd.read_parquet(tmp_path / "found" / "verdicts.parquet").set_index("comparison")
    assert pd.isna(stored.loc["loca-over-random", "verdict"])
    assert stored.loc["loca-over-random", "pairs"] == 6 * 64 - 1
    verdict = stored.loc["loca-over-endless", "verdict"]
    assert re.search(rf"^loca-over-endless +{verdict} ", result.output, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "somewhere"], "--out needs the FOLDER"),
        ([Path("no-such-folder")], "has no table of runs"),
    ],
)
def test_the_command_refuses_in_one_line(invoke, arguments, message):
    result = invoke(*arguments)
    assert result.exit_code != 0
    assert message in result.output
    assert len(result.output.strip().splitlines()) == 1
