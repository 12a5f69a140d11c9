"""Results: typed tables that print, save and load as they are."""

from dataclasses import dataclass
from enum import StrEnum

import pandas as pd
import pytest

from loca_theory import ResourceError
from loca_theory.sweeps import Result, rows


@dataclass(frozen=True)
class Pair:
    K: int | None
    name: str
    error: float
    spread: float | None


@dataclass(frozen=True)
class Total:
    sum: float


class Kind(StrEnum):
    ROUND = "round"


@dataclass(frozen=True)
class Shaped:
    kind: Kind | None
    kinds: tuple[Kind, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, repr=False)
class Found(Result):
    pairs: tuple[Pair, ...] = rows(Pair)
    totals: tuple[Total, ...] = rows(Total)
    command = "found"


@dataclass(frozen=True)
class Strict:
    kind: Kind
    kinds: tuple[Kind, ...]
    counts: tuple[int, ...]
    size: int
    weight: float
    name: str
    flag: bool


@dataclass(frozen=True, repr=False)
class Stricts(Result):
    rows: tuple[Strict, ...] = rows(Strict)
    command = "strict"


@dataclass(frozen=True, repr=False)
class Single(Result):
    pairs: tuple[Pair, ...] = rows(Pair)
    command = "single"


PAIRS = (Pair(16, "a", 0.1 + 0.2, None), Pair(None, "b", 5e-324, 0.5))
FOUND = Found({"seed": 3}, PAIRS, (Total(2.0),))


def test_the_first_table_is_the_frame():
    frame = FOUND.to_frame()
    assert list(frame.columns) == ["K", "name", "error", "spread"]
    assert list(frame["name"]) == ["a", "b"]
    assert list(FOUND.to_frame("totals")["sum"]) == [2.0]


def test_an_empty_table_has_its_columns():
    assert list(Single({}, ()).to_frame().columns) == ["K", "name", "error", "spread"]


def test_plain_data_names_tables_and_manifest():
    assert FOUND.to_json() == {
        "pairs": [
            {"K": 16, "name": "a", "error": 0.1 + 0.2, "spread": None},
            {"K": None, "name": "b", "error": 5e-324, "spread": 0.5},
        ],
        "totals": [{"sum": 2.0}],
        "manifest": {"seed": 3},
    }


def test_it_comes_back_as_it_was_saved(tmp_path):
    names = [path.name for path in FOUND.save(tmp_path / "new")]
    assert names == [
        "found-pairs.parquet",
        "found-pairs.manifest.json",
        "found-totals.parquet",
        "found-totals.manifest.json",
    ]
    assert Found.load(tmp_path / "new") == FOUND


@dataclass(frozen=True)
class Line:
    shape: tuple[int, int]
    values: tuple[float, ...]


@dataclass(frozen=True, repr=False)
class Lines(Result):
    lines: tuple[Line, ...] = rows(Line)
    command = "lines"


@pytest.mark.parametrize("found", [Lines({}, (Line((2, 3), (0.1, 5e-324)), Line((1, 1), ()))),
                                   Lines({}, ())], ids=["tuples", "no rows"])  # fmt: skip
def test_tuples_and_empty_tables_come_back(tmp_path, found):
    found.save(tmp_path)
    assert Lines.load(tmp_path) == found


def test_a_single_table_bears_the_name_of_its_command(tmp_path):
    written = Single({}, PAIRS).save(tmp_path)
    assert [path.name for path in written] == ["single.parquet", "single.manifest.json"]
    assert Single.load(tmp_path) == Single({}, PAIRS)


def test_a_table_of_another_version_is_refused(tmp_path):
    FOUND.save(tmp_path)
    table = tmp_path / "found-pairs.parquet"
    pd.read_parquet(table).rename(columns={"name": "old"}).to_parquet(table)
    with pytest.raises(
        ResourceError,
        match=r"found-pairs\.parquet was saved by another version of loca-theory \(missing "
        r"columns: name\); compute the result again",
    ):
        Found.load(tmp_path)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("kind", ["square", "round"]),
        ("kind", [1, 2]),
        ("counts", [[1, 2], None]),
        ("counts", [[1.5], []]),
        ("counts", ["1", "2"]),
        ("kinds", [["square"], []]),
        ("size", ["1", "2"]),
        ("size", [1.0, 0.5]),
        ("size", [1.0, None]),
        ("size", [True, False]),
        ("weight", [1.0, None]),
        ("weight", ["1", "2"]),
        ("weight", [True, False]),
        ("name", ["a", None]),
        ("name", [1, 2]),
        ("flag", [1, 0]),
    ],
    ids=str,
)
def test_values_that_do_not_fit_are_of_another_version(tmp_path, column, values):
    row = Strict(Kind.ROUND, (Kind.ROUND,), (1, 2), 1, 0.5, "a", flag=True)
    Stricts({}, (row, row)).save(tmp_path)
    table = tmp_path / "strict.parquet"
    pd.read_parquet(table).assign(**{column: values}).to_parquet(table)
    message = r"strict\.parquet was saved by another version of loca-theory "
    message += rf"\(unexpected values in column {column}\); compute the result again"
    with pytest.raises(ResourceError, match=message):
        Stricts.load(tmp_path)


def test_what_was_never_saved_is_an_error(tmp_path):
    with pytest.raises(
        ResourceError, match=r"there is no found-pairs\.parquet in .*; name the folder"
    ):
        Found.load(tmp_path)


def test_it_prints_as_its_tables_sizes_and_shows_as_html():
    assert repr(FOUND) == "Found(pairs: 2 rows, totals: 1 row)"
    assert "<th>spread</th>" in FOUND._repr_html_()


def test_enumerations_and_tuples_come_back_as_they_were(tmp_path):
    @dataclass(frozen=True, repr=False)
    class Shapes(Result):
        rows: tuple[Shaped, ...] = rows(Shaped)
        command = "shapes"

    given = (Shaped(Kind.ROUND, (Kind.ROUND,), (1, 2)), Shaped(None, (), ()))
    Shapes({}, given).save(tmp_path)
    found = Shapes.load(tmp_path).rows
    assert found == given
    assert (type(found[0].kind), type(found[0].kinds[0])) == (Kind, Kind)
