"""Figures: in one style, shown without pyplot, and the same bytes again on disk."""

import subprocess
import sys
from io import BytesIO

import matplotlib as mpl
import pytest
from matplotlib import style as styles
from PIL import Image

from loca_theory.plotting.canvas import Picture, save_figure, styled
from loca_theory.plotting.results.simulation import draw_errors
from loca_theory.plotting.styled_figure import in_style


@pytest.fixture
def figure(tables):
    return draw_errors(tables("one shape"))


def test_a_figure_is_written_as_png_and_pdf_without_date_and_program(tmp_path, figure):
    """A notebook shows the same bytes, without pyplot."""
    png, pdf = save_figure(figure, tmp_path / "new", "name")
    assert [png, pdf] == [tmp_path / "new" / "name.png", tmp_path / "new" / "name.pdf"]
    assert {png, pdf} == set((tmp_path / "new").iterdir())
    assert isinstance(figure, Picture)
    assert figure._repr_png_() == png.read_bytes()
    with Image.open(png) as picture:
        picture.load()
        assert picture.format == "PNG"
        assert picture.getextrema()[0] == (0, 255), "not blank"
        assert set(picture.info) <= {"dpi", "Description"}
        assert picture.info["Description"] == figure.caption
    content = pdf.read_bytes()
    assert content.startswith(b"%PDF-")
    assert content.rstrip().endswith(b"%%EOF")
    for word in (b"CreationDate", b"/Creator", b"/Producer"):
        assert word not in content


def test_the_users_settings_do_not_change_a_figure_of_the_paper(tmp_path, tables, figure):
    first = [path.read_bytes() for path in save_figure(figure, tmp_path, "first")]
    with mpl.rc_context({"font.size": 31.0, "figure.facecolor": "red", "savefig.dpi": 40}):
        before = dict(mpl.rcParams)
        with in_style():
            paths = save_figure(draw_errors(tables("one shape")), tmp_path, "second")
        assert [path.read_bytes() for path in paths] == first
        assert dict(mpl.rcParams) == before


def test_a_style_that_the_user_has_chosen_is_kept_beside_that_of_the_package(tables):
    @styled
    def fail():
        assert mpl.rcParams["axes.spines.top"] is False
        raise ZeroDivisionError("bad table")

    chosen = {"font.family": ["serif"], "axes.grid": False, "savefig.dpi": 50, "font.size": 12.0}
    with mpl.rc_context(chosen), styles.context({"axes.linewidth": 3.0}):
        before = dict(mpl.rcParams)
        figure = draw_errors(tables("one shape"))
        with pytest.raises(ZeroDivisionError, match="bad table"):
            fail()
        assert dict(mpl.rcParams) == before
    (axis,) = figure.axes
    label = axis.xaxis.label
    assert (label.get_family(), label.get_size()) == (["serif"], 12.0)
    assert axis.spines["left"].get_linewidth() == 3.0
    assert not axis.spines["top"].get_visible(), "of the package"
    with Image.open(BytesIO(figure._repr_png_())) as picture:
        assert picture.size == tuple(int(50 * side) for side in figure.get_size_inches())


def test_importing_and_drawing_leaves_pyplot_alone():
    """It would choose a backend, and open windows."""
    code = "import sys, loca_theory.plotting.pictures, loca_theory.plotting.catalogue; "
    code += "print('matplotlib.pyplot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
