"""Printing rows: as JSON, as CSV, as tables."""

import csv
import dataclasses
import io
import json
import re
from types import SimpleNamespace

import pytest
from rich.console import Console

import loca_theory
from loca_theory.cli.commands.simulate import print_errors
from loca_theory.cli.output import Rows, console, emit
from loca_theory.cli.printable import printable
from loca_theory.expressivity import METHODS
from loca_theory.expressivity.results import ErrorRow


def row(method="LoCA", r=1, engine="exact", error=0.5, **changes):
    drawn = {"standard_error": 0.0, "draws": None, "seed": None, "sampler": None}
    if engine == "monte-carlo":
        drawn = {"standard_error": 0.01, "draws": 100, "seed": 0, "sampler": "reduced"}
    fields = {
        "K": 16,
        "p": 16,
        "q": 16,
        "r": r,
        "method": method,
        "engine": engine,
        "error": error,
        "numbers": 32 * r,
        "spent": 1.0,
    }
    return ErrorRow(**{**fields, **drawn, **changes})


@pytest.fixture
def table(capsys):
    """What :func:`print_errors` prints, without empty lines."""

    def lines(*rows):
        print_errors(rows, list(METHODS.values()))
        return [line.rstrip() for line in capsys.readouterr().out.splitlines() if line.strip()]

    return lines


def header(lines):
    """The names above the rule, column by column."""
    rule = next(i for i, line in enumerate(lines) if set(line.strip()) == {"─"})
    shape = next(i for i, line in enumerate(lines) if re.fullmatch(r"\d+ × \d+", line))
    return [line.split() for line in lines[shape + 1 : rule]]


def body(lines):
    return {line.split()[0]: line.split()[1:] for line in lines if re.match(r"\s*\d+ +[≈0]", line)}


def test_json_keeps_every_digit_is_ascii_and_has_no_word_for_nan(capsys):
    document = {"rows": [0.1 + 0.2, 5e-324, None, "ä\n"], "deep": {"": [[], {}]}}
    emit(document, None, SimpleNamespace(output_format="json"))
    shown = capsys.readouterr().out
    assert json.loads(shown) == document
    assert shown.isascii()
    assert shown.endswith("}\n")
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            emit({"rows": [value]}, None, SimpleNamespace(output_format="json"))
    assert capsys.readouterr().out == ""


def test_csv_leaves_null_empty_quotes_what_needs_it_and_has_no_formulas(capsys):
    rows = [{"a": 'x,"y"', "b": -1.5, "c": 1}]
    rows += [{"a": f"{start}1", "b": None, "c": 1} for start in "=+-@\t\r"]
    emit({"rows": rows}, None, SimpleNamespace(output_format="csv"), columns=("a", "b"))
    out = capsys.readouterr().out
    assert out.startswith('a,b\n"x,""y""",-1.5\n')
    assert list(csv.DictReader(io.StringIO(out)))[1:] == [
        {"a": f"'{printable(start)}1", "b": ""} for start in "=+-@\t\r"
    ]


TABLES = {
    "the worst method comes first": (
        [row("LoCA", error=0.6), row("LoRA", error=0.9), row("Fourier pairs", error=0.7)],
        [["r", "LoRA", "Fourier", "pairs", "LoCA"]],
        {"1": ["0.9000", "0.7000", "0.6000"]},
    ),
    "methods that agree in every digit share a column": (
        [
            row("LoCA", 1, error=0.60001),
            row("entries", 1, error=0.60004),
            row("LoRA", 1, error=0.9),
            row("LoCA", 2, error=0.5),
            row("entries", 2, error=0.5),
            row("LoRA", 2, error=0.8),
        ],
        [["entries"], ["r", "LoRA", "LoCA"]],
        {"1": ["0.9000", "0.6000"], "2": ["0.8000", "0.5000"]},
    ),
    "methods that differ at one rank do not": (
        [
            row("LoCA", 1, error=0.6),
            row("entries", 1, error=0.6),
            row("LoCA", 2),
            row("entries", 2, error=0.5001),
        ],
        [["r", "entries", "LoCA"]],
        {"1": ["0.6000", "0.6000"], "2": ["0.5001", "0.5000"]},
    ),
    "exact goes before simulated, which goes before the limit": (
        [
            row("LoCA"),
            row("LoRA", engine="monte-carlo", error=0.9),
            *(
                row(name, engine="asymptotic", error=0.52, standard_error=None)
                for name in ("LoCA", "LoRA", "entries")
            ),
            row("LoCA", engine="monte-carlo", error=0.51),
        ],
        [["r", "LoRA", "entries", "LoCA"]],
        {"1": ["0.9000", "±", "0.0100", "≈", "0.5200", "0.5000"]},
    ),
    "methods that are off the budget at some rank are marked": (
        [row("entries"), row("LoRA", error=0.9, spent=1.019), row("VeRA", error=0.8, spent=0.979)],
        [["r", "LoRA", "VeRA†", "entries"]],
        {"1": ["0.9000", "0.8000", "0.5000"]},
    ),
}


