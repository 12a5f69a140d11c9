"""The site builds without a warning, its links lead somewhere, and nothing public is missing."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from urllib.parse import unquote, urlsplit

import pytest
from sphinx.util.inventory import InventoryFile

import loca_theory
from loca_theory.claims import load_ledger

from ..plotting import browser as browsers
from .pages import DOCS, ROOT

PACKAGES = (
    "transforms",
    "sweeps",
    "increments",
    "locations",
    "expressivity",
    "adapters",
    "rounding",
    "dependence",
    "convergence",
    "checkpoints",
    "claims",
    "plotting",
)


needs_browser = pytest.mark.skipif(
    browsers.executable() is None,
    reason=f"no {' or '.join(browsers.NAMES)} on PATH; install Chromium to run these tests",
)


class Html(HTMLParser):
    """The references of a page, and its targets."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, _tag, attrs):
        for key, value in attrs:
            if key in ("href", "src") and value:
                self.targets.append(value)
            elif key in ("id", "name") and value:
                self.anchors.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    options = ["-W", "--keep-going", "-n", "-q", "-d", str(folder / "doctrees")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(DOCS), str(folder / "html")],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site):
    return {path: Html(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


@pytest.mark.deep
def test_formulas_need_no_script_and_no_network(site):
    text = (site / "theory" / "any-basis.html").read_text(encoding="utf-8")
    assert text.count("<math") > 10
    assert "\\" not in "".join(re.findall("<math.*?</math>", text, re.DOTALL)), "no command is left"
    for page in site.rglob("*.html"):
        source = page.read_text(encoding="utf-8")
        assert not re.search(r"""<(script|link|img)[^>]+(src|href)=["']https?:""", source), (
            page.name
        )


@pytest.mark.deep
def test_every_link_and_picture_is_there(site, pages):
    broken = []
    for page, html in pages.items():
        for target in html.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if parts.scheme not in ("https", "data") or (not parts.netloc and not parts.path):
                    broken.append((page.name, target))
                continue
            file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if not file.is_relative_to(site) or not file.is_file():
                broken.append((page.name, target))
            elif file in pages and parts.fragment:
                anchors = pages[file].anchors
                broken += [(page.name, target)] * (unquote(parts.fragment) not in anchors)
    assert not broken


@pytest.mark.deep
def test_the_search_of_the_site_finds_every_claim(site):
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    entries = json.loads(index.removeprefix("Search.setIndex(").removesuffix(")"))["indexentries"]
    for claim in load_ledger().claims:
        ((_, anchor, _),) = entries[claim.id.lower()]
        assert anchor == claim.id.replace(".", "-")


@pytest.fixture
def ledger(site, tmp_path):
    """The page of the ledger in a browser."""
    tab = browsers.Browser(browsers.executable(), tmp_path)
    tab.open(site / "ledger.html")
    yield tab
    assert tab.problems == []
    tab.close()


SHOWN = (
    "[...document.querySelectorAll('.claims tbody tr')].filter((row) => row.offsetHeight).length"
)
COUNT = "document.querySelector('.filters output').value"


@pytest.mark.deep
@needs_browser
def test_the_ledger_is_filtered_and_an_anchor_unfolds_its_claim(ledger):
    claims = load_ledger().claims
    assert ledger.run(COUNT) == f"{len(claims)} of {len(claims)} claims shown"
    for field, value in (("search", "F2.LAW"), ("part", "Costs"), ("verdict", "inconclusive")):
        ledger.run(
            f"{{ const form = document.querySelector('.filters'); form.reset(); "
            f"form.elements.{field}.value = {value!r}; "
            "form.dispatchEvent(new Event('input')); }"
        )
        assert 0 < ledger.run(SHOWN) < len(claims)
        assert ledger.run(COUNT).startswith(f"{ledger.run(SHOWN)} of ")
    ledger.run("document.querySelector('.overview [data-role=erratum]').click()")
    assert ledger.run(SHOWN) == sum(claim.role == "erratum" for claim in claims)
    # The claim is not an erratum, so the filter hides it.
    row = "document.getElementById('theorem1-small-k').closest('tr')"
    assert ledger.run(f"{row}.hidden")
    ledger.run("location.hash = 'theorem1-small-k'")
    # The browser may scroll once more, to the anchor inside the row.
    ledger.run(
        f"""new Promise((done, fail) => {{
          const look = (left) => {{
            const {{ top, bottom }} = {row}.getBoundingClientRect();
            if (bottom > 0 && top < innerHeight / 2) done();
            else if (left) requestAnimationFrame(() => look(left - 1));
            else fail(new Error(`the row is at ${{top}} to ${{bottom}} of ${{innerHeight}}`));
          }};
          look(1000);
        }})"""
    )
    assert ledger.run(f"{row}.querySelector('details').open")
    assert ledger.run(SHOWN) == len(claims)


@pytest.mark.deep
@needs_browser
@pytest.mark.parametrize("width", [320, 400, 1000, 1100, 1400])
def test_the_ledger_is_not_wider_than_the_window(ledger, site, width):
    ledger.open(site / "ledger.html", width=width)
    ledger.run("document.querySelectorAll('.claims details').forEach((one) => one.open = true)")
    assert ledger.run(
        "[document.documentElement, document.querySelector('.content')]"
        ".every((one) => one.scrollWidth <= one.clientWidth)"
    )


@pytest.mark.deep
@needs_browser
def test_without_scripts_the_ledger_is_a_table_without_filters(ledger, site):
    ledger.open(site / "ledger.html", script=False)
    assert ledger.run(SHOWN) == len(load_ledger().claims)
    assert ledger.run("document.querySelector('.filters').offsetHeight") == 0


@pytest.mark.deep
def test_every_public_name_is_documented(site):
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    documented = {name for kind in inventory if kind.startswith("py:") for name in inventory[kind]}
    public = {
        f"loca_theory.{package}.{name}"
        for package in PACKAGES
        for name in import_module(f"loca_theory.{package}").__all__
    }
    assert public <= documented
    # The front door's names are documented there, or with the package that they come from.
    last_parts = {name.rpartition(".")[2] for name in documented}
    assert set(loca_theory.__all__) - {"__version__"} <= last_parts


def test_every_package_is_in_the_reference():
    """Folders that offer names; the command line has another page."""
    folder = ROOT / "loca_theory"
    folders = {path.parent.name for path in folder.glob("*/__init__.py")}
    assert folders - {"cli"} == set(PACKAGES)
