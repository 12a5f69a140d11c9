"""The page of an analysis in a browser: what a reader points at, clicks, sorts and filters."""

from dataclasses import replace

import numpy as np
import pytest

from loca_theory.checkpoints import analyze
from loca_theory.plotting import report

from . import browser as browsers

pytestmark = [
    pytest.mark.deep,
    pytest.mark.skipif(
        browsers.executable() is None,
        reason=f"no {' or '.join(browsers.NAMES)} on PATH; install Chromium to run these tests",
    ),
]
LAYERS = 6
KINDS = ("q_proj", "v_proj", "up_proj")
HOSTILE = "</script><img src=x onerror=alert(1)>.lm_head.weight"


@pytest.fixture(scope="module")
def analysis():
    import torch

    rng = np.random.default_rng(0)
    tuned = {}
    for layer in range(LAYERS):
        for kind in KINDS:
            spike = layer * 0.1 * np.outer(rng.normal(size=60), rng.normal(size=45))
            change = torch.from_numpy(rng.normal(size=(60, 45)) + spike).float()
            tuned[f"model.layers.{layer}.{kind}.weight"] = change
    low_rank = np.outer(rng.normal(size=60), rng.normal(size=45))
    tuned[HOSTILE] = torch.from_numpy(low_rank).float()
    return analyze({name: torch.zeros(60, 45) for name in tuned}, tuned, ranks=[1, 2])


