"""``loca-theory simulate``: what it prints, what it writes, and what it refuses."""

import csv
import io
import json
import re
import sys
from statistics import fmean

import pytest

from loca_theory.expressivity import METHODS, Budget, exact_error
from loca_theory.expressivity.methods.names import DEFAULT_NAMES

COLUMNS = [
    "K",
    "p",
    "q",
    "r",
    "method",
    "numbers",
    "spent",
    "engine",
    "error",
    "standard_error",
    "draws",
    "seed",
    "sampler",
]
SMALL = ("simulate", "--K", 16, "--r", "1,2", "--draws", 4, "--jobs", 1)


def parse(text):
    return json.loads(text, parse_constant=pytest.fail)


# --- what it prints -------------------------------------------------------------------------


def test_json_and_csv_have_the_same_rows(cli):
    done = cli(*SMALL, "--engine", "all", "--format", "json")
    assert (done.code, done.err) == (0, "")
    document = parse(done.out)
    assert list(document) == ["rows", "manifest"]
    assert all(list(row) == COLUMNS for row in document["rows"])
    assert {row["method"] for row in document["rows"]} == set(DEFAULT_NAMES)
    assert document["manifest"]["grid"]["ranks"] == [1, 2]
    table = csv.DictReader(io.StringIO(cli(*SMALL, "--engine", "all", "--format", "csv").out))
    assert list(table) == [
        {name: "" if value is None else str(value) for name, value in row.items()}
        for row in document["rows"]
    ]


def test_one_draw_has_no_standard_error_and_says_so_unless_it_shall_be_quiet(cli):
    command = (*SMALL, "--draws", 1, "--engine", "monte-carlo", "--methods", "D,R")
    loud, quiet = cli(*command, "--out", "a"), cli(*command, "--out", "b", "--quiet")
    assert loud.err.startswith("note: one draw has no standard error, so it is left empty\n")
    written = "simulate.parquet, simulate.manifest.json, simulate.png, simulate.pdf"
    assert f"note: results are in a: {written}\n" in loud.err
    assert quiet == (0, loud.out, "")
    assert re.search(r"0\.\d{4} ± \?", loud.out)
    rows = parse(cli(*command, "--format", "json").out)["rows"]
    assert {row["standard_error"] for row in rows} == {None}


def test_a_method_that_the_engine_does_not_know_is_said(cli):
    done = cli("simulate", "--K", 600, "--r", "1,257", "--engine", "exact", "--methods", "R,D")
    assert done.code == 0
    assert done.err == (
        "note: LoRA has no value from the engine exact at some of these ranks; "
        "use --engine monte-carlo or asymptotic\n"
    )


def test_a_method_of_the_users_own_has_its_column_and_its_failure_is_one_line(cli, cwd, own_module):
    done = cli("simulate", "--K", 16, "--r", 1, "--methods", f"D,{own_module}", "--out", "results")
    assert done.code == 0
    assert "  own   a tenth of the matrix" in done.out
    assert "0.8100" in done.out
    sys.modules.pop("own_of_this_folder")
    module = cwd / "own_of_this_folder.py"
    module.write_text(module.read_text().replace("0.1 * matrix", "matrix / (1 // 0)"))
    done = cli("simulate", "--K", 16, "--r", 1, "--methods", own_module, "--jobs", 1)
    assert (done.code, done.out) == (2, "")
    line = r"loca-theory: own\.approximate failed \(ZeroDivisionError: [^\n]+ by zero\)"
    assert re.fullmatch(line, done.err.splitlines()[-1])


def test_all_stands_for_the_methods_that_exist_at_every_rank(cli):
    """One rank is odd, and too low for two products or two blocks."""
    done = cli(*SMALL, "--methods", "all", "--draws", 2, "--format", "json")
    missing = {"GraLoRA", "LoHa", "BD-LoRA", "BOFT", "GLoRA"}
    assert {row["method"] for row in parse(done.out)["rows"]} == set(METHODS) - missing
    assert {name for name in METHODS if f"left out of all: {name} needs" in done.err} == missing


def test_many_methods_have_a_row_each(cli):
    done = cli("simulate", "--K", 64, "--r", "1..8", "--methods", "all", "--engine", "exact")
    lines = done.out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("method"))
    assert lines[start].split()[1:] == [
        f"{part}" for r in (1, 2, 4, 5, 7, 8) for part in ("r", "=", str(r))
    ]
    table = [line.rsplit(maxsplit=6) for line in lines[start + 2 : lines.index("", start)]]
    names = [name.strip().rstrip("†") for name, *_ in table]
    assert len(names) > 12
    assert set(names) <= set(METHODS)
    errors = {
        name: [float(cell) for cell in cells]
        for name, (_, *cells) in zip(names, table, strict=True)
    }
    budgets = [Budget(64, 64, r) for r in range(1, 9)]
    exact = [exact_error("LoCA", budgets[r - 1]) for r in (1, 2, 4, 5, 7, 8)]
    assert errors["LoCA"] == pytest.approx(exact, abs=5e-5)
    means = [fmean(METHODS[name].expected_errors(budgets)) for name in names]
    assert means == sorted(means, reverse=True)
    assert "6 of the 8 ranks" in done.out


