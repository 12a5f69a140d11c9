"""Tables and figures on disk: exact, complete, and the same bytes again."""

import json
import math
import os
import subprocess
import sys

import matplotlib as mpl
import pandas as pd
import pytest
from PIL import Image

from loca_theory import ResourceError
from loca_theory.plotting import (
    draw_errors,
    is_stored,
    load_rows,
    results,
    save_figure,
    store_rows,
)

ROWS = [
    {"K": 16, "curve": "D", "error": 0.1 + 0.2, "standard_error": 0.0, "draws": None},
    {"K": None, "curve": "R", "error": 5e-324, "standard_error": None, "draws": 3},
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
    write = results.write_atomically

    def killed(path, content):
        if path.suffix == suffix:
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(results, "write_atomically", killed)
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
        pytest.param("name.parquet", None, id="missing table"),
        pytest.param("name.manifest.json", b"", id="empty manifest"),
        pytest.param("name.manifest.json", b'{"seed": 0', id="truncated manifest"),
        pytest.param("name.manifest.json", b'"\xff"', id="not utf-8"),
        pytest.param("name.manifest.json", b"[]", id="a list"),
        pytest.param("name.manifest.json", b"null", id="null"),
        pytest.param("name.manifest.json", b"[" * 100_000, id="nested too deeply"),
        pytest.param("name.manifest.json", None, id="missing manifest"),
    ],
)
def test_what_cannot_be_read_is_one_error(tmp_path, name, content):
    store_rows(ROWS, ORIGIN, tmp_path, "name")
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(
        ResourceError,
        match=r"name\.parquet and its manifest cannot be read \(\w+\); delete them and run",
    ):
        load_rows(tmp_path, "name")


def test_a_folder_that_takes_no_files_is_an_error(tmp_path):
    (tmp_path / "file").write_text("kept")
    for write in (
        lambda folder: store_rows(ROWS, ORIGIN, folder, "name"),
        lambda folder: save_figure(mpl.figure.Figure, folder, "name"),
    ):
        with pytest.raises(ResourceError, match=r"cannot write to .*; choose another folder"):
            write(tmp_path / "file")
    assert names(tmp_path) == ["file"]


def test_a_manifest_that_cannot_be_replaced_is_an_error(tmp_path):
    (tmp_path / "name.manifest.json").mkdir()
    with pytest.raises(ResourceError, match=r"cannot replace .*name\.manifest\.json"):
        store_rows(ROWS, ORIGIN, tmp_path, "name")
    assert names(tmp_path) == ["name.manifest.json"]


# --- figures --------------------------------------------------------------------------------


@pytest.fixture
def draw(tables):
    table = tables("one shape")
    return lambda: draw_errors(table)


def test_a_figure_is_written_as_png_and_pdf(tmp_path, draw):
    written = save_figure(draw, tmp_path / "new", "name")
    assert written == [tmp_path / "new" / "name.png", tmp_path / "new" / "name.pdf"]
    assert names(tmp_path / "new") == ["name.pdf", "name.png"]
    with Image.open(written[0]) as picture:
        picture.load()
        assert picture.format == "PNG"
        assert picture.getextrema()[0] == (0, 255), "not blank"
    content = written[1].read_bytes()
    assert content.startswith(b"%PDF-")
    assert content.rstrip().endswith(b"%%EOF")


def test_files_hold_no_date_and_no_name_of_a_program(tmp_path, draw):
    png, pdf = save_figure(draw, tmp_path, "name")
    for word in (b"CreationDate", b"/Creator", b"/Producer"):
        assert word not in pdf.read_bytes()
    with Image.open(png) as picture:
        assert set(picture.info) <= {"dpi"}


REDRAW = """
import pathlib, sys
from loca_theory.plotting import draw_errors, load_rows, save_figure
folder = pathlib.Path(sys.argv[1])
table, _ = load_rows(folder, "table")
save_figure(lambda: draw_errors(table), folder, "there")
"""


def test_neither_the_process_nor_the_users_settings_matter(tmp_path, tables):
    store_rows(tables("one shape").to_dict("records"), {}, tmp_path, "table")
    table, _ = load_rows(tmp_path, "table")
    save_figure(lambda: draw_errors(table), tmp_path, "here")
    settings = tmp_path / "matplotlibrc"
    settings.write_text("font.size: 30\nfigure.facecolor: red\nsavefig.dpi: 40\naxes.grid: False\n")
    subprocess.run(
        [sys.executable, "-c", REDRAW, str(tmp_path)],
        check=True,
        env={**os.environ, "MATPLOTLIBRC": str(settings), "PYTHONHASHSEED": "7", "LC_ALL": "C"},
    )
    for suffix in (".png", ".pdf"):
        here, there = (tmp_path / f"{name}{suffix}" for name in ("here", "there"))
        assert here.read_bytes() == there.read_bytes()


def test_the_users_settings_are_left_as_they_were(tmp_path, draw):
    with mpl.rc_context({"font.size": 31.0}):
        before = dict(mpl.rcParams)
        save_figure(draw, tmp_path, "name")
        assert dict(mpl.rcParams) == before


def test_the_style_reaches_the_drawing(tmp_path):
    seen = {}

    def draw():
        seen.update(mpl.rcParams)
        return mpl.figure.Figure()

    save_figure(draw, tmp_path, "name")
    assert seen["axes.spines.top"] is False
    assert seen["pdf.fonttype"] == 42


def test_a_failed_drawing_leaves_nothing_and_the_settings_alone(tmp_path):
    def draw():
        raise ZeroDivisionError("bad table")  # noqa: EM101

    before = dict(mpl.rcParams)
    with pytest.raises(ZeroDivisionError, match="bad table"):
        save_figure(draw, tmp_path, "name")
    assert names(tmp_path) == []
    assert dict(mpl.rcParams) == before


def test_the_table_is_an_ordinary_parquet_file(tmp_path):
    store_rows(ROWS, ORIGIN, tmp_path, "name")
    assert list(pd.read_parquet(tmp_path / "name.parquet").columns) == list(ROWS[0])
    assert json.loads((tmp_path / "name.manifest.json").read_text()) == ORIGIN