def test_what_methods_spend_off_the_budget_is_below_the_table(table):
    rows = [
        row("LoCA"),
        row("VeRA", 1, spent=0.5),
        row("VeRA", 2, spent=1.5),
        row("printed line", spent=None),
    ]
    assert "†: spent of the budget: VeRA 50% to 150%" in table(*rows)
    assert not any("†" in line for line in table(row("LoCA")))


@pytest.mark.parametrize(("rows", "heading", "cells"), TABLES.values(), ids=TABLES)
def test_a_table_of_errors(table, rows, heading, cells):
    lines = table(*rows)
    assert (header(lines), body(lines)) == (heading, cells)


@pytest.mark.parametrize(
    ("standard_error", "shown"),
    [
        (None, ["0.5123", "±", "?"]),
        (0.3, ["0.5123", "±", "0.3000"]),
        (0.0000123, ["0.51235", "±", "0.00001"]),
        (1.1e-17, ["0.5123", "±", "0.0000"]),
    ],
    ids=["none", "large", "small", "rounding"],
)
def test_a_standard_error_shows_a_digit_at_least(table, standard_error, shown):
    lines = table(row(engine="monte-carlo", error=0.51234567, standard_error=standard_error))
    assert body(lines) == {"1": shown}


def test_each_shape_has_its_table_and_each_method_its_title_once(table):
    wide = {"K": None, "p": 8, "q": 32}
    lines = table(
        row("LoCA"), row("LoRA", error=0.9), row("LoCA", **wide)
    )  # R is missing at one shape
    assert [line for line in lines if " × " in line] == ["16 × 16", "8 × 32"]
    assert header(lines) == [["r", "LoRA", "LoCA"]]
    for name in ("LoCA", "LoRA"):
        start = f"  {name} "
        titles = [line.split(maxsplit=1)[1] for line in lines if line.startswith(start)]
        assert titles == [METHODS[name].title]


def printed(width, *rows):
    out = Console(width=width, color_system=None)
    cells = [dict(zip(("name", "first", "second", "third"), row, strict=True)) for row in rows]
    with out.capture() as capture:
        Rows(cells).print(out, then_empty=False)
    return [line.split() for line in capture.get().splitlines() if "─" not in line]


def test_a_table_that_is_too_wide_is_spread_and_one_that_is_too_long_is_cut():
    rows = ("a", "1.234567", "2.345678", "3.456789"), ("b", "", "", "4.567890")
    assert printed(34, rows[0]) == [["name", "first", "second", "third"], [*rows[0]]]
    assert printed(32, *rows) == [
        ["name", "first", "second"],
        ["a", "1.234567", "2.345678"],
        [],
        ["name", "third"],
        ["a", "3.456789"],
        ["b", "4.567890"],
    ]
    head, *lines = printed(60, ("abcdefghij" * 6, *rows[0][1:]))
    assert head[0] == "name"
    assert [line[0] for line in lines] == ["abcdefghij" * 3] * 2, "long names are folded first"
    *lines, last = printed(100, *[rows[0]] * 62)
    assert (len(lines), last[:4]) == (61, ["…", "and", "2", "more;"])


def test_no_cell_of_a_table_steers_a_terminal(capsys):
    Rows([{"name\x1b[1m": printable("a\nb"), "value": "\x1b[31m1"}]).print(console())
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert r"a\nb" in out


EXPLAINED = ("analyze", "extract", "unmerge", "simulate", "correlate", "toy", "methods")


@pytest.mark.parametrize("name", EXPLAINED)
def test_every_column_of_files_is_explained_without_any_argument(cli, name):
    done = cli(name, "--columns")
    assert (done.code, done.err) == (0, "")
    shown = re.findall(r"^  (\S+)  +\S", done.out, re.MULTILINE)
    kinds = (getattr(loca_theory, public) for public in loca_theory.__all__)
    (result,) = (kind for kind in kinds if getattr(kind, "command", None) == name)
    for row in result.tables().values():
        assert {field.name for field in dataclasses.fields(row)} <= set(shown)
    assert '"' not in "".join(shown)
    assert "; by default" not in done.out


@pytest.mark.parametrize(
    "words",
    ["analyze --demo --full --subspaces 2 --r 2", "unmerge --demo", "extract --demo --r 2"],
)
def test_every_printed_column_is_explained(cli, words):
    name, *options = words.split()
    table = cli(name, *options, "--quiet").out
    assert f"What the columns mean: loca-theory {name} --columns" in table
    first, *_ = cli(name, "--columns").out.split("\n\n")
    title, _, explained = first.partition("\n")
    assert title == "The printed table"
    titles = {"matrix", "shape", *METHODS}  # `loca-theory methods` describes these
    titles |= set(re.split(r" {2,}|\n", explained))
    heads = re.findall(r"^matrix .*$", table, re.MULTILINE)
    assert heads
    for head in heads:
        assert set(re.split(" {2,}", head.strip())) <= titles
