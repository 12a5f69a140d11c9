"""CLAIMS.md: the outcome of the ledger as a page for GitHub and the documentation site."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from loca_theory.claims.entries import Entry
from loca_theory.claims.ledger import OTHER_MODEL, PACKAGE, Ledger, by_section
from loca_theory.claims.rules import Verdict
from loca_theory.claims.summary import family_in_words, history_in_words, tally

_PREFACE = """\
Written by `loca-theory verify`. Each statement is the paper's, in our words. If the paper can be
read in several ways, each interpretation is a claim of its own. The rule that turns the observed
number and its error into a verdict was fixed for each claim before the stored run; the claim lists
the changes since it was first written. A supported claim names an alternative under which it is
refuted. An erratum is a statement that cannot be meant as it is printed; its note names the claim
that is meant. Claims that rest on other models than the paper's, and claims about this package's
own code, are marked and counted separately."""
WRITTEN_BY = _PREFACE.partition(".")[0]
"""Text by which a CLAIMS.md of this package is recognised."""
_SUBJECTS = {OTHER_MODEL: "another model", PACKAGE: "this package"}
_OLD = "observed with an older version of the code"


def markdown(entries: Sequence[Entry], ledger: Ledger) -> str:
    """The page: counts, unsupported claims, then a table and the details for each section."""
    lines = ["# The ledger of claims", "", *(f"- {line}" for line in tally(entries)), ""]
    lines += [_PREFACE, "", family_in_words(ledger), ""]
    lines += _not_supported(entries)
    for title, listed in by_section(entries).items():
        lines += [f"## {title or 'Claims'}", "", "| claim | verdict | observed | rule |",
                  "|---|---|---|---|"]  # fmt: skip
        lines += [_row(one) for one in listed]
        for one in listed:
            lines += ["", *_details(one)]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _not_supported(entries: Sequence[Entry]) -> Iterator[str]:
    listed = [
        one
        for one in entries
        if one.verdict is Verdict.NOT_SUPPORTED
        and one.claim.subject != PACKAGE
        and not one.claim.erratum
    ]
    if not listed:
        return
    yield from ("## Not supported (without errata)", "")
    for one in listed:
        # The claim's note gives the reason; the numbers of the run follow in its details.
        why = _plain(one.claim.note.strip())
        yield f"- {_link(one)}: {_plain(one.claim.statement)}{f' – {why}' if why else ''}"
    yield ""


def _row(one: Entry) -> str:
    return f"| {' | '.join((_link(one), _verdict(one), one.shown, one.bounds))} |"


def _verdict(one: Entry) -> str:
    is_erratum = one.claim.erratum and one.verdict is Verdict.NOT_SUPPORTED
    marks = [
        *(["erratum"] if is_erratum else []),
        *([_SUBJECTS[one.claim.subject]] if one.claim.subject in _SUBJECTS else []),
        *(["older code"] if one.stale else []),
    ]
    return f"{one.verdict} ({', '.join(marks)})" if marks else one.verdict


def _details(one: Entry) -> Iterator[str]:
    claim, estimates = one.claim, one.measurement.estimates
    yield from (f"### {claim.id}", "")
    yield from (f"**{_verdict(one)}** · {claim.kind} · {_plain(claim.section.passage)}", "")
    yield from (_plain(claim.statement), "")
    yield from (f"- assumed by the paper: {_plain(text)}" for text in claim.assumptions)
    yield from (f"- also assumed here: {_plain(text)}" for text in claim.added)
    yield f"- expected: {_plain(claim.expected)}; rule: {claim.rule.in_words()}"
    if one.estimate:
        name = one.estimate.name
        which = f" at {_plain(name)}, which decides" if name and len(estimates) > 1 else ""
        run = f"n = {one.estimate.n}, {one.tier} tier, seed {one.seed}"
        yield f"- observed: {one.shown}{which} ({run})"
    if claim.refuted_by:
        yield f"- refuted if: {_plain(claim.refuted_by.statement)}"
    yield from (f"- {_plain(text)}" for text in history_in_words(claim))
    if one.stale:
        yield f"- {_OLD}"
    if one.changed or one.lost:
        yield f"- the ledger expects: {one.expected_verdict}"
    if claim.figure:
        yield f"- shown by `loca-theory figures {claim.figure}`"
    if one.note:
        yield f"- note: {_plain(one.note)}"
    yield f"- decided by `{claim.check}`; repeat with: `{claim.command}`"
    if len(estimates) > 1:
        yield from ("", "| part | observed |", "|---|---|")
        yield from (f"| {_plain(each.name)} | {each} |" for each in estimates)


def _link(one: Entry) -> str:
    return f"[`{one.id}`](#{anchor(one.id)})"


def anchor(heading: str) -> str:
    """The anchor that GitHub and MyST give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _plain(text: str) -> str:
    """Escape Markdown, so that *, <, [ and | in formulas are shown as they are."""
    return re.sub(r"([\\*<\[\]|`])", r"\\\1", text)
