"""``loca-theory correlate``, ``toy`` and ``methods``."""

import json
import math
import re

import pytest

from loca_theory.convergence.interpretations import INTERPRETATIONS
from loca_theory.convergence.searches import SEARCHES
from loca_theory.expressivity import METHODS, Budget
from loca_theory.expressivity.coders.registry import CODERS

SMALL = {
    "correlate": ("correlate", "--K", 24, "--r", "2,4", "--draws", 25, "--jobs", 1),
    "toy": ("toy", "--problems", 30, "--steps", 400, "--jobs", 1),
}
SPIKED = (*SMALL["correlate"], "--structures", "spiked", "--fraction", "0..0.4..0.1")


@pytest.mark.parametrize(
    ("command", "keys", "shown"),
    [
        (SPIKED, {"rows", "crossings", "detection", "manifest"}, ("spiked", "crossings", "phase")),
        (
            (*SMALL["toy"], "--search", "swap,reselect"),
            {"rows", "manifest"},
            ("recovery", "spectrum", "loss"),
        ),
        (("analyze", "--demo", "--include", "0.*q_proj", "--r", 1), {"rows", "skipped"}, ()),
    ],
    ids=lambda part: part[0] if isinstance(part, tuple) and part else None,
)
def test_out_stores_tables_and_figures_or_a_page(cli, cwd, command, keys, shown):
    name = command[0]
    done = cli(*command, "--out", "out", "--format", "json")
    assert done.code == 0, done.err
    assert set(json.loads(done.out)) >= keys
    names = {path.name for path in (cwd / "out").iterdir() if path.is_file()}
    pictures = {f"{name}-{picture}.{end}" for picture in shown for end in ("png", "pdf")}
    tables = {f"{name}.parquet", f"{name}.manifest.json"}
    assert names == tables | (pictures or {f"{name}.html"})


def test_the_power_of_tests_is_a_short_table(cli):
    """Shares of draws before centring; the rest is in files."""
    command = (*SPIKED, "--detect", "--quiet")
    shown = cli(*command).out
    table = shown[shown.index("How often tests at level 5% detect the dependence") :]
    heading = next(line for line in table.splitlines() if line.startswith("structure"))
    assert re.split("  +", heading.strip()) == ["structure", "T", "largest", "spikes", "low freq."]
    rows = json.loads(cli(*command, "--format", "json").out)["detection"]
    powers = [
        f"{row['power']:.0%}"
        for row in rows
        if (row["structure"], row["centred"]) == ("independent", False)
    ]
    line = next(line for line in table.splitlines() if line.startswith("independent  "))
    assert line.split()[1:] == powers[: len(line.split()) - 1]


def test_correlate_takes_a_method_of_the_users_own_and_says_where_its_errors_are(cli, own_module):
    command = (*SMALL["correlate"], "--structures", "ar1:0.3", "--rho", "0,0.2", "--methods")
    done = cli(*command, own_module)
    assert "errors are in JSON, CSV and the tables and figures of --out" in done.err
    assert "neighbouring rows have correlation ρ, neighbouring columns 0.3" in done.out
    assert "LoCA throughout" in done.out
    assert "'LoCA throughout': LoCA retains more at every" in done.out
    assert cli(*command, "all", "--draws", 2).code == 0


def test_correlate_takes_a_structure_of_the_users_own(cli, own_module):
    command = (*SMALL["correlate"], "--structures", f"spiked,{own_module}Structure")
    done = cli(*command, "--rho", "0,0.5", "--fraction", "0,0.2")
    assert done.code == 0, done.err
    assert "own-structure         a column that all columns have a part of" in done.out


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


def test_the_table_of_toy_says_what_was_run(cli):
    shown = cli(*SMALL["toy"], "--search", "central").out
    line = "problems: 30, size: 6×6, components: 3, weights: Gaussian"
    assert all(text in shown for text in (line, "found", "median loss"))
    several = ("--search", "swap", "--size", "6,9", "--condition", "1,gaussian")
    shown = cli(*SMALL["toy"], *several).out
    texts = ("size", "6×6", "9×9", "condition 1", "Gaussian", "problems: 30, components: 3")
    assert all(text in shown for text in texts)


def test_the_table_of_methods_shows_costs_if_the_method_exists(cli):
    done = cli("methods", "LoCA", "GraLoRA", "printed line", "--K", 9, "--r", 2)
    methods, _, bounds = done.out.partition("Bounds on errors, by formulas: 1")
    assert "printed line" in bounds
    lines = {line.split()[0]: line for line in methods.splitlines() if line.strip()}
    assert all(text in lines["method"] for text in ("parameters", "stored bits"))
    assert all(text in lines["LoCA"] for text in (" yes ", " 18 "))
    assert " 36 " not in lines["GraLoRA"]
    assert "Coders" not in done.out
    assert cli("methods", "LoCA,GraLoRA", "printed line", "--K", 9, "--r", 2).out == done.out
    lines = cli("methods").out.partition("Coders, which analyze --bits compares")[2].splitlines()
    (line,) = [text for text in lines if text.startswith("Delta-CoMe")]
    assert "arXiv:2406.08903" in line


def test_methods_have_their_costs_and_references(cli):
    budget = Budget(12, 12, 3)
    document = json.loads(cli("methods", "--K", 12, "--r", 3, "--format", "json").out)
    rows = {row["name"]: row for row in document["methods"]}
    assert list(rows) == list(METHODS)
    for name, method in METHODS.items():
        is_priced = method.exists(budget) and method.parameters(budget) is not None
        expected = {
            "parameters": method.parameters(budget) if is_priced else None,
            "stored_bits": method.stored_bits(budget) if is_priced else None,
            "is_oracle": method.is_oracle,
            "reference": method.reference,
        }
        assert rows[name].items() >= expected.items()
    assert [coder["name"] for coder in document["coders"]] == list(CODERS)


def test_methods_say_the_rate_that_moves_a_matrix_as_far_as_lora(cli):
    document = json.loads(cli("methods", "--K", 64, "--lr", 1e-4, "--format", "json").out)
    rows = {row["name"]: row for row in document["methods"]}
    lora, waves = rows["LoRA"], rows["WaveFT"]
    assert lora["equivalent_lr"] == pytest.approx(1e-4)
    # Orthonormal wavelets, which PEFT scales by 25.
    assert waves["first_step"] == pytest.approx(25e-4 * math.sqrt(waves["parameters"]))
    assert waves["equivalent_lr"] == pytest.approx(1e-4 * lora["first_step"] / waves["first_step"])
    assert rows["entries"]["first_step"] is None is rows["printed line"]["equivalent_lr"]
    without = json.loads(cli("methods", "LoRA", "--K", 64, "--format", "json").out)["methods"][0]
    assert without["first_step"] is None is without["equivalent_lr"]


def test_the_table_of_first_steps(cli):
    shown = cli("methods", "LoRA", "DoRA", "--K", 64, "--lr", "1e-4").out
    assert "equivalent rate" in shown
    assert "Not known: DoRA." in shown
    assert "equivalent rate  " not in cli("methods", "DoRA", "--K", 64, "--lr", "1e-4").out
    refused = cli("methods", "--lr", "0")
    assert refused.code == 2
    assert "lr must be positive" in refused.err
