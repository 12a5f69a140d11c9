"""CLAIMS.md: the outcome of the ledger as a page for GitHub and the documentation site."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jinja2 import Environment, PackageLoader

from loca_theory.claims.claim import OTHER_MODEL, PACKAGE
from loca_theory.claims.entries import Entry
from loca_theory.claims.ledger import Ledger, by_section
from loca_theory.claims.rules import Verdict
from loca_theory.claims.summary import (
    family_in_words,
    history_in_words,
    older_in_words,
    tally,
)

WRITTEN_BY = "Written by `loca-theory verify`"
"""Text by which a CLAIMS.md of this package is recognised."""


def page(entries: Sequence[Entry], ledger: Ledger) -> str:
    """Counts and unsupported claims, then a table and the details for each section."""
    environment = Environment(
        loader=PackageLoader("loca_theory.claims", ""), trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(
        anchor=anchor, verdict=_verdict, plain=_plain, history=history_in_words
    )
    text = environment.get_template("CLAIMS.md.j2").render(
        tally=tally(entries),
        written_by=WRITTEN_BY,
        family=family_in_words(ledger),
        older=older_in_words(entries),
        not_supported=[
            one
            for one in entries
            if one.verdict is Verdict.NOT_SUPPORTED
            and one.claim.subject != PACKAGE
            and not one.is_erratum
        ],
        sections=by_section(entries),
    )
    return text.rstrip() + "\n"


def _verdict(one: Entry) -> str:
    marks = {
        "erratum": one.is_erratum,
        "another model": one.claim.subject == OTHER_MODEL,
        "this package": one.claim.subject == PACKAGE,
        "seeds disagree": one.seeds_disagree,
        "older code": one.stale,
    }
    shown = ", ".join(mark for mark, is_shown in marks.items() if is_shown)
    return f"{one.verdict} ({shown})" if shown else one.verdict


def anchor(heading: str) -> str:
    """The anchor that GitHub and MyST give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _plain(text: str) -> str:
    """Escape Markdown, so that *, <, [ and | in formulas are shown as they are."""
    return re.sub(r"([\\*<\[\]|`])", r"\\\1", text)
