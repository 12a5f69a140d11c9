"""``loca-theory correlate``, ``toy`` and ``methods``."""

import json
import re

import pandas as pd
import pytest
from scipy.stats import binomtest

from loca_theory.convergence.interpretations import INTERPRETATIONS
from loca_theory.convergence.searches import SEARCHES
from loca_theory.expressivity import METHODS, Budget
from loca_theory.expressivity.coders.registry import CODERS

SMALL = {
    "correlate": ("correlate", "--K", 24, "--r", "2,4", "--draws", 25, "--jobs", 1),
    "toy": ("toy", "--problems", 30, "--steps", 400, "--jobs", 1),
}
SPIKED = (*SMALL["correlate"], "--structures", "spiked", "--fraction", "0..0.4..0.1")


def test_correlate_has_three_tables(cli):
    done = cli(*SPIKED, "--structures", "equicorrelated,spiked", "--rho", "0..0.4..0.1",
               "--format", "json", "--quiet")  # fmt: skip
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


@pytest.mark.parametrize(
    ("command", "tables", "pictures"),
    [
        (SPIKED, ("rows", "crossings", "detection"), ("spiked", "crossings", "phase")),
        (
            (*SMALL["toy"], "--search", "swap,reselect"),
            ("rows", "traces"),
            ("recovery", "spectrum", "loss"),
        ),
    ],
    ids=SMALL,
)
def test_out_stores_tables_and_figures(cli, here, command, tables, pictures):
    name = command[0]
    done = cli(*command, "--out", "out")
    assert done.code == 0, done.err
    names = {path.name for path in (here / "out").iterdir() if path.is_file()}
    assert names == {
        *(f"{name}.{end}" for end in ("parquet", "manifest.json")),
        *(f"{name}-{picture}.{end}" for picture in pictures for end in ("png", "pdf")),
    }
    stored = pd.read_parquet(here / "out" / f"{name}.parquet")
    assert set(stored["table"]) == set(tables)


def test_the_power_of_tests_is_a_short_table(cli):
    """Shares of draws before centring; the rest is in files."""
    command = (*SPIKED, "--quiet")
    shown = cli(*command).out
    table = shown[shown.index("How often tests at level 5% detect the dependence") :]
    heading = next(line for line in table.splitlines() if line.startswith("structure"))
    assert re.split("  +", heading.strip()) == [
        "structure", "T", "largest", "spikes", "low freq."
    ]  # fmt: skip
    rows = json.loads(cli(*command, "--format", "json").out)["detection"]
    powers = [f"{row['power']:.0%}" for row in rows
              if (row["structure"], row["centred"]) == ("independent", False)]  # fmt: skip
    line = next(line for line in table.splitlines() if line.startswith("independent  "))
    assert line.split()[1:] == powers[: len(line.split()) - 1]


def test_correlate_takes_a_method_of_the_users_own_and_says_where_its_errors_are(cli, own_module):
    command = (*SMALL["correlate"], "--structures", "ar1:0.3", "--rho", "0,0.2", "--methods")
    done = cli(*command, own_module, "--format", "json")
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    mine = [row for row in document["rows"] if row["method"] == "own"]
    assert [row["protocol"] for row in mine] == ["same-draw"] * 4
    assert all(abs(row["error"] - 0.81) < 5 * row["standard_error"] for row in mine)
    assert document["manifest"]["grid"]["titles"] == {"own": "a tenth of the matrix"}
    done = cli(*command, own_module)
    assert "errors are in JSON, CSV and the tables and figures of --out" in done.err
    assert "neighbouring rows have correlation ρ, neighbouring columns 0.3" in done.out
    assert "LoCA throughout" in done.out
    assert "throughout: retains more at every strength" in done.out
    assert cli(*command, "all").code == 0


def test_toy_has_a_row_for_every_search(cli):
    done = cli(*SMALL["toy"], "--search", "central,swap", "--format", "json")
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    assert set(document) == {"rows", "manifest"}
    assert [row["search"] for row in document["rows"]] == ["central", "swap"]
    for row in document["rows"]:
        successes = round(row["recovered"] * row["problems"])
        ends = binomtest(successes, row["problems"]).proportion_ci(0.95)
        assert (row["low"], row["high"]) == (ends.low, ends.high)
    assert document["manifest"]["grid"]["rates"] == {"lr": 0.02, "location_lr": 0.05}
    assert document["manifest"]["grid"]["problems"] == {"6": 30}


