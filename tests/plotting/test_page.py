"""The page of a result: complete in itself, escaped, and readable without scripts."""

import html
import json
import math
import re
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest
import torch
from bs4 import BeautifulSoup
from matplotlib.colors import to_rgb

from loca_theory import ResourceError
from loca_theory.checkpoints import analyze
from loca_theory.expressivity import Accounting, simulate
from loca_theory.expressivity.limits import coefficient_fraction
from loca_theory.expressivity.theorem1.ordering import Ordering
from loca_theory.plotting import report
from loca_theory.plotting.page.analysis import picture_data
from loca_theory.plotting.page.tables import matrix_columns
from loca_theory.plotting.page.templates import breakable
from loca_theory.plotting.pictures import pictures_of
from loca_theory.sweeps import Runner
from tests.checkpoints.files import normal

ALONE = Runner(jobs=1)
HTML = files("loca_theory.plotting.page") / "html"
HOSTILE = "</script><img src=x onerror=alert(1)>.q_proj.weight"


class Texts:
    """The innermost texts of a page, its tags, the rows of its tables, and what it refers to."""

    def __init__(self, page):
        tags = BeautifulSoup(page, "html.parser").find_all(True)
        named = [(name, tag[name]) for tag in tags for name in tag.attrs]
        assert not [name for name, _ in named if name.startswith("on")], "no handler is there"
        self.tags = [tag.name for tag in tags]
        self.ids = [value for name, value in named if name == "id"]
        self.sources = [value for name, value in named if name in ("src", "href", "srcset")]
        rows = [tag.find_all(["td", "th"]) for tag in tags if tag.name == "tr"]
        # A heading does not break inside a name.
        self.rows = [[cell.get_text().replace("\xa0", " ") for cell in row] for row in rows]
        # A name may be broken at any of its dots.
        inner = [tag for tag in tags if all(tag.name == "wbr" for tag in tag.find_all(True))]
        self.texts = [tag.get_text().strip() for tag in inner]


@pytest.fixture(scope="module")
def analysis():
    base = {name: torch.zeros(24, 20) for name in (HOSTILE, "b.v_proj.weight", "c.weight")}
    tuned = {name: normal(24, 20, seed=i) for i, name in enumerate(base)} | {
        "c.weight": base[HOSTILE]
    }
    return analyze(base, tuned, ranks=[2, 3, 30])


@pytest.fixture(scope="module")
def full():
    """Two fine-tunes, their subspaces, and a total to split: every statistic and table."""
    base = {f"a.{i}.{kind}.weight": normal(24, 20, seed=i) for i, kind in enumerate("qv")}
    tuned = [{name: w + size * w.flip(0) for name, w in base.items()} for size in (1, 3)]
    return analyze(base, *tuned, ranks=[1], subspaces=2, allocate=200)


@pytest.fixture(scope="module")
def page(analysis):
    return report(analysis)


@pytest.fixture(scope="module")
def simulation():
    return simulate(16, ranks=[1, 2], methods=["LoCA", "LoRA"], engine="exact")


def test_an_analysis_has_verdict_tables_and_manifest(analysis, page):
    texts = Texts(page.html).texts
    assert {analysis.message.removesuffix("."), *analysis.findings} <= set(texts)
    assert analysis.config_source in texts
    assert "would fit, with the budget of LoRA with r = 2; do not choose" in page.html
    for heading in ("What was found", "Every matrix", "Skipped", "Manifest"):
        assert heading in texts
    assert "unchanged: every entry of the increment is 0" in texts
    assert repr(page) == "Page()", "not the whole text"


def test_unrelated_checkpoints_are_said_to_be_below_the_title(page):
    unrelated = analyze(
        {"a.weight": normal(24, 20)}, {"a.weight": normal(24, 20, seed=1)}, ranks=[2]
    )
    texts = Texts(report(unrelated).html).texts
    assert texts.index(unrelated.warnings[0]) < texts.index("Every matrix")
    assert texts.count(unrelated.warnings[0]) == 1
    assert "cos(W₀, W′)" in texts
    assert "are unrelated" not in page.html


