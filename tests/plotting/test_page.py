"""The page of a result: complete in itself, escaped, and readable without scripts."""

import base64
import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files

import pytest
import torch

from loca_theory import InvalidArgumentError, ResourceError
from loca_theory.checkpoints import analyze, demo_pair, extract
from loca_theory.expressivity import simulate
from loca_theory.expressivity.methods.names import display_name
from loca_theory.plotting import Page, report
from loca_theory.plotting.pictures import save_pictures, views

# Tags inside a text, which do not begin another.
INLINE = ("wbr",)


class Texts(HTMLParser):
    """The text of each cell and heading, the tags that were opened, and what they refer to."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.texts, self.sources, self.ids, self.rows = [], [], [], [], []
        self.feed(page)
        self.texts = [text.strip() for text in self.texts]

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        named = dict(attributes)
        self.sources += [named[name] for name in ("src", "href", "srcset") if name in named]
        self.ids += [named["id"]] if "id" in named else []
        assert not [name for name in named if name.startswith("on")], "no handler in an attribute"
        if tag == "tr":
            self.rows.append([])
        if tag not in INLINE:
            self.texts.append("")
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data):
        if self.texts:
            self.texts[-1] += data
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


HOSTILE = "</script><img src=x onerror=alert(1)>.q_proj.weight"


@pytest.fixture(scope="module")
def analysis():
    source = torch.Generator().manual_seed(0)
    base = {name: torch.zeros(24, 20) for name in (HOSTILE, "b.v_proj.weight", "c.weight")}
    tuned = {
        name: torch.randn(24, 20, generator=source) if name != "c.weight" else base[name]
        for name in base
    }
    return analyze(base, tuned, ranks=[2, 3])


@pytest.fixture(scope="module")
def page(analysis):
    return report(analysis)


@pytest.fixture(scope="module")
def simulation():
    return simulate(16, ranks=[1, 2], methods=["D", "R"], engine="exact")


def data_of(page):
    return json.loads(re.search(r'<script [^>]*id="data">(.*?)</script>', page.html)[1])


def test_an_analysis_has_verdict_tables_and_manifest(analysis, page):
    texts = Texts(page.html).texts
    assert set(analysis.verdict.split("\n\n")) <= set(texts)
    assert analysis.config in texts
    for heading in ("Increments of 2 matrices", "Every matrix", "Skipped", "Manifest"):
        assert heading in texts
    assert "unchanged: every entry of the increment is 0" in texts
    assert repr(page) == "Page()", "not the whole text"


@pytest.mark.parametrize(
    ("recorded", "first"), [({}, "loca-theory "), ({"argv": ["my", "line"]}, "my line\n")]
)
def test_a_command_line_is_shown_if_there_is_one(simulation, recorded, first):
    found = replace(simulation, manifest=simulation.manifest | recorded)
    assert f"<h2>Manifest</h2>\n<pre>{first}" in report(found).html


def test_unrelated_checkpoints_are_said_to_be_before_the_verdict(page):
    source = torch.Generator().manual_seed(0)
    sides = [{"fc.weight": torch.randn(24, 20, generator=source)} for _ in range(2)]
    found = analyze(*sides, ranks=[2])
    texts = Texts(report(found).html).texts
    assert texts.index(found.warnings[0]) < texts.index(found.verdict.split("\n\n")[0])
    assert "cos(W₀, W′)" in texts
    assert 'class="warning"' not in page.html


def test_the_table_of_matrices_is_complete_without_scripts(analysis, page):
    rows = Texts(page.html).rows
    (heading,) = [row for row in rows if row[0] == "name" and "σ" in row]
    for matrix in analysis.matrices:
        (row,) = [row for row in rows if row[0] == matrix.name and len(row) == len(heading)]
        cells = dict(zip(heading, row, strict=True))
        assert cells["σ"] == f"{matrix.sigma:.3g}"
        assert cells["spikes"] == str(matrix.spikes)
        for error in analysis.errors:
            if error.name == matrix.name:
                assert cells[f"{display_name(error.method)}, r = {error.r}"] == f"{error.error:.3f}"


def test_every_column_is_explained(page):
    found = re.findall(r'<th scope="col"([^>]*)>', page.html)
    assert len(found) > 30
    assert all(re.fullmatch(r' title="[^"]{9,}\."', one) for one in found)


def test_names_from_files_stay_names(analysis, page):
    found = Texts(page.html)
    assert HOSTILE in found.texts, "escaped, not left out"
    assert "img" not in found.tags
    assert found.tags.count("script") == page.html.count("</script>") == 4
    assert data_of(page)["rows"][0]["name"] == HOSTILE


def test_a_page_refers_to_nothing_outside_itself(analysis, page, simulation):
    assert Texts(page.html).sources == []
    other = Texts(report(simulation).html)
    assert len(other.sources) == len(views(simulation))
    assert all(source.startswith("data:image/png;base64,") for source in other.sources)
    for tag in ("script", "link", "iframe"):
        assert tag not in other.tags
    for source in (page.html, report(simulation).html):
        # The browser refuses what this policy does not name: any request, and any other code.
        policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', source)[1]
        assert policy == (
            "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
            "script-src 'unsafe-inline'"
        )


def test_scripts_name_elements_that_the_page_has(page):
    folder = files("loca_theory.plotting") / "html"
    scripts = [one.read_text("utf-8") for one in folder.iterdir() if one.name.endswith(".js")]
    used = {
        name
        for script in scripts
        for name in re.findall(r'(?:find|getElementById|figure)\("([a-z-]+)"', script)
    }
    ids = Texts(page.html).ids
    assert len(ids) == len(set(ids))
    assert used <= set(ids)
    assert {"heat", "map", "spectrum", "data", "matrices"} <= used
    assert all(script.strip() in page.html for script in scripts), "no braces of the templates"


def test_500_matrices_with_long_names_stay_under_5_megabytes(analysis):
    copies = [
        (row, f"base_model.model.model.decoder.layers.{i}.self_attention.{'a' * 40}.weight")
        for i in range(250)
        for row in analysis.matrices
    ]

    def renamed(rows):
        by_name = {row.name: [one for one in rows if one.name == row.name] for row in rows}
        return tuple(replace(one, name=name + row.name[:1]) for row, name in copies
                     for one in by_name[row.name])  # fmt: skip

    many = replace(
        analysis,
        matrices=renamed(analysis.matrices),
        errors=renamed([replace(one, r=r) for one in analysis.errors for r in (one.r, one.r + 2)]),
        spectra=renamed(analysis.spectra),
    )
    found = report(many).html
    assert len(data_of(Page(found))["rows"]) == 500
    assert found.count('<th scope="row">') > 500
    assert len(found.encode()) < 5_000_000


def test_an_analysis_of_nothing_has_a_page(analysis):
    empty = replace(analysis, matrices=(), errors=(), spectra=(), figure_data=())
    found = Texts(report(empty).html)
    assert "script" not in found.tags
    assert "Skipped" in found.texts


def luminance(color):
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return sum(factor * one for factor, one in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_texts_and_marks_stand_out(theme):
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    style = (files("loca_theory.plotting") / "html" / "style.css").read_text("utf-8")
    colors = dict(re.findall(r"--(\w+): (#\w{6})", re.findall(r":root \{([^}]*)\}", style)[theme]))
    for back in ("back", "panel", "mark"):
        # What the accessibility guidelines of the web ask of texts and of pictures.
        for text in ("text", "quiet", "accent"):
            assert contrast(colors[text], colors[back]) >= 4.5, (text, back)
    for mark in ("blue", "red", "green", "pink", "sky", "orange", "grey"):
        assert contrast(colors[mark], colors["back"]) >= 3, mark


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


def test_any_result_that_is_drawn_has_a_page(simulation, monkeypatch):
    monkeypatch.setattr("loca_theory.plotting.page._MOST_ROWS", 3)
    texts = Texts(report(simulation).html).texts
    assert "Reconstruction errors" in texts
    assert "The first 3 of 4 rows; to_frame() returns all." in texts
    rows = [f"{row.error:.4g}" for row in simulation.rows]
    assert [error for error in texts if error in rows] == rows[:3]


def test_what_cannot_be_drawn_has_no_page():
    adapter = extract(*demo_pair(), "lora", rank=1, include="0.down")
    with pytest.raises(InvalidArgumentError, match="Extraction cannot be drawn"):
        report(adapter)
