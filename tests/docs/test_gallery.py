"""The gallery has every stored figure, and its code draws them."""

import re

import pytest
from matplotlib.figure import Figure

import loca_theory as loca
from loca_theory.plotting import FIGURES

from .pages import ROOT, extension

PICTURES = sorted((ROOT / "figures").rglob("*.png"))


@pytest.fixture(scope="module")
def gallery():
    return extension("gallery", "_generate")


@pytest.fixture(scope="module")
def sections(gallery):
    """The text of each figure's section, by its name."""
    page = gallery.page(FIGURES, ROOT)
    parts = re.split(r"^### ", page, flags=re.MULTILINE)[1:]
    names = [re.search(r"^`(\w[\w-]*)`: \S", part, re.MULTILINE)[1] for part in parts]
    assert len(set(names)) == len(names)
    return dict(zip(names, parts, strict=True))


def test_every_figure_and_every_stored_picture_has_a_section(sections):
    assert set(sections) == {*FIGURES, *(path.stem for path in PICTURES)}
    for path in PICTURES:
        assert f"](../{path.relative_to(ROOT).as_posix()})" in sections[path.stem]


def test_a_figure_without_data_is_said_to_be_missing(gallery, tmp_path):
    text = gallery.page({"sim_1": FIGURES["sim_1"]}, tmp_path)
    assert "Not drawn yet" in text
    assert "![" not in text


def test_a_picture_that_nothing_draws_is_an_error(gallery, tmp_path):
    folder = tmp_path / "figures"
    folder.mkdir()
    (folder / "unknown.png").touch()
    with pytest.raises(ValueError, match=r"figures/unknown\.png is neither"):
        gallery.page({}, tmp_path)


FAST = ("theorem1_margin", "analyze-phase")
NAMES = [
    path.stem if path.stem in FAST else pytest.param(path.stem, marks=pytest.mark.deep)
    for path in PICTURES
]


@pytest.mark.parametrize("name", NAMES)
def test_the_code_of_a_section_draws_a_figure(sections, name, monkeypatch):
    monkeypatch.chdir(ROOT)
    found = re.search(r"^`(loca\..+\))`$", sections[name], re.MULTILINE)
    call = found[1] if found else f'loca.figure("{name}", results="figures")'
    before = {path: path.stat().st_mtime_ns for path in PICTURES}
    assert isinstance(eval(call, {"loca": loca}), Figure)
    assert {path: path.stat().st_mtime_ns for path in PICTURES} == before