def test_the_table_of_matrices_is_complete_without_scripts(analysis, page):
    rows = Texts(page.html).rows
    (heading,) = [row for row in rows if row[0] == "name" and "σ" in row]
    assert not [title for title in heading if "r = 30" in title], "no budget of that rank fits"
    for matrix in analysis.matrices:
        (row,) = [row for row in rows if row[0] == matrix.name and len(row) == len(heading)]
        cells = dict(zip(heading, row, strict=True))
        assert cells["σ"] == f"{matrix.sigma:.3g}"
        outside = (f"{matrix.outlier_mass:.0%}", str(matrix.spikes))
        shown = outside if matrix.follows_law else ("none", "none")
        assert (cells["outside bulk"], cells["spikes"]) == shown
        of_matrix = [error for error in analysis.errors if error.name == matrix.name]
        for error in of_matrix:
            shown = error.method
            assert cells[f"{shown}, r = {error.r}"] == f"{1 - error.error:.1%}"
            if error.method != "LoRA" and error.spectral_error is not None:
                worth = error.spectral_error - error.error
                assert cells[f"{shown} worth, r = {error.r}"] == f"{worth:+z.1%}"
        (low_rank,) = [error for error in of_matrix if (error.method, error.r) == ("LoRA", 2)]
        shuffled = low_rank.shuffled_error
        assert cells["LoRA shuffled, r = 2"] == ("" if shuffled is None else f"{1 - shuffled:.1%}")
        assert "LoRA worth, r = 2" not in cells
        best = min((error for error in of_matrix if error.r == 2), key=lambda error: error.error)
        assert cells["best, r = 2"] == best.method


def test_every_column_is_explained_and_what_is_retained_comes_first(page):
    headings = re.findall(r'<th scope="col"([^>]*)>', page.html)
    assert len(headings) > 30
    assert all(re.fullmatch(r' title="[^"]{9,}\."', attributes) for attributes in headings)
    assert any("DCT, best coefficients" in attributes for attributes in headings)
    (heading,) = [row for row in Texts(page.html).rows if row[0] == "name" and "σ" in row]
    assert heading[:4] == ["name", "kind", "shape", "best, r = 2"]
    assert heading.index("LoRA shuffled, r = 2") < heading.index("σ")
    assert page.html.index('id="heat"') < page.html.index('id="matrices"'), "a picture comes first"


def test_a_statistic_that_no_matrix_has_is_not_a_column(analysis, full):
    optional = {"fine-tune", "‖ΔW‖/‖W₀‖", "left alignment", "intruders", "LoRA size", "LoCA size"}
    assert not optional & {column.title for column in matrix_columns(analysis)}
    assert optional <= {column.title for column in matrix_columns(full)}
    assert len(matrix_columns(full)) == 48, "no other statistic lacks its column"


def test_several_fine_tunes_have_tables_of_their_own(full, page):
    rows = [[cell.partition("\n")[0] for cell in row] for row in Texts(report(full).html).rows]

    def below(heading, number=0):
        at = next(i for i, cells in enumerate(rows) if heading in cells)
        return dict(zip(rows[at], rows[at + 1 + number], strict=True)).items()

    for number, totals in enumerate(full.summary.by_tuned):
        expected = {"fine-tune": totals.name, "matrices": str(totals.matrices)}
        errors = {error.method: f"{1 - error.error:.1%}" for error in totals.errors}
        assert below("matrices", number) >= (expected | errors).items()
    assert "The fine-tunes" not in Texts(page.html).texts, "there is only one"
    compared, size = full.comparisons[0], full.allocation[0]
    expected = {
        "name": compared.name,
        "first": full.tuned[0],
        "cosine": "+1.000",
        "sign conflicts": "0.0%",
    }
    assert below("cosine") >= expected.items()
    retained = {"size": str(size.size), "retained": f"{size.retained:.1%}"}
    assert below("uniform") >= ({"name": size.name} | retained).items()


def test_the_map_has_the_matrices_that_a_rank_fits_and_the_line_between_the_methods():
    tuned = {"a.weight": normal(24, 20), "b.weight": normal(16, 16)}
    analysis = analyze({name: 0 * weight for name, weight in tuned.items()}, tuned, ranks=[2, 10])
    shown = picture_data(analysis, matrix_columns(analysis))
    # A coefficient costs two of the budget's r (p + q) numbers: r = 2 pays for 44 of 480.
    assert shown["coefficients"] == {"2": [0.0916667, 0.125], "10": [0.458333, None]}
    line = dict(zip(shown["line"]["x"], shown["line"]["y"], strict=True))
    assert min(line) < 44 / 480 < 220 / 480 < max(line)
    assert all(y == pytest.approx(coefficient_fraction(x), rel=1e-3) for x, y in line.items())


def test_the_data_are_json_that_any_browser_reads(analysis):
    rows = tuple(replace(row, tail_exponent=math.inf, energy=math.nan) for row in analysis.matrices)
    strange = replace(analysis, matrices=rows, spectra=analysis.spectra[:1])
    drawn = picture_data(strange, matrix_columns(strange))
    assert json.loads(json.dumps(drawn, allow_nan=False)) == json.loads(json.dumps(drawn))
    by_title = {column["title"]: column["values"] for column in drawn["columns"]}
    assert by_title["energy"] is None, "no number in it"
    assert by_title["name"] is None
    assert by_title["σ"] == [float(f"{row.sigma:.6g}") for row in rows]
    assert drawn["spectra"][0]["counts"] == analysis.spectra[0].counts
    assert drawn["spectra"][1] is None


