"""Print the ledger and the verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

from rich.console import Console
from rich.table import Table
from rich.text import Text

from loca_theory.claims import Claim, VerificationResult
from loca_theory.claims.claim import PACKAGE
from loca_theory.claims.entries import Entry
from loca_theory.claims.ledger import by_section
from loca_theory.claims.rules import Verdict
from loca_theory.claims.summary import family_in_words, tally
from loca_theory.cli.output import console

_STYLES = {
    Verdict.SUPPORTED: "green",
    Verdict.SUPPORTED_UNDER_ASSUMPTIONS: "green",
    Verdict.EQUIVALENT: "cyan",
    Verdict.NOT_SUPPORTED: "red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_RUN: "dim",
}
_GAP, _INDENT = "  ", "    "
_HEADINGS = ("claim", "verdict", "observed", "supported if", "n", "time")
_NOTES = (
    "observed: the number that decides the verdict, ± its standard error",
    "interval: the confidence interval of that number",
    "n: number of random draws or training runs behind it; 1 if it is exact",
)
# Lines of text longer than this are hard to read, however wide the window.
_TEXT_WIDTH = 100


def print_claims(result: VerificationResult) -> None:
    """Print the claims by section and the number of each verdict; for a single claim, all details.

    A claim takes one line if all claims fit the console that way, else two.
    """
    out, entries = console(), result.claims
    first = _padded([_HEADINGS[:2], *((one.id, _verdict(one)) for one in entries)])
    second = _padded([_HEADINGS[2:], *map(_observation, entries)])
    rows = list(zip(first, second, strict=True))
    cells = {one.id: row for one, row in zip(entries, rows[1:], strict=True)}
    between = _GAP
    if any(len(_joined(a, b, _GAP)) > out.width for a, b in rows):
        between = f"\n{_INDENT}"
    out.print(_joined(*rows[0], between), style="dim")
    for title, listed in by_section(entries).items():
        if title:
            out.print(title, style="bold")
        for one in listed:
            line = Text(_joined(*cells[one.id], between))
            line.highlight_words([one.verdict], _STYLES[one.verdict])
            out.print(line)
    if len(entries) == 1:
        out.print()
        _print_details(entries[0], out)
    out.print()
    for line in tally(entries):
        out.print(line, style="bold")
    for line in (*_NOTES, family_in_words(result.ledger)):
        out.print(line, style="dim")


def _verdict(one: Entry) -> str:
    is_erratum = one.claim.erratum and one.verdict is Verdict.NOT_SUPPORTED
    return f"{one.verdict} (erratum)" if is_erratum else one.verdict


def _observation(one: Entry) -> tuple[str, str, str, str]:
    if one.estimate is None:
        return "", "", "", ""
    return one.shown, one.bounds, str(one.estimate.n), f"{one.seconds:.1f} s"


def _padded(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Join the cells of each row to one line, aligned in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]


def _joined(first: str, second: str, between: str) -> str:
    if not second.strip():
        return f"{_GAP}{first.rstrip()}"
    start = first.rstrip() if between.startswith("\n") else first
    return f"{_GAP}{start}{between}{second.rstrip()}"


def _print_details(one: Entry, out: Console) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    claim, estimates = one.claim, one.estimates
    lines = [("about", "this package, not the paper")] if claim.subject == PACKAGE else []
    lines += [
        ("statement", claim.statement),
        ("passage", claim.passage),
        ("expected", claim.expected),
        ("rule", claim.rule.in_words()),
    ]
    lines += [("assumed by the paper", text) for text in claim.assumptions]
    lines += [("also assumed", text) for text in claim.added]
    lines += [(each.name, str(each)) for each in estimates if len(estimates) > 1]
    is_run = one.verdict is not Verdict.NOT_RUN
    if one.note and is_run:
        lines.append(("note", one.note))
    for name, text in lines:
        table.add_row(name, text)
    out.print(table, width=min(out.width, _TEXT_WIDTH))
    if not is_run:
        # Not wrapped, so that a command in the note can be copied.
        out.print(one.note, soft_wrap=True)


def print_ledger(claims: Sequence[Claim]) -> None:
    """Print the claims by section, without checking them."""
    out = console()
    for title, listed in by_section(claims).items():
        if title:
            out.print(title, style="bold")
        for claim in listed:
            expected = claim.expected_verdict
            verdict = Text(expected, style=_STYLES[expected])
            line = Text.assemble(_GAP, (claim.id, "bold"), _GAP, verdict, f" · {claim.kind}")
            out.print(line)
            text = fill(
                f"{claim.passage}: {claim.statement}",
                min(out.width, _TEXT_WIDTH),
                initial_indent=_INDENT,
                subsequent_indent=_INDENT,
                break_on_hyphens=False,
            )
            out.print(text)
    out.print("The verdicts shown are those that the ledger expects.", style="dim")
