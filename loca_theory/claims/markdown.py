"""CLAIMS.md: the ledger's outcome as a page, for GitHub and for the site."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loca_theory.claims.ledger import PAPER, Ledger
from loca_theory.claims.rules import Verdict
from loca_theory.claims.summary import family_in_words, shown, shown_parts, tally

Row = Mapping[str, Any]

_PREFACE = """\
Written by `loca-theory verify`. Each statement is the paper's, in our words; where the paper can be
read in several ways, each reading is a claim of its own. The verdict follows from the observed
number and its error by a rule that was fixed before. A slip of the pen is a statement that cannot
be meant as it is printed; its note names the claim that is. Claims on this package's own code are
marked, and counted apart."""
WRITTEN_BY = _PREFACE.partition(".")[0]
"""What tells this page from any other of the same name."""
_OLD = "observed with an older version of the code"


def markdown(entries: Sequence[Row], ledger: Ledger) -> str:
    """The counts, what is not supported, and of each part a table and a section a claim."""
    lines = ["# The ledger of claims", "", *(f"- {line}" for line in tally(entries)), ""]
    lines += [_PREFACE, "", family_in_words(ledger), ""]
    lines += _not_supported(entries)
    known = {one["id"]: one for one in entries}
    for title, names in ledger.grouped(known).items():
        lines += [f"## {title or 'Claims'}", "", "| claim | verdict | observed | rule |",
                  "|---|---|---|---|"]  # fmt: skip
        lines += [_row(known[name]) for name in names]
        for name in names:
            lines += ["", *_section(known[name])]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _not_supported(entries: Sequence[Row]) -> Iterator[str]:
    listed = [
        one
        for one in entries
        if one["verdict"] == Verdict.NOT_SUPPORTED and one["subject"] == PAPER and not one["slip"]
    ]
    if not listed:
        return
    yield from ("## Not supported, slips of the pen apart", "")
    for one in listed:
        # Why, without the numbers of the run, which stand in the claim's section.
        why = _plain(one["note"].removesuffix(one["remark"]).strip())
        yield f"- {_link(one)}: {_plain(one['statement'])}{f' – {why}' if why else ''}"
    yield ""


def _row(one: Row) -> str:
    cells = (_link(one), _verdict(one), shown(one), one["decided_by"]["rule"])
    return f"| {' | '.join(cells)} |"


def _verdict(one: Row) -> str:
    marks = [
        *(["slip of the pen"] if one["slip"] and one["verdict"] == Verdict.NOT_SUPPORTED else []),
        *(["this package"] if one["subject"] != PAPER else []),
        *(["older code"] if one["stale"] else []),
    ]
    return f"{one['verdict']} ({', '.join(marks)})" if marks else one["verdict"]


def _section(one: Row) -> Iterator[str]:
    yield from (f"### {one['id']}", "")
    yield from (f"**{_verdict(one)}** · {one['kind']} · {_plain(one['place'])}", "")
    yield from (_plain(one["statement"]), "")
    yield from (f"- assumed by the paper: {_plain(text)}" for text in one["assumptions"])
    yield from (f"- assumed here besides: {_plain(text)}" for text in one["added"])
    yield f"- expected: {_plain(one['expected'])}; rule: {one['rule']}"
    if one["observed"] is not None:
        name = one["decided_by"]["name"]
        which = f" at {_plain(name)}, which decides" if name and len(one["parts"]) > 1 else ""
        how = f"n = {one['n']}, {one['effort']} effort, seed {one['seed']}"
        yield f"- observed: {shown(one)}{which} ({how})"
    if one["stale"]:
        yield f"- {_OLD}"
    if one["changed"] or one["lost"]:
        yield f"- the ledger expects: {one['ledger']}"
    if one["figure"]:
        yield f"- shown by `loca-theory figures {one['figure']}`"
    if one["note"]:
        yield f"- note: {_plain(one['note'])}"
    yield f"- decided by `{one['check']}`; again: `{one['command']}`"
    if parts := shown_parts(one):
        yield from ("", "| part | observed |", "|---|---|")
        yield from (f"| {_plain(name)} | {value} |" for name, value in parts)


def _link(one: Row) -> str:
    return f"[`{one['id']}`](#{anchor(one['id'])})"


def anchor(heading: str) -> str:
    """The name under which GitHub, and MyST likewise, let a heading be linked to."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _plain(text: str) -> str:
    """Text that is no markup: a formula's *, <, [ and | mean nothing else."""
    return re.sub(r"([\\*<\[\]|`])", r"\\\1", text)