def test_toy_runs_every_search_under_every_interpretation(cli):
    small = ("toy", "--problems", 4, "--steps", 40, "--jobs", 1)
    done = cli(*small, "--interpretation", "all", "--format", "csv")
    assert done.code == 0, done.err
    table = [line.split(",")[:2] for line in done.out.splitlines()[1:]]
    assert {tuple(row) for row in table} == {(s, r) for s in SEARCHES for r in INTERPRETATIONS}
    listed = cli("toy", "--search", "help").out.splitlines()
    assert [line.split()[0] for line in listed] == list(SEARCHES)


def test_searches_with_the_same_results_share_a_row_and_one_that_diverges_has_no_loss(cli):
    """After a step without a chance, no search has found anything."""
    command = ("toy", "--problems", 4, "--steps", 1, "--size", "6,7", "--jobs", 1)
    shown = cli(*command, "--search", "coefficients-only,central,forward").out
    assert "coefficients-only, central, forward" in shown
    command = (*SMALL["toy"], "--search", "swap", "--lr", 50)
    (row,) = json.loads(cli(*command, "--format", "json").out, parse_constant=pytest.fail)["rows"]
    assert (row["diverged"], row["recovered"], row["median_final_loss"]) == (30, 0.0, None)
    assert "diverged" in cli(*command).out


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        (
            ("--search", "central,annealed-pursuit"),
            ["problems: 30, size: 6×6, components: 3, weights: Gaussian", "found", "median loss"],
        ),
        (
            ("--search", "swap", "--size", "6,9", "--condition", "1,gaussian"),
            ["size", "6×6", "9×9", "condition 1", "Gaussian", "problems: 30, components: 3"],
        ),
    ],
)
def test_the_table_of_toy_fits_a_terminal(cli, options, texts):
    done = cli(*SMALL["toy"], *options)
    assert all(text in done.out for text in texts)
    assert max(map(len, done.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("options", "budget"),
    [((), Budget(768, 768, 8)), (("--K", 12, "--r", 3), Budget(12, 12, 3))],
    ids=["default", "chosen"],
)
def test_methods_have_their_costs_and_references(cli, options, budget):
    done = cli("methods", "--format", "json", *options)
    assert (done.code, done.err) == (0, "")
    rows = {row["name"]: row for row in json.loads(done.out)["methods"]}
    assert list(rows) == list(METHODS)
    for name, method in METHODS.items():
        is_priced = method.exists(budget) and method.parameters(budget) is not None
        assert rows[name]["parameters"] == (method.parameters(budget) if is_priced else None)
        assert rows[name]["stored_bits"] == (method.stored_bits(budget) if is_priced else None)
        assert rows[name]["is_oracle"] == method.is_oracle
        assert rows[name]["reference"] == method.reference
    coders = {row["name"]: row for row in json.loads(done.out)["coders"]}
    assert list(coders) == list(CODERS)
    assert coders["BitDelta"]["reference"] == "arXiv:2402.10193"
    assert coders["Delta-DCT"]["transforms"][:2] == ["none", "dct"]
    published = [row["reference"] for row in list(rows.values())[12:]]
    assert all(one.startswith(("arXiv:", "openreview:")) for one in published)


def test_the_table_of_methods_shows_costs_if_the_method_exists(cli):
    done = cli("methods", "D", "GraLoRA", "U", "--K", 9, "--r", 2)
    methods, _, bounds = done.out.partition("Bounds on errors, by formulas: 1")
    assert "printed line" in bounds
    lines = {line.split()[0]: line for line in methods.splitlines() if line.strip()}
    assert all(text in lines["method"] for text in ("parameters", "stored bits"))
    assert all(text in lines["LoCA"] for text in (" yes ", " 18 "))
    assert " 36 " not in lines["GraLoRA"]
    assert "Coders" not in done.out
    lines = cli("methods").out.partition("Coders, which analyze --bits compares")[2].splitlines()
    (line,) = [one for one in lines if one.startswith("Delta-CoMe")]
    assert "arXiv:2406.08903" in line
