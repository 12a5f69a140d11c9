"""Links between pages as a reader on GitHub follows them."""

import re
from functools import cache
from urllib.parse import unquote, urlsplit

import pytest

from loca_theory.claims import load_ledger

from .pages import DOCS, PAGES, ROOT, name, tokens


def targets(page):
    for token in tokens(page):
        if token.type in ("link_open", "image"):
            yield token.attrGet("href") or token.attrGet("src")


@cache
def anchors(page):
    """Of headings, in the form that GitHub gives them; of claims too, which the build adds."""
    names = {
        "".join(
            letter
            for letter in text.lower().replace(" ", "-")
            if letter.isalnum() or letter in "-_"
        )
        for text in headings(page)
    }
    if page == DOCS / "ledger.md":
        names |= {claim.id.replace(".", "-") for claim in load_ledger().claims}
    return names


def headings(page):
    is_heading = False
    for token in tokens(page):
        if is_heading:
            yield token.content
        is_heading = token.type == "heading_open"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    broken = []
    for target in targets(page):
        parts = urlsplit(target)
        if parts.scheme:
            if parts.scheme != "https" or not parts.netloc:
                broken.append(target)
            continue
        file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        is_inside = file.is_relative_to(ROOT) and file.exists()
        if not is_inside or (parts.fragment and parts.fragment not in anchors(file)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_tests_that_a_page_names_exist(page):
    code = " ".join(token.content for token in tokens(page) if token.type == "code_inline")
    for file, test in re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))?", code):
        assert (ROOT / file).is_file(), file
        assert not test or f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), test
