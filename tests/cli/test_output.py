"""Printing rows: as JSON, as CSV, as tables."""

import csv
import io
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loca_theory.cli.output import print_csv, print_json
from loca_theory.cli.simulate import print_errors
from loca_theory.expressivity import METHODS
from loca_theory.expressivity.methods.names import display_name
from loca_theory.expressivity.results import ErrorRow

reproducible = settings(deadline=None, derandomize=True, database=None)


def row(method="D", r=1, engine="exact", error=0.5, **changes):
    drawn = {"standard_error": 0.0, "draws": None, "seed": None, "sampler": None}
    if engine == "monte-carlo":
        drawn = {"standard_error": 0.01, "draws": 100, "seed": 0, "sampler": "reduced"}
    made = {"K": 16, "p": 16, "q": 16, "r": r, "method": method, "engine": engine, "error": error}
    return ErrorRow(**{**made, **drawn, **changes})


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


@settings(reproducible, max_examples=25)
@given(
    st.recursive(
        st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_keeps_every_digit(document):
    buffer = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", buffer)
        print_json({"document": document})
    read = json.loads(buffer.getvalue())["document"]
    assert json.dumps(read) == json.dumps(document)
    assert buffer.getvalue().isascii()
    assert buffer.getvalue().endswith("}\n")


@pytest.mark.parametrize("value", [float("nan"), float("inf")], ids=["nan", "inf"])
def test_json_has_no_word_for_nan_and_prints_nothing(capsys, value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        print_json({"rows": [{"error": value}]})
    assert capsys.readouterr().out == ""


def test_csv_leaves_null_empty_and_quotes_what_needs_it(capsys):
    print_csv([{"a": 0.1, "b": None}, {"a": 'x,"y"', "b": 2}], ("a", "b"))
    out = capsys.readouterr().out
    assert out.splitlines() == ["a,b", "0.1,", '"x,""y""",2']
    assert [dict(r) for r in csv.DictReader(io.StringIO(out))] == [
        {"a": "0.1", "b": ""},
        {"a": 'x,"y"', "b": "2"},
    ]


def test_the_worst_method_comes_first(table):
    lines = table(row("D", error=0.6), row("R", error=0.9), row("F2", error=0.7))
    assert header(lines) == [["r", "LoRA", "Fourier", "pairs", "LoCA"]]
    assert body(lines) == {"1": ["0.9000", "0.7000", "0.6000"]}


def test_methods_that_agree_in_every_digit_share_a_column(table):
    lines = table(
        row("D", 1, error=0.60001),
        row("S", 1, error=0.60004),
        row("R", 1, error=0.9),
        row("D", 2, error=0.5),
        row("S", 2, error=0.5),
        row("R", 2, error=0.8),
    )
    assert header(lines) == [["entries"], ["r", "LoRA", "LoCA"]]
    assert body(lines) == {"1": ["0.9000", "0.6000"], "2": ["0.8000", "0.5000"]}


def test_methods_that_differ_at_one_rank_do_not(table):
    lines = table(
        row("D", 1, error=0.6),
        row("S", 1, error=0.6),
        row("D", 2, error=0.5),
        row("S", 2, error=0.5001),
    )
    assert header(lines) == [["r", "entries", "LoCA"]]


def test_exact_goes_before_simulated_goes_before_the_limit(table):
    exact, simulated, limit = (
        row(engine="exact", error=0.5),
        row(engine="monte-carlo", error=0.51),
        row(engine="asymptotic", error=0.52, standard_error=None),
    )
    assert body(table(limit, simulated, exact)) == {"1": ["0.5000"]}
    assert body(table(limit, simulated)) == {"1": ["0.5100", "±", "0.0100"]}
    assert body(table(limit)) == {"1": ["≈", "0.5200"]}


@pytest.mark.parametrize(
    ("standard_error", "shown"),
    [
        (None, ["0.5123", "±", "?"]),
        (0.0, ["0.5123", "±", "0.0000"]),
        (0.3, ["0.5123", "±", "0.3000"]),
        (0.00012, ["0.5123", "±", "0.0001"]),
        (0.0000123, ["0.51235", "±", "0.00001"]),
        (0.00000123, ["0.512346", "±", "0.000001"]),
        (1.1e-17, ["0.5123", "±", "0.0000"]),
    ],
    ids=["none", "zero", "large", "small", "smaller", "smallest", "rounding"],
)
def test_a_standard_error_shows_a_digit_at_least(table, standard_error, shown):
    lines = table(row(engine="monte-carlo", error=0.51234567, standard_error=standard_error))
    assert body(lines) == {"1": shown}


def test_each_shape_has_its_table_and_each_method_its_title_once(table):
    wide = {"K": None, "p": 8, "q": 32}
    lines = table(row("D"), row("R", error=0.9), row("D", **wide), row("R", error=0.8, **wide))
    assert [line for line in lines if " × " in line] == ["16 × 16", "8 × 32"]
    for name in ("D", "R"):
        assert [
            line.split(maxsplit=1)[1]
            for line in lines
            if line.startswith(f"  {display_name(name)} ")
        ] == [METHODS[name].title]


def test_a_method_may_be_missing_at_one_shape(table):
    """R is exact at small sizes only."""
    lines = table(row("R", error=0.9), row("D"), row("D", K=64, p=64, q=64))
    assert header(lines)[0] == ["r", "LoRA", "LoCA"]
