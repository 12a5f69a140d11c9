"""``loca-theory correlate`` as a user meets it."""

import json
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
