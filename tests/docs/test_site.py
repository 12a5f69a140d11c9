"""The site builds without a warning, its links lead somewhere, and nothing public is missing."""

import inspect
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

from .pages import DOCS, ROOT

PACKAGES = ("transforms", "sweeps", "increments", "locations", "expressivity", "adapters",
            "dependence", "convergence", "checkpoints", "claims", "plotting")  # fmt: skip


class Html(HTMLParser):
    """What a page refers to, and what can be referred to in it."""

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
def test_every_claim_has_an_anchor(site, pages):
    anchors = pages[site / "ledger.html"].anchors
    assert {claim.id.replace(".", "-") for claim in load_ledger().claims} <= anchors


@pytest.mark.deep
def test_every_public_name_is_documented(site):
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    documented = {one for kind in inventory if kind.startswith("py:") for one in inventory[kind]}
    public = {
        f"loca_theory.{package}.{one}"
        for package in PACKAGES
        for one in import_module(f"loca_theory.{package}").__all__
    }
    assert public <= documented
    # The front door's names are documented there, or with the package that they come from.
    last_parts = {name.rpartition(".")[2] for name in documented}
    assert set(loca_theory.__all__) - {"__version__"} <= last_parts


def test_every_package_is_in_the_reference():
    """Folders that offer names, but for the command line, which has a page of its own."""
    folder = ROOT / "loca_theory"
    found = {one.parent.name for one in folder.glob("*/__init__.py")}
    assert found - {"cli"} == set(PACKAGES)


def test_every_public_name_is_in_the_sources_of_the_reference():
    """Without building it: classes and functions come with their package, constants by hand."""
    missing = []
    for package in PACKAGES:
        module = import_module(f"loca_theory.{package}")
        text = (DOCS / "reference" / f"{package}.md").read_text(encoding="utf-8")
        assert re.search(rf"automodule:: {module.__name__}\n +:members:", text), package
        values = {name: getattr(module, name) for name in module.__all__}
        constants = [
            name
            for name, value in values.items()
            if not (inspect.isclass(value) or inspect.isroutine(value))
        ]
        missing += [name for name in constants if f"py:data:: {name}\n" not in text]
    assert missing == []
