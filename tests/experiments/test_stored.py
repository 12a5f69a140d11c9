"""The stored tables of results are what the code makes of the stored runs."""

from pathlib import Path

import pandas as pd
import pytest

from experiments.design import store_verdicts
from experiments.finetuning.comparisons.design import read_alternatives
from experiments.finetuning.run_tables import read_runs
from experiments.finetuning.statistics import group_by, summary
from experiments.pretrained import analysis
from experiments.pretrained.runs import stored as stored_runs

FIGURES = Path(__file__).parents[2] / "figures"
RUNS = FIGURES / "finetuning"


def stored(name, folder=RUNS):
    return pd.read_parquet(folder / f"{name}.parquet")


def records(name):
    rows = stored(name).to_dict("records")
    return [{k: None if pd.isna(v) else v for k, v in row.items()} for row in rows]


def assert_stored(computed, name, folder=RUNS):
    """A missing value is None in rows, and NaN or NA in a table."""
    expected = stored(name, folder)
    computed = pd.DataFrame(computed)[list(expected)].astype(expected.dtypes.to_dict())
    pd.testing.assert_frame_equal(computed, expected)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The tables of verdicts and of alternatives, made anew from the stored runs."""
    folder = tmp_path_factory.mktemp("tables")
    store_verdicts(read_runs(RUNS), folder)
    return folder


@pytest.mark.parametrize("name", ["verdicts", "alternatives"])
def test_decisions(tables, name):
    decisions = [stored(name, folder) for folder in (RUNS, tables)]
    # Which claims it decides is told by the ledger.
    pd.testing.assert_frame_equal(*(table.drop(columns="claims") for table in decisions))


def test_an_alternative_has_other_runs_and_the_same_question(tables):
    """The verdict differs because the runs do: tasks, seeds, margin and level are the same."""
    verdicts, alternatives = (
        stored(name, tables).set_index("comparison") for name in ("verdicts", "alternatives")
    )
    same = ["family", "kind", "measure", "margin", "tasks", "seeds", "pairs"]
    for original, fields in read_alternatives().items():
        other, alternative = verdicts.loc[original], alternatives.loc[fields["name"]]
        assert list(alternative[same]) == list(other[same])
        assert alternative["title"] != other["title"]
        assert alternative["difference"] != other["difference"]
    assert len(alternatives) == len(read_alternatives())


BY_R = ("task", "method", "r")
VARIED = ("task", "setting", "label", "value", "method")


@pytest.mark.parametrize(
    ("name", "by", "reference", "of_each"),
    [
        ("budgets", BY_R, {"method": "lora"}, "task"),  # tests are adjusted over those of a task
        ("many-tasks", BY_R, {"method": "loca-v1"}, "measure"),
        ("sensitivity", VARIED, None, "measure"),
    ],
)
def test_summaries(name, by, reference, of_each):
    groups = group_by(records(name), [of_each]).values()
    lines = [line for rows in groups for line in summary(rows, by, reference=reference)]
    assert_stored(lines, f"{name}-summary")


def test_comparisons_of_the_pretrained_model():
    folder = FIGURES / "pretrained"
    assert_stored(analysis.verdicts(list(stored_runs(folder).values())), "comparisons", folder)
