"""``loca-theory toy`` as a user meets it."""

import json

import pandas as pd
import pytest
from scipy.stats import binomtest

from loca_theory.convergence.interpretations import INTERPRETATIONS
from loca_theory.convergence.searches import SEARCHES

SMALL = ("toy", "--problems", "30", "--steps", "400", "--jobs", "1", "--quiet")
COLUMNS = {"search", "interpretation", "size", "components", "problems", "recovered", "low", "high",
           "median_final_loss", "diverged"}  # fmt: skip


def test_json_has_a_row_for_every_search(cli, here):
    done = cli(*SMALL, "--search", "central,swap", "--format", "json")
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    assert [row["search"] for row in document["rows"]] == ["central", "swap"]
    for row in document["rows"]:
        assert set(row) >= COLUMNS
        successes = round(row["recovered"] * row["problems"])
        ends = binomtest(successes, row["problems"]).proportion_ci(0.95)
        assert (row["low"], row["high"]) == (ends.low, ends.high)
    assert document["manifest"]["grid"]["rates"] == {"lr": 0.02, "location_lr": 0.05}
    assert document["manifest"]["grid"]["problems"] == {"6": 30}


def test_every_search_and_every_interpretation_can_be_asked_for(cli, here):
    small = ("toy", "--problems", "4", "--steps", "40", "--jobs", "1", "--quiet")
    done = cli(*small, "--interpretation", "all", "--format", "csv")
    assert done.code == 0, done.err
    table = [line.split(",")[:2] for line in done.out.splitlines()[1:]]
    assert {tuple(row) for row in table} == {(s, r) for s in SEARCHES for r in INTERPRETATIONS}


def test_the_searches_are_listed(cli, here):
    done = cli("toy", "--search", "help")
    assert [line.split()[0] for line in done.out.splitlines()] == list(SEARCHES)


def test_the_table_fits_a_terminal(cli, here):
    done = cli(*SMALL, "--search", "central,annealed-pursuit")
    assert "30 problems: 6×6, 3 components, Gaussian weights" in done.out
    assert "solved" in done.out
    assert max(map(len, done.out.splitlines())) <= 80
    done = cli(*SMALL, "--search", "swap", "--size", "6,9", "--condition", "1,gaussian")
    assert "condition 1" in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def test_out_stores_tables_and_figures(cli, here):
    done = cli(*SMALL, "--search", "swap,reselect", "--out", here / "out")
    assert done.code == 0, done.err
    names = {path.name for path in (here / "out").iterdir() if path.is_file()}
    for stem in ("rows", "traces"):
        assert {f"toy-{stem}.parquet", f"toy-{stem}.manifest.json"} <= names
    for stem in ("recovery", "spectrum", "loss"):
        assert {f"toy-{stem}.png", f"toy-{stem}.pdf"} <= names
    assert len(pd.read_parquet(here / "out" / "toy-rows.parquet")) == 2


def test_a_rate_that_diverges_is_reported_without_a_number_that_is_none(cli, here):
    done = cli(*SMALL, "--search", "swap", "--lr", "50", "--format", "json")
    (row,) = json.loads(done.out, parse_constant=pytest.fail)["rows"]
    assert row["diverged"] == 30
    assert row["recovered"] == 0.0
    assert row["median_final_loss"] is None
    assert "diverged" in cli(*SMALL, "--search", "swap", "--lr", "50").out