@pytest.fixture(scope="module")
def path(analysis, tmp_path_factory):
    return report(analysis).save(tmp_path_factory.mktemp("page") / "analyze.html")


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    browser = browsers.Browser(browsers.executable(), tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def page(tab, path):
    """The page in a wide window; whatever a test does, the page must not complain."""
    tab.open(path)
    yield tab
    assert tab.problems == []
    assert [url for url in tab.requests if not url.startswith("data:")] == [path.as_uri()]


def names(page):
    """Names in the table of matrices, as it is shown."""
    return page.run(
        "[...document.querySelectorAll('#matrices tbody tr')].filter((row) => !row.hidden)"
        ".map((row) => row.cells[0].textContent)"
    )


def sort(page, title):
    page.run(
        "[...document.querySelectorAll('#matrices thead button')]"
        f".find((one) => one.textContent === {title!r}).click()"
    )


def fill(page, element, value):
    page.run(
        f"(() => {{ const field = document.getElementById({element!r}); field.value = {value!r}; "
        "field.dispatchEvent(new Event('input', { bubbles: true })); })()"
    )
    page.run(browsers.IDLE)


def mark(page, picture, index, glyph):
    """The point of the window where a picture, scrolled into it, has one of its marks."""
    return page.run(
        f"""(() => {{
          const element = document.getElementById({picture!r});
          element.scrollIntoView({{ block: "center" }});
          const {{ left, top }} = element.getBoundingClientRect();
          const root = Bokeh.documents.flatMap((one) => one.roots()).find((one) =>
            element.contains(Bokeh.index.get_by_id(one.id).el));
          const view = Bokeh.index.get_by_id(root.id);
          const renderer = root.renderers.find((one) => one.glyph.type === {glyph!r});
          const {{ x, y }} = renderer.data_source.data;
          const {{ x_scale, y_scale }} = view.frame;
          return [left + x_scale.compute(x[{index}]), top + y_scale.compute(y[{index}])];
        }})()"""
    )


def chosen(page):
    return page.run("document.getElementById('chosen-name').textContent")


def tips(page):
    """Texts of the tooltips, which BokehJS keeps in shadow trees."""
    return page.run(
        """(() => {
          const texts = [], walk = (node) => {
            for (const one of node.querySelectorAll("*")) {
              if (one.className === "bk-tooltip-content") texts.push(one.innerText);
              if (one.shadowRoot) walk(one.shadowRoot);
            }
          };
          walk(document);
          return texts.join("\\n");
        })()"""
    )


def test_the_page_draws_and_a_heading_sorts_and_sorts_back(page, analysis):
    assert page.run("Bokeh.documents.length") == 3
    assert page.run("document.getElementById('count').value") == "19 of 19 matrices"
    assert chosen(page) == analysis.matrices[0].name
    assert names(page) == [row.name for row in analysis.matrices]
    assert page.run("document.images.length") == 0, "the hostile name is a text"
    order = sorted(analysis.matrices, key=lambda row: row.stable_rank)
    sort(page, "stable rank")
    assert names(page) == [row.name for row in reversed(order)]
    assert page.run("document.querySelector('[aria-sort]').ariaSort") == "descending"
    sort(page, "stable rank")
    assert names(page) == [row.name for row in order]
    sort(page, "MP distance")
    assert names(page)[-1] == HOSTILE, "missing values come last"
    sort(page, "name")
    assert names(page) == sorted(names(page))


def test_filters_reach_the_table_and_the_pictures(page, analysis):
    shown = "Bokeh.documents[0].roots()[0].renderers[0].data_source.data.x.length"
    assert page.run(shown) == 19
    fill(page, "search", "Q_PROJ")
    assert names(page) == [f"model.layers.{layer}.q_proj.weight" for layer in range(LAYERS)]
    assert page.run(shown) == LAYERS
    fill(page, "search", "")
    fill(page, "kind", "value")
    assert page.run("document.getElementById('count').value") == "6 of 19 matrices"
    page.run("document.querySelector('#controls [type=reset]').click()")
    page.run(browsers.IDLE)
    fill(page, "field", "spikes")
    fill(page, "limit", "1")
    shown = [row for row in analysis.matrices if row.follows_law]  # spikes stand out of a law
    assert names(page) == [row.name for row in shown if row.spikes >= 1]
    assert 0 < len(names(page)) < 19
    fill(page, "relation", "-1")
    assert names(page) == [row.name for row in shown if row.spikes <= 1]
    # Energy retained is compared in per cent, as the cells show it.
    retained = {
        error.name: 100 * (1 - error.error)
        for error in analysis.errors
        if (error.method, error.r) == ("LoRA", 1)
    }
    *_, below, above = sorted(retained.values())[:5]
    fill(page, "field", "LoRA")
    fill(page, "limit", f"{(below + above) / 2}")
    assert names(page) == [name for name, value in retained.items() if value <= below]


def test_the_rank_chooses_columns_and_rows(page):
    visible = (
        "[...document.querySelectorAll('#matrices thead th')]"
        ".filter((one) => one.offsetWidth).map((one) => one.textContent.replaceAll('\\xa0', ' '))"
    )
    assert "LoCA, r = 1" in page.run(visible)
    assert "LoCA, r = 2" not in page.run(visible)
    fill(page, "rank", "2")
    assert "LoCA, r = 1" not in page.run(visible)
    assert "LoCA, r = 2" in page.run(visible)
    ranks = (
        "[...new Set([...document.querySelectorAll('#means tbody tr')]"
        ".filter((one) => one.offsetHeight).map((one) => one.dataset.r))]"
    )
    assert page.run(ranks) == ["2"]
    page.run("[...document.querySelectorAll('.groups input')].at(-2).click()")
    assert not [title for title in page.run(visible) if "worth" in title]


def test_pointing_at_a_cell_says_its_matrix_and_clicking_shows_its_spectrum(page, analysis):
    # The cells come in the order of the rows.
    point = mark(page, "heat", 7, "Rect")
    page.point(*point)
    name = analysis.matrices[7].name
    assert name in tips(page)
    error = next(error for error in analysis.errors if (error.name, error.method) == (name, "LoRA"))
    assert f"LoRA: {1 - error.error:.1%}" in tips(page)
    page.point(*point, click=True)
    assert chosen(page) == name
    drawn = "Bokeh.documents[2].roots()[0].renderers[0].data_source.data.count"
    assert page.run(drawn) == list(analysis.spectra[7].counts)


def test_a_point_of_the_map_is_a_matrix(page, analysis):
    # Of the marks under the pointer the first is chosen; nothing is near that of the last layer.
    index = 3 * LAYERS - 3
    point = mark(page, "map", index, "Scatter")
    page.point(*point)
    assert analysis.matrices[index].name in tips(page)
    page.point(*point, click=True)
    assert chosen(page) == analysis.matrices[index].name


def test_a_row_is_chosen_by_a_click_or_by_the_keyboard(page, analysis):
    page.run("document.querySelectorAll('#matrices tbody tr')[4].cells[3].click()")
    assert chosen(page) == analysis.matrices[4].name
    page.run("document.querySelectorAll('#matrices tbody button')[2].focus()")
    for kind in ("keyDown", "keyUp"):
        page(
            "Input.dispatchKeyEvent",
            type=kind,
            key="Enter",
            code="Enter",
            text="\r",
            windowsVirtualKeyCode=13,
        )
    assert chosen(page) == analysis.matrices[2].name
    law = "Bokeh.documents[2].roots()[0].renderers[1].data_source.data.x.length"
    assert page.run(law) == 200
    page.run("document.querySelectorAll('#matrices tbody tr')[18].click()")
    assert chosen(page) == HOSTILE
    assert page.run(law) == 0, "no bulk, no law"
    assert "logarithmic" in page.run("document.getElementById('spectrum-words').textContent")


def test_the_theme_follows_the_system(page):
    color = "getComputedStyle(document.body).backgroundColor"
    label = "[...Bokeh.documents[0].roots()[0].xaxis][0].axis_label_text_color"
    assert (page.run(color), page.run(label)) == ("rgb(255, 255, 255)", "#1f2328")
    page.theme(dark=True)
    page.run(browsers.IDLE)
    assert (page.run(color), page.run(label)) == ("rgb(21, 24, 28)", "#e6e8eb")
    page.theme(dark=False)


def with_fine_tunes(analysis, names, rename=lambda name: name):
    """The analysis as if each of its increments were that of several fine-tunes."""
    tables = {
        table: tuple(
            replace(row, tuned=tuned, name=rename(row.name))
            for tuned in names
            for row in getattr(analysis, table)
        )
        for table in ("matrices", "errors", "spectra")
    }
    grid = analysis.manifest["grid"]
    coverage = dict.fromkeys(names, grid["coverage"][grid["labels"][0]])
    grid = {**grid, "labels": list(names), "coverage": coverage}
    return replace(analysis, manifest={**analysis.manifest, "grid": grid}, **tables)


def test_two_fine_tunes_share_cells_and_are_told_apart(tab, analysis, tmp_path):
    tab.open(report(with_fine_tunes(analysis, ("x", "y"))).save(tmp_path / "two.html"))
    point = mark(tab, "heat", 1, "Rect")
    tab.point(*point)
    name = analysis.matrices[1].name
    assert "mean of 2 matrices" in tips(tab)
    assert f"{name} (x)" in tips(tab)
    assert f"{name} (y)" in tips(tab)
    facts = "document.getElementById('chosen-facts').textContent.split(',')[0]"
    for tuned in ("x", "y", "x"):
        tab.point(*point, click=True)
        assert (chosen(tab), tab.run(facts)) == (name, tuned)
    fill(tab, "tuned", "y")
    assert tab.run("document.getElementById('count').value") == "19 of 38 matrices"
    tab.point(*mark(tab, "heat", 1, "Rect"), click=True)
    assert tab.run(facts) == "y"
    assert tab.problems == []


def test_columns_beyond_the_edge_are_hinted_at_until_they_are_in_view(tab, analysis, tmp_path):
    tab.open(report(analysis).save(tmp_path / "wide.html"), width=1280, height=800)
    wide = "document.querySelector('#matrices').parentNode"
    hint = f"getComputedStyle({wide}, '::after').content"
    assert tab.run(hint) == '"›"'
    scrolled = f"new Promise((done) => {{ {wide}.addEventListener('scroll', () => done()); "
    tab.run(f"{scrolled}{wide}.scrollLeft = 1e6; }})")
    assert tab.run(hint) == "none"
    tops = f"[...{wide}.querySelectorAll('tbody th')].map((one) => one.getBoundingClientRect().top)"
    first, *further_tops = tab.run(tops)
    assert all((top - first).is_integer() for top in map(float, further_tops)), "rules are whole"


def test_what_is_retained_is_in_view_in_a_wide_window_and_a_note_is_one_line_high(
    tab, analysis, tmp_path
):
    note = "a remark that is much longer than what fits into a column of this table " * 5
    noted = replace(
        analysis, matrices=(replace(analysis.matrices[0], note=note), *analysis.matrices[1:])
    )
    tab.open(report(noted).save(tmp_path / "noted.html"))
    edges = (
        "[...document.querySelectorAll('#matrices thead th')].filter((one) => one.offsetWidth)"
        ".map((one) => [one.textContent, one.getBoundingClientRect().right])"
    )
    ends = dict(tab.run(edges))
    assert (
        max(ends[key] for key in ends if key.endswith("r\xa0=\xa01") and "worth" not in key) <= 1400
    )
    heights = "[...document.querySelectorAll('#matrices tbody tr')].map((one) => one.offsetHeight)"
    first, second, *_ = tab.run(heights)
    assert first == second
    tab.run("document.querySelectorAll('#matrices tbody tr')[0].click()")
    assert note.strip() in tab.run("document.getElementById('chosen-values').textContent")
    assert tab.problems == []


@pytest.mark.parametrize("width", [320, 390, 800])
def test_a_narrow_window_is_not_wider_than_itself(tab, analysis, tmp_path, width):
    long, first = "a_name_without_any_dot_" * 8, analysis.matrices[0].name

    def rename(name):
        return long if name == first else name

    wide = with_fine_tunes(analysis, (long, "y"), rename)
    tab.open(report(wide).save(tmp_path / "long.html"), width=width, height=800)
    tab.run("document.querySelectorAll('#matrices tbody button')[0].click()")
    assert chosen(tab) == long
    assert tab.run("document.documentElement.scrollWidth <= innerWidth")
    name = "document.querySelector('#matrices tbody th').offsetWidth"
    widest = 0.4 * width if width < 640 else 26 * 16
    assert tab.run(name) <= widest, "the other columns are in view"
    assert tab.run(name.replace("offset", "scroll")) <= widest, "and not covered"
    assert tab.run("document.getElementById('chosen').getBoundingClientRect().bottom") == 800
    tab.run("document.getElementById('close').click()")
    assert tab.run("document.getElementById('chosen').offsetHeight") == 0
    kind = "[...document.querySelectorAll('#matrices thead th')][1].offsetWidth > 0"
    assert tab.run(kind) == (width > 640), (
        "in a narrow window what is retained comes next to the names"
    )
    assert tab.problems == []


def test_without_scripts_the_tables_are_there_and_the_pictures_are_not(tab, path, analysis):
    tab.open(path, script=False)
    rows_and_hidden = tab.run(
        "[document.querySelectorAll('#matrices tbody tr').length,"
        " [...document.querySelectorAll('.picture, #controls')].every((one) => !one.offsetHeight)]"
    )
    assert rows_and_hidden == [len(analysis.matrices), True]
    tab("Emulation.setScriptExecutionDisabled", value=False)
