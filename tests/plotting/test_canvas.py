"""Figures: in one style, shown without pyplot, and the same bytes again on disk."""

import os
import subprocess
import sys
from io import BytesIO

import matplotlib as mpl
import pytest
from PIL import Image

from loca_theory.plotting.canvas import Picture, save_figure, styled
from loca_theory.plotting.results.simulation import draw_errors
from loca_theory.sweeps.tables import load_rows, store_rows


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def figure(tables):
    return draw_errors(tables("one shape"))


def test_a_figure_is_written_as_png_and_pdf_without_date_and_program(tmp_path, figure):
    png, pdf = save_figure(figure, tmp_path / "new", "name")
    assert [png, pdf] == [tmp_path / "new" / "name.png", tmp_path / "new" / "name.pdf"]
    assert names(tmp_path / "new") == ["name.pdf", "name.png"]
    with Image.open(png) as picture:
        picture.load()
        assert picture.format == "PNG"
        assert picture.getextrema()[0] == (0, 255), "not blank"
        assert set(picture.info) <= {"dpi"}
    content = pdf.read_bytes()
    assert content.startswith(b"%PDF-")
    assert content.rstrip().endswith(b"%%EOF")
    for word in (b"CreationDate", b"/Creator", b"/Producer"):
        assert word not in content


REDRAW = """
import pathlib, sys
from loca_theory.plotting.canvas import save_figure
from loca_theory.plotting.results.simulation import draw_errors
from loca_theory.sweeps.tables import load_rows
folder = pathlib.Path(sys.argv[1])
table, _ = load_rows(folder, "table")
save_figure(draw_errors(table), folder, "there")
"""


def test_neither_the_process_nor_the_users_settings_matter(tmp_path, tables):
    store_rows(tables("one shape"), {}, tmp_path, "table")
    table, _ = load_rows(tmp_path, "table")
    save_figure(draw_errors(table), tmp_path, "here")
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


def test_the_users_settings_are_left_as_they_were(tmp_path, tables):
    @styled
    def fail():
        assert mpl.rcParams["axes.spines.top"] is False
        raise ZeroDivisionError("bad table")  # noqa: EM101

    with mpl.rc_context({"font.size": 31.0}):
        before = dict(mpl.rcParams)
        save_figure(draw_errors(tables("one shape")), tmp_path, "name")
        with pytest.raises(ZeroDivisionError, match="bad table"):
            fail()
        assert dict(mpl.rcParams) == before


def test_a_notebook_shows_what_is_saved_without_pyplot(tmp_path, figure):
    assert isinstance(figure, Picture)
    shown = figure._repr_png_()
    assert shown == save_figure(figure, tmp_path, "name")[0].read_bytes()
    saved = BytesIO()
    figure.savefig(saved, metadata={"Software": None})
    assert saved.getvalue() == shown


def test_importing_and_drawing_leaves_pyplot_alone():
    """It would choose a backend, and open windows."""
    code = "import sys, loca_theory.plotting.pictures, loca_theory.plotting.catalogue; "
    code += "print('matplotlib.pyplot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
