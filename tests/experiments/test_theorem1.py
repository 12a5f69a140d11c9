"""The command that decides Theorem 1: its table, its files and its data."""

import json

import pytest
from click.testing import CliRunner

from experiments.theorem1 import main


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_says_where_the_order_fails_and_draws_the_margins(here):
    done = CliRunner().invoke(main, ["--largest", "12", "--jobs", "1", "--out", "found"])
    assert done.exit_code == 0, done.output
    assert "K = 4, r = 1 (R > F2)" in done.stdout
    assert "dof: F2 and R at r/K = 0.326747" in done.stdout
    written = {path.name for path in (here / "found").iterdir()}
    assert {"theorem1.parquet", "theorem1.png", "theorem1.manifest.json"} <= written


def test_its_rows_as_data(here):
    done = CliRunner().invoke(main, ["--largest", "7", "--jobs", "1", "--format", "json", "-q"])
    rows = json.loads(done.stdout)["rows"]
    assert {row["accounting"] for row in rows} == {"paper", "trainable", "dof", "bits"}
    assert {(row["K"], row["r"]) for row in rows} == {(4, 1), (5, 1), (6, 1), (7, 1), (7, 2)}
