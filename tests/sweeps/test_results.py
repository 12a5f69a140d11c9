"""Results: typed tables that print, save and load as they are."""

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import pandas as pd
import pytest

from loca_theory import InvalidArgumentError, ResourceError
from loca_theory.sweeps import Result, tables
from loca_theory.sweeps.results import rows
from loca_theory.sweeps.tables import (
    StoredTable,
    find_tables,
    is_stored,
    load_rows,
    store_rows,
    store_tables,
)


@dataclass(frozen=True)
class Pair:
    K: int | None
    name: str
    error: float
    spread: float | None


@dataclass(frozen=True)
class Total:
    sum: float


@dataclass(frozen=True, repr=False)
class Found(Result):
    pairs: tuple[Pair, ...] = rows(Pair)
    totals: tuple[Total, ...] = rows(Total)
    command = "found"


class Kind(StrEnum):
    ROUND = "round"


@dataclass(frozen=True)
class Strict:
    kind: Kind
    kinds: tuple[Kind, ...]
    counts: tuple[int, ...]
    size: int
    weight: float
    name: str
    flag: bool
    other: Kind | None = None


@dataclass(frozen=True, repr=False)
class Stricts(Result):
    rows: tuple[Strict, ...] = rows(Strict)
    command = "strict"


STRICT = Strict(Kind.ROUND, (Kind.ROUND,), (1, 2), 1, 0.5, "a", flag=True)
PAIRS = (Pair(16, "a", 0.1 + 0.2, None), Pair(None, "b", 5e-324, 0.5))
FOUND = Found({"seed": 3}, PAIRS, (Total(2.0),))


def test_tables_are_frames_and_plain_data_and_come_back_as_they_were_saved(tmp_path, monkeypatch):
    for frame in (FOUND.to_frame(), replace(FOUND, pairs=()).to_frame()):
        assert list(frame.columns) == ["K", "name", "error", "spread"]
    assert list(FOUND.to_frame()["name"]) == ["a", "b"]
    assert list(FOUND.to_frame("totals")["sum"]) == [2.0]
    assert FOUND.to_json() == {
        "pairs": [
            {"K": 16, "name": "a", "error": 0.1 + 0.2, "spread": None},
            {"K": None, "name": "b", "error": 5e-324, "spread": 0.5},
        ],
        "totals": [{"sum": 2.0}],
        "manifest": {"seed": 3},
    }
    names = [path.name for path in FOUND.save(tmp_path / "new")]
    assert names == ["found.parquet", "found.manifest.json"]
    assert Found.load(tmp_path / "new") == FOUND
    table = pd.read_parquet(tmp_path / "new" / "found.parquet")
    assert list(table.columns) == ["table", "K", "name", "error", "spread", "sum"]
    assert list(table["table"]) == ["pairs", "pairs", "totals"]
    monkeypatch.chdir(tmp_path)
    FOUND.save("s3:")  # a folder, not the address that pyarrow would see
    assert Found.load("s3:") == FOUND
    assert len(find_tables(Path("s3:"), ["found-pairs"])) == 1


@pytest.mark.parametrize("empty", [["pairs"], ["totals"], ["pairs", "totals"]], ids=str)
def test_tables_without_rows_come_back_from_a_file_of_several(tmp_path, empty):
    result = replace(FOUND, **dict.fromkeys(empty, ()))
    result.save(tmp_path)
    assert Found.load(tmp_path) == result
    assert load_rows(tmp_path, "found", "totals")[0].column_names == ["sum"]


def test_a_table_is_found_by_its_name_alone_or_in_a_file_of_several(tmp_path):
    FOUND.save(tmp_path / "a")
    for folder, name in (("b", "found-pairs"), ("c", "found"), ("quick", "found-pairs")):
        store_rows([{"K": 1}], {}, tmp_path / folder, name)
    tables = find_tables(tmp_path, ["found-pairs", "found-none"])
    assert tables == [
        StoredTable(tmp_path / "a" / "found.parquet", "pairs"),
        StoredTable(tmp_path / "b" / "found-pairs.parquet"),
    ]
    assert [list(table.read().columns) for table in tables] == [
        ["K", "name", "error", "spread"],
        ["K"],
    ]
    (tmp_path / "c" / "found.parquet").write_bytes(b"PAR1 and no more")
    assert find_tables(tmp_path, ["found-pairs"]) == tables


