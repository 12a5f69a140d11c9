"""Tables of the pages that are made from the code: nothing is missing or undescribed in them."""

import dataclasses
import re

import pytest

import loca_theory as loca
from loca_theory.checkpoints.change.adapter.kinds import KNOWN, REFUSED
from loca_theory.expressivity import METHODS
from loca_theory.expressivity.coders.registry import CODERS
from loca_theory.expressivity.methods.names import LETTERS

from .pages import DOCS, ROOT, extension


@pytest.fixture(scope="module")
def generated():
    return extension("generated")


def test_every_page_has_the_line_that_its_table_replaces(generated):
    found = [
        page.relative_to(DOCS).with_suffix("").as_posix()
        for page in DOCS.rglob("*.md")
        if generated.PLACEHOLDER in page.read_text(encoding="utf-8").splitlines()
    ]
    assert sorted(found) == sorted(generated.PAGES)


def test_every_column_of_every_result_is_described(generated):
    tables = {
        f"## `{result.command}`: `{name}`": row
        for result in (getattr(loca, one) for one in loca.__all__)
        if isinstance(result, type) and issubclass(result, loca.Result)
        if result not in (loca.Result, loca.VerificationResult)
        for name, row in result._tables().items()
    }
    parts = re.split(r"^(## .+)$", "\n".join(generated.columns()), flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert sections.keys() == tables.keys()
    for title, row in tables.items():
        described = re.findall(r"^\| `(\w+)` \| \S.* \|$", sections[title], re.MULTILINE)
        assert described == [field.name for field in dataclasses.fields(row)]


def test_every_method_every_family_and_every_coder_is_listed(generated):
    listed, others = "\n".join(generated.methods()).split("## Families")
    families, coders = others.split("## Coders")
    found = re.findall(r"^\| ([^|]+?)(?: \(`(.+)`\))? \| [^|-]", listed, re.MULTILINE)
    assert [name for name, _ in found[1:]] == list(METHODS)
    assert [letter for _, letter in found[1:] if letter] == list(LETTERS)
    for method in METHODS.values():
        assert re.search(rf"^\| (.+, )?{method.name}(,.+)? \| \S", families, re.MULTILINE)
    for name in CODERS:
        assert re.search(rf"^\| {re.escape(name)} \| \S", coders, re.MULTILINE)


def test_every_type_of_adapter_is_listed_once(generated):
    found = re.findall(r"`([A-Z_0-9]+)`", "\n".join(generated.adapters()))
    assert sorted(found) == sorted([*KNOWN, *REFUSED])


def test_every_module_of_checks_is_documented(generated):
    modules = {path.stem for path in (ROOT / "loca_theory/claims/checks").glob("[!_]*.py")}
    text = "\n".join(generated.checks())
    assert set(re.findall(r"automodule:: loca_theory\.claims\.checks\.(\w+)", text)) == modules


def test_the_markup_of_docstrings_becomes_that_of_pages(generated):
    text = generated._text("Size of :class:`~a.b.C`, at\n    most ``x``; :math:`B_n` and a_i.")
    assert text == r"Size of `C`, at most `x`; $B_n$ and a\_i."
