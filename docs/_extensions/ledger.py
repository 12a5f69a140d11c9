"""Write the claims of the ledger into the page ``ledger.md``, in place of a comment.

Each claim becomes a section, whose anchor is the claim's id with hyphens for dots. If
``figures/ledger`` holds the claims.json of a run of ``loca-theory verify``, the page also shows the
observed numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from loca_theory.claims import (
    OTHER_MODEL,
    PACKAGE,
    PAPER,
    Claim,
    Entry,
    Ledger,
    Verdict,
    history_in_words,
    load_ledger,
    read_entries,
)
from loca_theory.claims.ledger import by_section

PAGE = "ledger"
PLACEHOLDER = "<!-- the claims -->"
STORED = Path("..", "figures", "ledger")

_COLOURS = {
    Verdict.SUPPORTED: "success",
    Verdict.SUPPORTED_UNDER_ASSUMPTIONS: "info",
    Verdict.NOT_SUPPORTED: "danger",
    Verdict.EQUIVALENT: "primary",
    Verdict.INCONCLUSIVE: "warning",
    Verdict.NOT_RUN: "secondary",
}


_SUBJECTS = {
    OTHER_MODEL: " of the paper, on another model ·",
    PACKAGE: " about this package, not of the paper ·",
}


def page(ledger: Ledger, stored: Mapping[str, Entry]) -> str:
    """Return the Markdown of all claims: an overview by verdict, then section by section.

    Args:
        ledger: The ledger.
        stored: Entries of a stored run, by id.
    """
    lines = list(_overview(ledger.claims, stored))
    for title, claims in by_section(ledger.claims).items():
        lines += [f"## {title}", ""]
        for claim in claims:
            lines += _entry(claim, stored.get(claim.id))
    return "\n".join(lines)


def _overview(claims: tuple[Claim, ...], stored: Mapping[str, Entry]) -> Iterator[str]:
    yield "## At a glance"
    yield ""
    if stored:
        yield f"{len(stored)} of {len(claims)} verdicts are those of a stored run. For these, the"
        yield "page shows the observed number ± its standard error."
        if len(stored) < len(claims):
            yield "The others are those that the ledger expects."
    else:
        yield "The verdicts on this page are those that the ledger expects. `loca-theory verify`"
        yield "measures the claims again and reports every verdict that differs."
    yield ""
    of_paper = [claim for claim in claims if claim.subject == PAPER]
    for verdict in Verdict:
        mine = [one for one in of_paper if _verdict(one, stored.get(one.id)) is verdict]
        errata = [one for one in mine if one.erratum and verdict is Verdict.NOT_SUPPORTED]
        others = [one for one in mine if one not in errata]
        for title, listed in (("", others), (", errata", errata)):
            if listed:
                yield f"{_badge(verdict)}{title} **{len(listed)}**"
                yield f": {', '.join(_link(one.id) for one in listed)}"
                yield ""
    yield "Counted apart, because they say nothing about the paper's own models:"
    yield ""
    for verdict in Verdict:
        listed = [
            claim
            for claim in claims
            if claim.subject == OTHER_MODEL and _verdict(claim, stored.get(claim.id)) is verdict
        ]
        if listed:
            yield f"{_badge(verdict)}, on other models **{len(listed)}**"
            yield f": {', '.join(_link(one.id) for one in listed)}"
            yield ""
    own = [claim.id for claim in claims if claim.subject == PACKAGE]
    yield f"About this package's own code: {', '.join(_link(one) for one in own)}."
    yield ""


def _entry(claim: Claim, stored: Entry | None) -> Iterator[str]:
    verdict = _verdict(claim, stored)
    yield f"### `{claim.id}`"
    yield ""
    erratum = " an erratum ·" if claim.erratum else ""
    own = _SUBJECTS.get(claim.subject, "")
    yield f"{_badge(verdict)}{erratum}{own} {claim.kind} · {claim.section.passage}"
    yield ""
    yield _text(claim.statement)
    yield ""
    for text in claim.assumptions:
        yield f"- *Assumed by the paper:* {_text(text)}."
    for text in claim.added:
        yield f"- *Also assumed here:* {_text(text)}."
    yield f"- *If it holds:* {_text(claim.expected)}. *Rule:* {claim.rule.in_words()}."
    if claim.refuted_by:
        yield f"- *Refuted if:* {_text(claim.refuted_by.statement)}"
    for text in history_in_words(claim):
        yield f"- *History:* {_text(text)}"
    if stored is not None and stored.estimate:
        old = ", with an older version of the code" if stored.stale else ""
        yield f"- *Observed:* {stored.shown} (n = {stored.estimate.n}{old})."
    if claim.note:
        yield f"- *Note:* {_text(claim.note)}"
    if claim.figure:
        yield f"- *Figure:* `loca-theory figures {claim.figure}`."
    check = f"{{py:func}}`{claim.check} <loca_theory.claims.checks.{claim.check}>`"
    yield f"- *Check:* {check}; *run:* `{claim.command}`"
    yield ""


def _verdict(claim: Claim, stored: Entry | None) -> Verdict:
    """Return the verdict of the stored run or, without one, the expected verdict."""
    return claim.expected_verdict if stored is None else stored.verdict


def _badge(verdict: Verdict) -> str:
    return f"{{bdg-{_COLOURS[verdict]}}}`{verdict.value}`"


def _link(name: str) -> str:
    return f"[`{name}`](#{nodes.make_id(name)})"


def _text(text: str) -> str:
    """Escape plain text of the ledger for Markdown."""
    for sign in "\\*_[]<`$":
        text = text.replace(sign, f"\\{sign}")
    return text


def read_stored(folder: Path, ledger: Ledger) -> dict[str, Entry]:
    """Read the entries of a stored run, by id; empty if there is no stored run."""
    return {one.id: one for one in read_entries(folder, ledger)}


def _fill(app: Sphinx, docname: str, source: list[str]) -> None:
    if docname != PAGE:
        return
    folder, ledger = Path(app.srcdir) / STORED, load_ledger()
    app.env.note_dependency(folder / "claims.json")
    source[0] = source[0].replace(PLACEHOLDER, page(ledger, read_stored(folder, ledger)))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.connect("source-read", _fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
