"""Tables on disk: exact, complete, and the same bytes again."""

import json
import math

import pandas as pd
import pytest

from loca_theory import ResourceError
from loca_theory.sweeps import is_stored, load_rows, store_rows, tables

ROWS = [
    {"K": 16, "method": "D", "error": 0.1 + 0.2, "standard_error": 0.0, "draws": None},
    {"K": None, "method": "R", "error": 5e-324, "standard_error": None, "draws": 3},
]
ORIGIN = {"version": "1", "grid": {"ranks": [1, 2]}, "git_commit": None}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def plain(table):
    return [
        {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in row.items()
        }
        for row in table.astype(object).to_dict("records")
    ]


def test_rows_and_origin_come_back_exactly(tmp_path):
    written = store_rows(ROWS, ORIGIN, tmp_path / "new" / "folder", "name")
    folder = tmp_path / "new" / "folder"
    assert written == [folder / "name.parquet", folder / "name.manifest.json"]
    assert names(folder) == ["name.manifest.json", "name.parquet"]
    table, origin = load_rows(folder, "name")
    assert plain(table) == ROWS
    assert [value.hex() for value in table["error"]] == [row["error"].hex() for row in ROWS]
    assert origin == ORIGIN


def test_the_same_rows_are_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        store_rows(ROWS, ORIGIN, tmp_path, name)
    for suffix in (".parquet", ".manifest.json"):
        assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_it_is_stored_when_both_files_are_there(tmp_path):
    assert not is_stored(tmp_path, "name")
    store_rows(ROWS, ORIGIN, tmp_path, "name")
    assert is_stored(tmp_path, "name")
    assert not is_stored(tmp_path, "other")
    for suffix in (".parquet", ".manifest.json"):
        kept = (tmp_path / f"name{suffix}").rename(tmp_path / "aside")
        assert not is_stored(tmp_path, "name")
        kept.rename(tmp_path / f"name{suffix}")


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


def test_a_manifest_that_json_does_not_know_is_refused(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        store_rows(ROWS, {"seed": math.nan}, tmp_path, "name")
    assert not is_stored(tmp_path, "name")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("name.parquet", b"", id="empty table"),
        pytest.param("name.parquet", b"PAR1 and no more", id="no table"),
        pytest.param("name.manifest.json", b"", id="empty manifest"),
        pytest.param("name.manifest.json", b'{"seed": 0', id="truncated manifest"),
        pytest.param("name.manifest.json", b'"\xff"', id="not utf-8"),
        pytest.param("name.manifest.json", b"[]", id="a list"),
        pytest.param("name.manifest.json", b"null", id="null"),
        pytest.param("name.manifest.json", b"[" * 100_000, id="nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_one_error(tmp_path, name, content):
    store_rows(ROWS, ORIGIN, tmp_path, "name")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(
        ResourceError,
        match=r"name\.parquet and its manifest cannot be read \(\w+\); delete them and compute",
    ):
        load_rows(tmp_path, "name")


@pytest.mark.parametrize("name", ["name.parquet", "name.manifest.json"])
def test_what_is_missing_is_not_called_damaged(tmp_path, name):
    store_rows(ROWS, ORIGIN, tmp_path, "name")
    (tmp_path / name).unlink()
    with pytest.raises(ResourceError, match=f"^there is no {name} in {tmp_path}; name the folder"):
        load_rows(tmp_path, "name")


def test_a_folder_that_takes_no_files_is_an_error(tmp_path):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(ResourceError, match=r"cannot write to .*; choose another folder"):
        store_rows(ROWS, ORIGIN, tmp_path / "file", "name")
    assert names(tmp_path) == ["file"]


def test_a_manifest_that_cannot_be_replaced_is_an_error(tmp_path):
    (tmp_path / "name.manifest.json").mkdir()
    with pytest.raises(ResourceError, match=r"cannot replace .*name\.manifest\.json"):
        store_rows(ROWS, ORIGIN, tmp_path, "name")
    assert names(tmp_path) == ["name.manifest.json"]


def test_the_table_is_an_ordinary_parquet_file(tmp_path):
    store_rows(ROWS, ORIGIN, tmp_path, "name")
    assert list(pd.read_parquet(tmp_path / "name.parquet").columns) == list(ROWS[0])
    assert json.loads((tmp_path / "name.manifest.json").read_text()) == ORIGIN
