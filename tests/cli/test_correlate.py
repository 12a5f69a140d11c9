"""``loca-theory correlate`` as a user meets it."""

import csv
import json
import re
import sys

import pandas as pd
import pytest

SMALL = ("correlate", "--K", "24", "--r", "2,4", "--draws", "25", "--quiet", "--jobs", "1")


def test_json_has_the_three_tables(cli, here):
    done = cli(*SMALL, "--structures", "equicorrelated,spiked", "--rho", "0..0.4..0.1",
               "--fraction", "0..0.4..0.1", "--format", "json")  # fmt: skip
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    assert set(document) == {"rows", "crossings", "detection", "manifest"}
    assert {"structure", "parameter", "value", "protocol", "K", "r", "method", "error",
            "standard_error", "draws"} <= set(document["rows"][0])  # fmt: skip
    assert {"structure", "protocol", "parameter", "r", "crossing", "low", "high"} <= set(
        document["crossings"][0]
    )
    assert {"structure", "parameter", "value", "statistic", "centred", "mean", "sd",
            "critical_value", "level", "power"} <= set(document["detection"][0])  # fmt: skip
    same = [row for row in document["crossings"] if row["protocol"] == "same-draw"]
    # 11ᵀ is one atom of the DCT: under the same draw LoRA never overtakes.
    assert all(row["crossing"] is None for row in same if row["structure"] == "equicorrelated")
    assert all(0 < row["crossing"] < 0.4 for row in same if row["structure"] == "spiked")


def test_the_grid_is_the_one_asked_for(cli, here):
    done = cli(*SMALL, "--structures", "ar1", "--rho", "0,0.1,0.3", "--format", "csv")
    values = {row["value"] for row in csv.DictReader(done.out.splitlines())}
    assert values == {"0.0", "0.1", "0.3"}


def test_out_stores_tables_and_figures(cli, here):
    done = cli(*SMALL, "--structures", "spiked", "--fraction", "0..0.4..0.1", "--out", here / "out")
    assert done.code == 0, done.err
    names = {path.name for path in (here / "out").iterdir() if path.is_file()}
    for stem in ("rows", "crossings", "detection"):
        assert {f"correlate-{stem}.parquet", f"correlate-{stem}.manifest.json"} <= names
    for stem in ("spiked", "crossings", "phase"):
        assert {f"correlate-{stem}.png", f"correlate-{stem}.pdf"} <= names
    assert len(pd.read_parquet(here / "out" / "correlate-rows.parquet")) > 0


OWN = """
from loca_theory import Method

class Half(Method):
    name, title = "half", "half of every entry"
    def approximate(self, matrix, budget, rng=None):
        return matrix / 2
"""


@pytest.fixture
def own(here, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (here / "own_of_correlate.py").write_text(OWN)
    yield "own_of_correlate:Half"
    sys.modules.pop("own_of_correlate", None)


def test_a_method_of_the_users_own_by_module_and_attribute(cli, here, own):
    done = cli(*SMALL, "--structures", "ar1", "--rho", "0,0.2", "--methods", own,
               "--format", "json", "--out", here / "out")  # fmt: skip
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    mine = [row for row in document["rows"] if row["method"] == "half"]
    assert [row["protocol"] for row in mine] == ["same-draw"] * 4
    assert all(abs(row["error"] - 0.25) < 5 * row["standard_error"] for row in mine)
    assert document["manifest"]["grid"]["titles"] == {"half": "half of every entry"}
    assert (here / "out" / "correlate-ar1.png").is_file()


def test_where_the_errors_of_named_methods_are_is_said(cli, here):
    loud = [argument for argument in SMALL if argument != "--quiet"]
    done = cli(*loud, "--structures", "ar1", "--rho", "0", "--methods", "all")
    assert done.code == 0
    assert "errors are in JSON, CSV and the tables and figures of --out" in done.err


BAD = {
    "indefinite": (("--rho", "0,1.5"), 2, "the covariance would not be positive definite"),
    "rank above size": (("--r", "30"), 2, "rank 30 does not fit a 24x24 matrix"),
    "unknown structure": (("--structures", "odd"), 2, "unknown structure 'odd'; choose from"),
    "unknown protocol": (("--protocols", "odd"), 2, "unknown protocol 'odd'; choose from"),
    "unknown method": (("--methods", "odd"), 2, "unknown method 'odd'; choose from"),
    "method without an import": (("--methods", "nowhere:odd"), 2, "cannot import the method"),
    "formula on draws": (
        ("--methods", "M1", "--protocols", "same-draw"),
        2,
        "upper bound has no value under same-draw; leave it out, or use --protocols iid-reference",
    ),
    "range without a step": (("--rho", "0..0.4"), 2, "range with its step"),
    "reversed range": (("--fraction", "0.4..0..0.1"), 2, "is reversed"),
    "fraction of one": (("--fraction", "1"), 2, "needs 0 <= fraction < 1, not 1"),
    "one draw": (("--draws", "1"), 2, "at least 2 draws"),
    "level with too few draws": (("--level", "0.0001"), 2, "needs at least 200000 null draws"),
    "a grid of no structure": (
        ("--structures", "ar1", "--fraction", "0.1"),
        2,
        "--fraction LIST has no effect unless --structures NAMES includes spiked",
    ),
    "too many spikes": (("--structures", "spiked:25"), 2, "can have at most 24 spikes, not 25"),
    "block that does not divide": (
        ("--structures", "blocks:5"),
        2,
        "blocks of 5 do not divide both sides of a 24x24 matrix; choose from 1, 2, 3, 4, 6, 8",
    ),
    "correlation of one": (("--structures", "ar1:1"), 2, "must lie strictly between -1 and 1"),
    "spikes that are no number": (
        ("--structures", "spiked:many"),
        2,
        "spiked takes a whole number after its colon, not 'many'",
    ),
    "level": (("--level", "0"), 2, "level must lie between 0 and 1"),
    "both shapes": (("--shape", "3x4"), 2, "either --K"),
}


@pytest.mark.parametrize(("arguments", "code", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_line(cli, here, arguments, code, message):
    done = cli(*SMALL, *arguments)
    assert message in done.err
    assert re.fullmatch(r"loca-theory: [^\n]+\n", done.err)
    assert (done.code, done.out) == (code, "")
