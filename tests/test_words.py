"""One word for one thing: words that were given up do not come back as names, options or keys."""

import dataclasses
import io
import tokenize
from pathlib import Path

import click

import loca_theory as loca
from loca_theory.cli.main import group

ROOT = Path(loca.__file__).parents[1]
# Parts of a name between underscores, and what to say instead.
GIVEN_UP = {
    "alarm": "error rate",
    "awaits": "needs",
    "curve": "method",
    "curves": "methods",
    "deviation": "standard deviation",
    "kept": "retained (energy), stored, accepted ...",
    "observation": "statistics",
    "place": "location, index",
    "places": "locations, indices",
    "reading": "interpretation",
    "readings": "interpretations",
    "share": "fraction",
    "shares": "fractions",
    "slip": "erratum",
    "slips": "errata",
    "weighs": "use_curvature",
}
# Names that mean something else: training curves, torch's and matplotlib's words, English.
MEANT = {
    "curve",
    "curves",
    "curve_rows",
    "in_place",
    "standard_deviation",
    "standard_deviations",
    "data_standard_deviation",
    "weight_standard_deviation",
    "_STANDARD_DEVIATIONS",
    "_observation",
    "observation",
    "kept",
    "_reading",
}


def given_up(name):
    return [part for part in name.lower().split("_") if part in GIVEN_UP]


def test_the_list_is_looked_at():
    assert given_up("awaits_places") == ["awaits", "places"]
    assert not given_up("replaces_it")


def test_no_name_is_of_words_given_up():
    refused = set()
    for package in ("loca_theory", "experiments", "benchmarks", "examples"):
        for path in sorted((ROOT / package).rglob("*.py")):
            names = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
            refused |= {
                (path.relative_to(ROOT).as_posix(), token.string)
                for token in names
                if token.type == tokenize.NAME
                and token.string not in MEANT
                and given_up(token.string)
            }
    assert sorted(refused) == []


def test_no_option_and_no_column_is_of_words_given_up():
    context = click.Context(group)
    options = {
        option.strip("-").replace("-", "_")
        for name in group.list_commands(context)
        for parameter in group.get_command(context, name).params
        for option in parameter.opts
    }
    results = [value for name in loca.__all__ if _is_result(value := getattr(loca, name))]
    columns = {
        field.name
        for result in results
        for row in result.tables().values()
        for field in dataclasses.fields(row)
    }
    assert {"seed", "accounting"} <= options
    assert {"method", "error"} <= columns
    assert [name for name in sorted(options | columns) if given_up(name)] == []


def _is_result(value):
    return isinstance(value, type) and issubclass(value, loca.Result) and value is not loca.Result