@pytest.mark.parametrize(
    "rows", [(STRICT, replace(STRICT, kinds=(), counts=(), other=Kind.ROUND)), ()], ids=len
)
def test_values_of_every_type_and_empty_tables_come_back(tmp_path, rows):
    written = Stricts({}, rows).save(tmp_path)
    assert [path.name for path in written] == ["strict.parquet", "strict.manifest.json"]
    loaded = Stricts.load(tmp_path).rows
    assert loaded == rows
    assert {(type(row.kind), type(row.counts)) for row in loaded} <= {(Kind, tuple)}


def test_a_column_of_a_later_version_has_its_default(tmp_path):
    row = {name: value for name, value in vars(STRICT).items() if name != "other"}
    store_tables({"": [row, row]}, {}, tmp_path, "strict")
    assert Stricts.load(tmp_path).rows == (STRICT, STRICT)


OTHER = r"found\.parquet was saved by another version of loca-theory "


@pytest.mark.parametrize(
    ("tables", "why"),
    [
        ({"pairs": [{"K": 1, "old": "a"}], "totals": [{"sum": 1.0}]}, "no column name"),
        ({"pairs": [vars(pair) for pair in PAIRS], "others": [{"sum": 1.0}]}, "no table totals"),
    ],
)
def test_a_table_of_another_version_is_refused(tmp_path, tables, why):
    store_tables(tables, {}, tmp_path, "found")
    with pytest.raises(ResourceError, match=OTHER + rf"\({why}\); compute the result again"):
        Found.load(tmp_path)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("kind", ["square", "round"]),
        ("counts", [[1, 2], None]),
        ("counts", [[1.5], []]),
        ("kinds", [["square"], []]),
        ("size", ["1", "2"]),
        ("size", [1.0, 0.5]),
        ("size", [True, False]),
        ("weight", [1.0, None]),
        ("weight", [True, False]),
        ("name", ["a", None]),
        ("flag", [1, 0]),
    ],
    ids=str,
)
def test_values_that_do_not_fit_are_of_another_version(tmp_path, column, values):
    Stricts({}, (STRICT, STRICT)).save(tmp_path)
    table = tmp_path / "strict.parquet"
    pd.read_parquet(table).assign(**{column: values}).to_parquet(table)
    with pytest.raises(ResourceError, match=rf"unexpected values in column {column}\); compute"):
        Stricts.load(tmp_path)


@dataclass(frozen=True, repr=False)
class Named(Found):
    names = ("name", "K")


NAMED = Named({}, (Pair(1, "fc.weight", 0.0, None), Pair(2, "fc.weight", 1.0, None)), ())


def test_it_is_a_sequence_that_prints_and_shows_its_tables():
    assert (len(FOUND), list(FOUND), FOUND[0], FOUND[-1:]) == (2, [*PAIRS], PAIRS[0], PAIRS[1:])
    with pytest.raises(IndexError, match="out of range"):
        FOUND[2]
    title, heading, *lines = repr(FOUND).splitlines()
    assert title == "Found(pairs: 2 rows, totals: 1 row)"
    assert heading.split() == ["K", "name", "error", "spread"]
    assert len(lines) == len(FOUND)
    assert repr(replace(FOUND, pairs=(), totals=())) == "Found()"
    assert "<th>spread</th>" in FOUND._repr_html_()


