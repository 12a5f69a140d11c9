"""Print the ledger and the verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import fill
from typing import TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from loca_theory.claims import Claim, VerificationResult
from loca_theory.claims.claim import PACKAGE
from loca_theory.claims.entries import Entry
from loca_theory.claims.ledger import by_section
from loca_theory.claims.page import family_in_words, tally
from loca_theory.claims.role import Role
from loca_theory.claims.rules import Verdict
from loca_theory.cli.output import console, print_note, text_width

_Listed = TypeVar("_Listed", Claim, Entry)
_STYLES = {
    Verdict.SUPPORTED: "green",
    Verdict.SUPPORTED_UNDER_ASSUMPTIONS: "green",
    Verdict.EQUIVALENT: "cyan",
    Verdict.NOT_SUPPORTED: "red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_RUN: "dim",
}
_GAP, _INDENT = "  ", "    "
_NOTES = (
    "Below each claim: the quantity that decides it, its value (with its interval, if random), and "
    "the rule. `loca-theory verify --list` has each claim in words, and one claim alone shows its "
    "assumptions."
)
_NOTES_ON_ALL = (
    "First the statements that somebody could doubt, with the observed value (and its interval, if "
    "random). `loca-theory verify CLAIM` shows the quantity, the rule and the assumptions."
)


def print_claims(result: VerificationResult, is_whole: bool) -> None:
    """Print the verdicts and the number of each; for a single claim, all details.

    The whole ledger leads with the doubtful claims by question; below them stands a line for each
    other claim, by role. Some claims stand by section, each above what was observed and what
    supports it.
    """
    out, entries = console(), result.claims
    print_note(out, _NOTES_ON_ALL if is_whole else _NOTES)
    if is_whole:
        _print_by_role(result, out)
    else:
        _print_by_section(entries, out)
    if len(entries) == 1:
        out.print()
        _print_details(entries[0], out)
    out.print()
    for line in tally(entries):
        out.print(line, style="bold")
    out.print(family_in_words(result.ledger), style="dim")


def _print_by_role(result: VerificationResult, out: Console) -> None:
    """Print the doubtful claims, by question, then those of each other role."""
    groups = result.ledger.by_question(result.claims)
    width = max((len(entry.claim.headline) for entry in result.claims), default=0)
    for question, group in groups.items():
        if question:
            out.print(question, style="bold")
        for entry in group:
            name = entry.claim.headline or entry.id
            outcome = _verdict(entry).append(f"{_GAP}{entry.shown} [{entry.id}]", style="dim")
            if width + outcome.cell_len + 2 * len(_GAP) <= out.width:
                out.print(Text.assemble(_GAP, name.ljust(width), _GAP, outcome))
            else:
                out.print(_filled(name, out, _GAP))
                out.print(Text.assemble(_INDENT, outcome), soft_wrap=True)
    for role in list(Role)[1:]:
        if entries := [entry for entry in result.claims if entry.claim.role is role]:
            out.print(role.heading, style="bold")
            width = max(len(entry.id) for entry in entries)
            for entry in entries:
                out.print(Text.assemble(_GAP, entry.id.ljust(width), _GAP, _verdict(entry)))


def _print_by_section(entries: Sequence[Entry], out: Console) -> None:
    width = max(len(entry.id) for entry in entries)
    for entry in _below_titles(entries, out):
        out.print(Text.assemble(_GAP, entry.id.ljust(width), _GAP, _verdict(entry)))
        if entry.estimate is not None:
            text = f"{entry.quantity}: {entry.shown}; supported if {entry.bounds}"
            out.print(_filled(text, out), style="dim")


def _verdict(entry: Entry) -> Text:
    marks = " (erratum)" * entry.is_erratum, " (seeds disagree)" * entry.seeds_disagree
    return Text.assemble((entry.verdict, _STYLES[entry.verdict]), *marks)


def _below_titles(listed: Sequence[_Listed], out: Console) -> Iterator[_Listed]:
    """Claims or entries by section; the title of a section is printed before its first."""
    for title, group in by_section(listed).items():
        if title:
            out.print(title, style="bold")
        yield from group


def _filled(text: str, out: Console, indent: str = _INDENT) -> str:
    return fill(
        text,
        text_width(out),
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )


def _print_details(entry: Entry, out: Console) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    claim, estimates = entry.claim, entry.estimates
    lines = [("about", "this package, not the paper")] if claim.subject == PACKAGE else []
    lines += [
        ("statement", claim.statement),
        ("passage", claim.passage),
        ("expected", claim.expected),
        ("rule", claim.rule.in_words()),
    ]
    lines += [("assumed by the paper", text) for text in claim.assumptions]
    lines += [("also assumed", text) for text in claim.added]
    lines += [(part.name, entry.with_interval(part)) for part in estimates if len(estimates) > 1]
    if entry.estimate is not None:
        seconds = entry.measured.seconds
        lines += [("draws or runs", f"{entry.estimate.n}"), ("time", f"{seconds:.1f} s")]
        lines += [("note", entry.note)] if entry.note else []
    for line in lines:
        table.add_row(*line)
    out.print(table, width=text_width(out))
    if entry.estimate is None:
        # Not wrapped, so that a command in the note can be copied.
        out.print(entry.note, soft_wrap=True)


def print_ledger(claims: Sequence[Claim]) -> None:
    """Print the claims by section, without checking them."""
    out = console()
    for claim in _below_titles(claims, out):
        verdict = claim.expected_verdict, _STYLES[claim.expected_verdict]
        out.print(Text.assemble(_GAP, (claim.id, "bold"), _GAP, verdict, f" · {claim.kind}"))
        out.print(_filled(f"{claim.passage}: {claim.statement}", out))
    out.print("The verdicts shown are those that the ledger expects.", style="dim")