@pytest.mark.parametrize("name", ["D", "LoCA", "loca"])
def test_a_method_that_is_named_beside_all_comes_once(cli, name):
    done = cli(*SMALL, "--methods", f"all,{name}", "--engine", "exact", "--format", "json")
    assert [row["method"] for row in parse(done.out)["rows"]].count("LoCA") == 2, "one per rank"


def test_of_many_ranks_and_shapes_people_get_a_selection_and_files_all(cli):
    arguments = (
        "simulate",
        "--K",
        "80..91",
        "--r",
        "1..38",
        "--methods",
        "LoCA",
        "--engine",
        "exact",
    )
    shown = cli(*arguments).out
    titles = re.findall(r"^(\d+) × \d+$", shown, re.MULTILINE)
    assert titles == ["80", "81", "82", "84", "85", "86", "87", "89", "90", "91"]
    first = shown[: shown.index("81 × 81")]
    ranks = re.findall(r"^ ?(\d+) +0\.", first, re.MULTILINE)
    assert (len(ranks), ranks[0], ranks[-1]) == (30, "1", "38")
    assert "10 of the 12 shapes, from the first to the last, are shown; --format json" in shown
    assert "30 of the 38 ranks, from the first to the last, are shown; --format json" in shown
    assert len(cli(*arguments, "--format", "csv").out.splitlines()) == 1 + 12 * 38
    assert " of the " not in cli("simulate", "--K", 80, "--r", "1..30", "--methods", "LoCA").out


# --- what it writes -------------------------------------------------------------------------


def test_without_out_only_finished_blocks_are_kept(cli, cwd):
    assert cli(*SMALL, "--engine", "exact").code == 0
    assert list(cwd.iterdir()) == []
    assert cli(*SMALL, "--engine", "monte-carlo", "--methods", "LoCA").code == 0
    (block,) = (path for path in cwd.rglob("*") if path.is_file())
    assert block.parent == cwd / "loca-results" / "points"


def test_a_folder_that_takes_no_files_does_not_hinder_the_answer(cli, cwd):
    """A file in the way refuses root as well, which permission bits do not."""
    (cwd / "loca-results").write_text("in the way")
    blocked = cli(*SMALL, "--engine", "all", "--format", "json")
    assert blocked.code == 0
    assert blocked.err == ("note: this folder is not writable, so a killed run cannot be resumed\n")
    assert cli(*SMALL, "--format", "json", "--quiet").err == ""
    (cwd / "loca-results").unlink()
    unhindered = cli(*SMALL, "--engine", "all", "--format", "json")
    assert parse(blocked.out)["rows"] == parse(unhindered.out)["rows"]


# --- what it refuses ------------------------------------------------------------------------


def test_an_out_that_takes_no_files_is_an_error_before_any_work(cli, cwd, monkeypatch):
    (cwd / "file").write_text("kept")
    monkeypatch.setattr("loca_theory.expressivity.monte_carlo.evaluate", None)
    done = cli(*SMALL, "--engine", "monte-carlo", "--methods", "LoCA", "--out", "file")
    assert re.fullmatch(
        r"loca-theory: cannot write to [^\n]+: file is a file; choose another --out DIR\n", done.err
    )
    assert (done.code, done.out) == (1, "")
    assert [path.name for path in cwd.iterdir()] == ["file"]


def test_a_missing_gpu_is_an_error(cli, cwd, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    done = cli(*SMALL, "--sampler", "dense", "--device", "cuda:0")
    assert done.err == "loca-theory: no CUDA device is available to torch; choose --device cpu\n"
    assert (done.code, done.out) == (1, "")
    assert list(cwd.iterdir()) == []


@pytest.mark.cuda
def test_a_gpu_gives_the_mean_of_the_cpu_within_its_error(cli):
    options = (*SMALL, "--draws", 200, "--methods", "R,D", "--engine", "monte-carlo")
    done = cli(*options, "--sampler", "dense", "--device", "cuda", "--format", "json")
    assert parse(done.out)["manifest"]["device"] == "cuda"
    exact = parse(cli(*SMALL, "--engine", "exact", "--format", "json").out)["rows"]
    expected = {(row["method"], row["r"]): row["error"] for row in exact}
    for row in parse(done.out)["rows"]:
        # Four comparisons; 5 standard errors: false positive below 1e-5 with t of 199 degrees.
        gap = abs(row["error"] - expected[row["method"], row["r"]])
        assert gap < 5 * row["standard_error"]