MANY = Named({}, tuple(Pair(i, f"layers.{i}.q_proj.weight", 0.0, None) for i in range(50)), ())
UNKNOWN = [
    (NAMED, "fc", r"2 rows are named fc; add one of 1, 2"),
    (NAMED, "none", r"unknown row 'none'; choose from fc.weight, 1, 2$"),
    (NAMED, "fc.wei", r"unknown row 'fc.wei'; did you mean fc.weight"),
    (MANY, "layers.7.q_pro", r"layers.7\S+ or \S+ or \S+\? Otherwise choose one of 100 names$"),
    (MANY, "q_proj", r"did you mean layers.0.q_proj.weight"),
    (FOUND, "a", r"the rows of Found have no names; choose fro"),
]


def test_a_row_is_found_by_its_names():
    assert replace(NAMED, pairs=PAIRS)["b"] is PAIRS[1]
    assert NAMED["fc.weight", "2"] is NAMED["fc", "2"] is NAMED[1]
    for result, name, message in UNKNOWN:
        with pytest.raises(InvalidArgumentError, match=message):
            result[name]


# --- tables ---

ROWS = [
    {"K": 16, "method": "LoCA", "error": 0.1 + 0.2, "standard_error": 0.0, "draws": None},
    {"K": None, "method": "LoRA", "error": 5e-324, "standard_error": None, "draws": 3},
]
ORIGIN = {"version": "1", "grid": {"ranks": [1, 2]}, "git_commit": None}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_rows_and_origin_come_back_exactly_and_are_the_same_bytes_each_time(tmp_path):
    folder = tmp_path / "new" / "folder"
    written = store_rows(ROWS, ORIGIN, folder, "name")
    assert written == [folder / "name.parquet", folder / "name.manifest.json"]
    stored, origin = load_rows(folder, "name")
    table = stored.to_pandas()
    pd.testing.assert_frame_equal(table, pd.DataFrame(ROWS), check_exact=True)
    assert [value.hex() for value in table["error"]] == [row["error"].hex() for row in ROWS]
    assert origin == ORIGIN
    rewritten = store_rows(ROWS, ORIGIN, tmp_path, "name")
    assert [path.read_bytes() for path in rewritten] == [path.read_bytes() for path in written]


@pytest.mark.parametrize("suffix", [".parquet", ".json"], ids=["table", "manifest"])
def test_a_table_never_stands_beside_the_manifest_of_another(tmp_path, monkeypatch, suffix):
    store_rows(ROWS, {"seed": 0}, tmp_path, "name")
    write = tables.write_atomically

    def killed(path, content):
        if path.suffix == suffix:
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(tables, "write_atomically", killed)
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        store_rows(ROWS[:1], {"seed": 1}, tmp_path, "name")
    assert names(tmp_path) == ["name.parquet"]
    assert not is_stored(tmp_path, "name")


DAMAGES = {
    "no table": ("name.parquet", b"PAR1 and no more"),
    "truncated manifest": ("name.manifest.json", b'{"seed": 0'),
    "not utf-8": ("name.manifest.json", b'"\xff"'),
    "a list": ("name.manifest.json", b"[]"),
    "nested too deeply": ("name.manifest.json", b"[" * 100_000),
}


@pytest.mark.parametrize(("name", "content"), DAMAGES.values(), ids=DAMAGES)
def test_what_cannot_be_read_is_one_error_and_what_is_missing_another(tmp_path, name, content):
    store_rows(ROWS, ORIGIN, tmp_path, "name")
    (tmp_path / name).write_bytes(content)
    message = r"name\.parquet and its manifest cannot be read \(\w+\); delete them and compute"
    with pytest.raises(ResourceError, match=message):
        load_rows(tmp_path, "name")
    (tmp_path / name).unlink()
    with pytest.raises(ResourceError, match=f"^there is no {name} in {tmp_path}; name the folder"):
        load_rows(tmp_path, "name")


def test_a_manifest_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        store_rows(ROWS, {"seed": math.nan}, tmp_path, "name")
    assert not is_stored(tmp_path, "name")
    (tmp_path / "other.manifest.json").mkdir()
    with pytest.raises(ResourceError, match=r"cannot write .*other\.manifest\.json: Is a d"):
        store_rows(ROWS, ORIGIN, tmp_path, "other")
    assert not (tmp_path / "other.parquet").exists()
