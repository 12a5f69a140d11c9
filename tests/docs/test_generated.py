"""Tables of the pages that are made from the code: nothing is missing or undescribed in them."""

import dataclasses
import re
import runpy
from importlib import import_module

import pytest

import loca_theory as loca
from loca_theory.checkpoints.change.adapter.kinds import KNOWN, REFUSED
from loca_theory.claims import load_ledger
from loca_theory.expressivity import METHODS
from loca_theory.expressivity.coders.registry import CODERS
from loca_theory.expressivity.methods.names import LETTERS

from .pages import DOCS, ROOT, extension


@pytest.fixture(scope="module")
def generated():
    return extension("tables", "_generate")


MADE = runpy.run_path(str(DOCS / "_generate"))


@pytest.mark.parametrize("page", MADE["PAGES"])
def test_a_page_has_what_is_made_from_the_code(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    assert text.count(MADE["START"]) == text.count(MADE["END"]) == 1
    assert text == MADE["filled"](page), "run `python docs/_generate`"


def test_no_page_sends_its_reader_to_the_site_for_a_table():
    for page in sorted({*DOCS.rglob("*.md")} - {DOCS / "ledger.md"}):
        assert "The site shows a table" not in page.read_text(encoding="utf-8"), page


def test_every_column_of_every_result_is_described(generated):
    tables = {
        f"## `{result.command}`: `{name}`": row
        for result in (getattr(loca, name) for name in loca.__all__)
        if isinstance(result, type) and issubclass(result, loca.Result)
        if result not in (loca.Result, loca.VerificationResult)
        for name, row in result.tables().items()
    }
    parts = re.split(r"^(## .+)$", "\n".join(generated.columns()), flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    for command, heading in (("analyze", "rank 90%"), ("extract", "before"), ("unmerge", "by SVD")):
        printed = sections.pop(f"## `{command}`: the printed table")
        assert re.search(rf"^\| `{heading}` \| \S.* \|$", printed, re.MULTILINE)
    assert sections.keys() == tables.keys()
    for title, row in tables.items():
        described = re.findall(r"^\| `(\w+)` \| \S.* \|$", sections[title], re.MULTILINE)
        assert described == [field.name for field in dataclasses.fields(row)]


def test_every_method_every_family_and_every_coder_is_listed(generated):
    listed, families_and_coders = "\n".join(generated.methods()).split("## Families")
    families, coders = families_and_coders.split("## Coders")
    names = re.findall(r"^\| ([^|]+?)(?: \(`(.+)`\))? \| [^|-]", listed, re.MULTILINE)
    assert [name for name, _ in names[1:]] == list(METHODS)
    assert [letter for _, letter in names[1:] if letter] == list(LETTERS)
    for method in METHODS.values():
        assert re.search(rf"^\| (.+, )?{method.name}(,.+)? \| \S", families, re.MULTILINE)
    for name in CODERS:
        assert re.search(rf"^\| {re.escape(name)} \| \S", coders, re.MULTILINE)


def test_every_type_of_adapter_is_listed_once(generated):
    types = re.findall(r"`([A-Z_0-9]+)`", "\n".join(generated.adapters()))
    assert sorted(types) == sorted([*KNOWN, *REFUSED])


def test_every_check_is_listed_and_every_module_of_checks_documented(generated):
    modules = {path.stem for path in (ROOT / "loca_theory/claims/checks").glob("[!_]*.py")}
    listed, module = set(), ""
    for line in generated.checks():
        module = line[3:].lower().replace(" ", "_") if line.startswith("## ") else module
        listed |= {f"{module}.{name}" for name in re.findall(r"^\| `(\w+)` \| \S", line)}
    assert {claim.check for claim in load_ledger().claims} <= listed
    assert {name.partition(".")[0] for name in listed} == modules
    text = (DOCS / "reference/api.md").read_text(encoding="utf-8")
    assert set(re.findall(r"automodule:: loca_theory\.claims\.checks\.(\w+)", text)) == modules


def test_every_public_name_is_listed(generated):
    listed = re.findall(r"^\| `(\w+\.\w+)` \| \S", "\n".join(generated.names()), re.MULTILINE)
    public = [
        f"{package}.{name}"
        for package in generated.PACKAGES
        for name in import_module(f"loca_theory.{package}").__all__
    ]
    assert listed == public


def test_the_markup_of_docstrings_becomes_that_of_pages(generated):
    text = generated._text("Size of :class:`~a.b.C`, at\n    most ``x``; :math:`B_n` and a_i.")
    assert text == r"Size of `C`, at most `x`; $B_n$ and a\_i."
