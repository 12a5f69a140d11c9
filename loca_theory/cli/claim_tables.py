"""Printing the ledger and what was decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from loca_theory.claims import (
    PACKAGE,
    Ledger,
    Verdict,
    family_in_words,
    shown,
    shown_parts,
    tally,
)
from loca_theory.cli.output import console

Row = Mapping[str, Any]

_STYLES = {
    Verdict.SUPPORTED: "green",
    Verdict.SUPPORTED_UNDER_ASSUMPTIONS: "green",
    Verdict.NOT_SUPPORTED: "red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_RUN: "dim",
}
_GAP, _INDENT = "  ", "    "
# Lines of text longer than this are hard to read, however wide the window.
_TEXT_WIDTH = 100


def print_claims(entries: Sequence[Row], ledger: Ledger) -> None:
    """Each claim by part, then how many have each verdict; of a single claim, all that is known.

    A claim takes a line where the window is wide enough for all of them, else two.
    """
    out = console()
    known = {one["id"]: one for one in entries}
    first = _padded([(one["id"], _verdict(one)) for one in entries])
    second = _padded([_observation(one) for one in entries])
    cells = dict(zip(known, zip(first, second, strict=True), strict=True))
    between = _GAP
    if any(len(_joined(a, b, _GAP)) > out.width for a, b in cells.values()):
        between = f"\n{_INDENT}"
    for title, names in ledger.grouped(known).items():
        _print_title(title, out)
        for name in names:
            a, b = cells[name]
            line = Text(_joined(a, b, between))
            line.highlight_words([known[name]["verdict"]], _STYLES[Verdict(known[name]["verdict"])])
            out.print(line, highlight=False)
    if len(entries) == 1:
        out.print()
        _print_details(entries[0], out)
    out.print()
    for line in tally(entries):
        out.print(line, style="bold", highlight=False)
    out.print(family_in_words(ledger), style="dim", highlight=False)


def _verdict(one: Row) -> str:
    is_slip = one["slip"] and one["verdict"] == Verdict.NOT_SUPPORTED
    return f"{one['verdict']} (slip)" if is_slip else one["verdict"]


def _observation(one: Row) -> tuple[str, str, str, str]:
    if one["observed"] is None:
        return "", "", "", ""
    rule = f"{one['decided_by']['rule']}"
    return shown(one), rule, f"n {one['n']}", f"{one['seconds']:.1f} s"


def _padded(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """The cells of each row in a line, in columns."""
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


def _print_title(title: str, out: Console) -> None:
    if title:
        out.print(title, style="bold", highlight=False)


def _print_details(one: Row, out: Console) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    lines = [("about", "this package, not the paper")] if one["subject"] == PACKAGE else []
    lines += [
        ("statement", one["statement"]),
        ("place", one["place"]),
        ("expected", one["expected"]),
        ("rule", one["rule"]),
    ]
    lines += [("assumed by the paper", text) for text in one["assumptions"]]
    lines += [("assumed besides", text) for text in one["added"]]
    lines += shown_parts(one)
    is_run = one["verdict"] != Verdict.NOT_RUN
    if one["note"] and is_run:
        lines.append(("note", one["note"]))
    for name, text in lines:
        table.add_row(name, Text(text))
    out.print(table, width=min(out.width, _TEXT_WIDTH))
    if not is_run:
        # A command that is to be copied stays in one piece.
        out.print(Text(one["note"]), soft_wrap=True)


def print_ledger(rows: Sequence[Row], ledger: Ledger) -> None:
    """The claims by part, without deciding any."""
    out = console()
    known = {row["id"]: row for row in rows}
    for title, names in ledger.grouped(known).items():
        _print_title(title, out)
        for name in names:
            row = known[name]
            verdict = Text(row["ledger"], style=_STYLES[Verdict(row["ledger"])])
            line = Text.assemble(_GAP, (name, "bold"), _GAP, verdict, f" · {row['kind']}")
            out.print(line, highlight=False)
            text = fill(
                f"{row['place']}: {row['statement']}",
                min(out.width, _TEXT_WIDTH),
                initial_indent=_INDENT,
                subsequent_indent=_INDENT,
                break_on_hyphens=False,
            )
            out.print(Text(text), highlight=False)
    out.print("Verdicts are those that the ledger expects.", style="dim", highlight=False)
