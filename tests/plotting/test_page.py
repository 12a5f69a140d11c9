"""The page of a result: complete in itself, and escaped."""

import base64
import html
import re
from html.parser import HTMLParser

import pytest
import torch

from loca_theory import InvalidArgumentError, ResourceError
from loca_theory.checkpoints import analyze, demo_pair, extract
from loca_theory.expressivity import simulate
from loca_theory.plotting import Page, report, save_pictures, views


class Texts(HTMLParser):
    """The text of each cell and heading, and the tags that were opened."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.texts, self.sources = [], [], []
        self.feed(page)
        self.texts = [text.strip() for text in self.texts]

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.texts.append("")
        self.sources += [value for name, value in attributes if name in ("src", "href", "srcset")]

    def handle_data(self, data):
        if self.texts:
            self.texts[-1] += data


STRANGE = "<script>alert(1)</script>.q_proj.weight"


@pytest.fixture(scope="module")
def analysis():
    source = torch.Generator().manual_seed(0)
    base = {name: torch.zeros(24, 20) for name in (STRANGE, "b.v_proj.weight", "c.weight")}
    tuned = {
        name: torch.randn(24, 20, generator=source) if name != "c.weight" else base[name]
        for name in base
    }
    return analyze(base, tuned, ranks=[2])


@pytest.fixture(scope="module")
def page(analysis):
    return report(analysis)


def test_an_analysis_has_verdict_tables_pictures_and_manifest(analysis, page):
    texts = Texts(page.html).texts
    assert analysis.verdict in texts
    assert analysis.config in texts
    for heading in ("Increments of 2 matrices", "Every matrix", "Skipped", "Manifest"):
        assert heading in texts
    for view in views(analysis):
        assert view.title in texts
    assert "unchanged: every entry of the increment is 0" in texts
    assert repr(page) == "Page()", "not the whole text"


def test_nothing_is_fetched_and_nothing_is_run(analysis, page):
    found = Texts(page.html)
    assert len(found.sources) == len(views(analysis))
    assert all(source.startswith("data:image/png;base64,") for source in found.sources)
    assert "script" not in found.tags
    assert "link" not in found.tags
    assert STRANGE in found.texts, "escaped, not left out"


def test_pictures_drawn_before_are_not_drawn_again(tmp_path, monkeypatch):
    result = simulate(8, ranks=[1], methods=["D"], engine="exact")
    drawn = save_pictures(result, tmp_path)
    monkeypatch.setattr("loca_theory.plotting.page.png", None)
    image = base64.b64encode(drawn[0].read_bytes()).decode()
    assert Texts(report(result, drawn).html).sources == [f"data:image/png;base64,{image}"]


def test_a_notebook_shows_it_in_a_frame_of_its_own(page):
    shown = re.fullmatch(r'<iframe srcdoc="([^"]*)" style="[^"]*"></iframe>', page._repr_html_())
    assert html.unescape(shown[1]) == page.html


def test_it_is_saved_as_it_is(page, tmp_path):
    path = page.save(tmp_path / "new" / "page.html")
    assert path.read_text(encoding="utf-8") == page.html


def test_a_folder_that_takes_no_files_is_an_error(tmp_path):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(ResourceError, match="cannot write to"):
        Page("text").save(tmp_path / "file" / "page.html")


def test_any_result_that_is_drawn_has_a_page(monkeypatch):
    monkeypatch.setattr("loca_theory.plotting.page._MOST_ROWS", 3)
    result = simulate(16, ranks=[1, 2], methods=["D", "R"], engine="exact")
    texts = Texts(report(result).html).texts
    assert "Reconstruction errors" in texts
    assert "The first 3 of 4 rows; to_frame() returns all." in texts
    rows = [f"{row.error:.4g}" for row in result.rows]
    assert [error for error in texts if error in rows] == rows[:3]


def test_what_cannot_be_drawn_has_no_page():
    adapter = extract(*demo_pair(), "lora", rank=1, include="0.down")
    with pytest.raises(InvalidArgumentError, match="Extraction cannot be drawn"):
        report(adapter)
