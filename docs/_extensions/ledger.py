"""Writes the claims of the ledger into the page ``ledger.md``, in place of a comment.

Each claim becomes a section with the anchor of its id (dots as hyphens). Where the claims.json of a
run of ``loca-theory verify`` stands in ``figures/ledger``, what was observed is shown as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from loca_theory.claims import (
    PAPER,
    Claim,
    Entry,
    Ledger,
    Verdict,
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
    Verdict.INCONCLUSIVE: "warning",
    Verdict.NOT_RUN: "secondary",
}


def page(ledger: Ledger, stored: Mapping[str, Entry]) -> str:
    """The Markdown of all claims: an overview by verdict, then section by section.

    Args:
        ledger: The ledger.
        stored: What a run observed, by id.
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
        yield f"{len(stored)} of {len(claims)} verdicts are those of a stored run, with what it"
        yield "observed ± its standard error."
        if len(stored) < len(claims):
            yield "The others are those that the ledger expects."
    else:
        yield "The verdicts on this page are those that the ledger expects; `loca-theory verify`"
        yield "measures them anew, and says so where it comes to another one."
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
    own = [claim.id for claim in claims if claim.subject != PAPER]
    if own:
        yield f"On this package's own code: {', '.join(_link(one) for one in own)}."
        yield ""


def _entry(claim: Claim, stored: Entry | None) -> Iterator[str]:
    verdict = _verdict(claim, stored)
    yield f"### `{claim.id}`"
    yield ""
    erratum = " an erratum ·" if claim.erratum else ""
    own = " on this package, not on the paper ·" if claim.subject != PAPER else ""
    yield f"{_badge(verdict)}{erratum}{own} {claim.kind} · {claim.section.passage}"
    yield ""
    yield _text(claim.statement)
    yield ""
    for text in claim.assumptions:
        yield f"- *Assumed by the paper:* {_text(text)}."
    for text in claim.added:
        yield f"- *Assumed here besides:* {_text(text)}."
    yield f"- *If it holds:* {_text(claim.expected)}. *Rule:* {claim.rule.in_words()}."
    if stored is not None and stored.estimate:
        old = ", with an older version of the code" if stored.stale else ""
        yield f"- *Observed:* {stored.shown} (n = {stored.estimate.n}{old})."
    if claim.note:
        yield f"- *Note:* {_text(claim.note)}"
    if claim.figure:
        yield f"- *Figure:* `loca-theory figures {claim.figure}`."
    check = f"{{py:func}}`{claim.check} <loca_theory.claims.checks.{claim.check}>`"
    yield f"- *Check:* {check}; *again:* `{claim.command}`"
    yield ""


def _verdict(claim: Claim, stored: Entry | None) -> Verdict:
    """What the stored run found; without one, what the ledger expects."""
    return claim.expected_verdict if stored is None else stored.verdict


def _badge(verdict: Verdict) -> str:
    return f"{{bdg-{_COLOURS[verdict]}}}`{verdict.value}`"


def _link(name: str) -> str:
    return f"[`{name}`](#{nodes.make_id(name)})"


def _text(text: str) -> str:
    """Plain text of the ledger as Markdown that shows it as it is."""
    for sign in "\\*_[]<`$":
        text = text.replace(sign, f"\\{sign}")
    return text


def read_stored(folder: Path, ledger: Ledger) -> dict[str, Entry]:
    """Entries of a stored run by id; none where there was no run."""
    return {one.id: one for one in read_entries(folder, ledger)}


def _fill(app: Sphinx, docname: str, source: list[str]) -> None:
    if docname != PAGE:
        return
    folder, ledger = Path(app.srcdir) / STORED, load_ledger()
    app.env.note_dependency(folder / "claims.json")
    source[0] = source[0].replace(PLACEHOLDER, page(ledger, read_stored(folder, ledger)))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register it."""
    app.connect("source-read", _fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