def test_names_from_files_stay_names(page):
    texts = Texts(page.html)
    assert HOSTILE in texts.texts, "escaped, not left out"
    assert "img" not in texts.tags
    assert texts.tags.count("script") == page.html.count("</script>") == 4
    data = re.search(r'<script [^>]*id="data">(.*?)</script>', page.html)[1]
    assert json.loads(data)["rows"][0]["name"] == HOSTILE
    assert breakable("a.<b>.c") == "a.<wbr>&lt;b&gt;.<wbr>c"


def test_a_page_refers_to_nothing_outside_itself(page, simulation):
    assert Texts(page.html).sources == []
    other = Texts(report(simulation).html)
    assert len(other.sources) == len(pictures_of(simulation))
    assert all(source.startswith("data:image/png;base64,") for source in other.sources)
    assert not {"script", "link", "iframe"} & set(other.tags)
    for source in (page.html, report(simulation).html):
        # The browser refuses what this policy does not name: any request, and any other code.
        policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', source)[1]
        assert policy == (
            "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
            "script-src 'unsafe-inline'"
        )


def test_scripts_name_elements_that_the_page_has(page):
    scripts = [path.read_text("utf-8") for path in HTML.iterdir() if path.name.endswith(".js")]
    pattern = r'(?:find|getElementById|figure)\("([a-z-]+)"'
    used = {name for script in scripts for name in re.findall(pattern, script)}
    ids = Texts(page.html).ids
    assert len(ids) == len(set(ids))
    assert {"heat", "map", "spectrum", "data", "matrices"} <= used <= set(ids)
    assert all(script.strip() in page.html for script in scripts), "no braces of the templates"


def test_an_analysis_of_nothing_has_a_page(analysis):
    empty = replace(analysis, matrices=(), errors=(), spectra=(), figure_data=())
    texts = Texts(report(empty).html)
    assert "script" not in texts.tags
    assert "Skipped" in texts.texts


def luminance(color):
    parts = np.array(to_rgb(color))
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return linear @ (0.2126, 0.7152, 0.0722)


def contrast(first, other):
    light, dark = sorted((luminance(first), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_texts_and_marks_stand_out(theme):
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    style = (HTML / "style.css").read_text("utf-8")
    colors = dict(re.findall(r"--(\w+): (#\w{6})", re.findall(r":root \{([^}]*)\}", style)[theme]))
    for back in ("back", "panel", "mark"):
        # Contrasts that the accessibility guidelines of the web ask of texts and of pictures.
        for text in ("text", "quiet", "accent"):
            assert contrast(colors[text], colors[back]) >= 4.5, (text, back)
    for mark in ("blue", "red", "green", "pink", "sky", "orange", "grey"):
        assert contrast(colors[mark], colors["back"]) >= 3, mark


def test_it_is_saved_as_it_is_and_a_notebook_shows_it_in_a_frame_of_its_own(page, tmp_path):
    shown = re.fullmatch(r'<iframe srcdoc="([^"]*)" style="[^"]*"></iframe>', page._repr_html_())
    assert html.unescape(shown[1]) == page.html
    path = page.save(tmp_path / "new" / "page.html")
    assert path.read_text(encoding="utf-8") == page.html
    with pytest.raises(ResourceError, match="cannot write to"):
        page.save(path / "page.html")


def test_any_result_that_is_drawn_has_a_page(simulation, monkeypatch):
    monkeypatch.setattr("loca_theory.plotting.page.report._MOST_ROWS", 3)
    texts = Texts(report(simulation).html).texts
    assert "Reconstruction errors" in texts
    assert "The first 3 of 4 rows; to_frame() returns all." in texts
    rows = [f"{row.error:.4g}" for row in simulation.rows]
    assert [error for error in texts if error in rows] == rows[:3]
    assert "<h2>Manifest</h2>\n<pre>loca-theory " in report(simulation).html
    seed = 20_261_127
    drawn = simulate(16, ranks=[1], methods="LoCA", engine="all", draws=2, seed=seed, runner=ALONE)
    drawn.manifest["argv"] = ["my", "line"]
    page = report(drawn).html
    assert str(seed) in Texts(page).texts, "not rounded beside rows without a seed"
    assert "<h2>Manifest</h2>\n<pre>my line\n" in page
    ordering = Ordering((4, 5), (Accounting.PAPER,)).run(ALONE)
    assert "The ordering of Theorem 1" in Texts(report(ordering).html).texts
