"""Printing the ledger and what was decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from loca_theory.claims import FAMILY_WISE, Ledger, Verdict, counts, shown
from loca_theory.cli.output import console, plain_table

Row = Mapping[str, Any]

_STYLES = {
    Verdict.SUPPORTED: "green",
    Verdict.SUPPORTED_UNDER_ASSUMPTIONS: "green",
    Verdict.NOT_SUPPORTED: "red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_RUN: "dim",
}


def print_claims(entries: Sequence[Row], ledger: Ledger) -> None:
    """A line a claim, then how many have each verdict; of a single claim, all that is known."""
    out = console()
    table = plain_table()
    for name in ("claim", "verdict", "observed", "rule"):
        table.add_column(name, overflow="fold")
    table.add_column("n", justify="right")
    table.add_column("s", justify="right")
    for one in entries:
        table.add_row(
            one["id"],
            _verdict(one["verdict"]),
            shown(one),
            one["rule"],
            str(one["n"]),
            f"{one['seconds']:.1f}",
        )
    out.print(table)
    if len(entries) == 1:
        _print_details(entries[0])
    out.print()
    found = ", ".join(f"{name} {count}" for name, count in counts(entries).items() if count)
    out.print(found, style="bold", highlight=False)
    text = f"All {ledger.comparisons} intervals of the ledger hold together with probability "
    out.print(f"{text}{1 - FAMILY_WISE:g} at least.", style="dim", highlight=False)


def _print_details(one: Row) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    lines = [
        ("statement", one["statement"]),
        ("place", one["place"]),
        ("expected", one["expected"]),
    ]
    lines += [("assumed by the paper", text) for text in one["assumptions"]]
    lines += [("assumed besides", text) for text in one["added"]]
    if len(one["parts"]) > 1:
        lines += [
            (part["name"], shown({"observed": part["value"], **part})) for part in one["parts"]
        ]
    if one["note"]:
        lines.append(("note", one["note"]))
    for name, text in lines:
        table.add_row(name, Text(text))
    console().print(table)


def print_ledger(rows: Sequence[Row]) -> None:
    """The claims without deciding any."""
    table = plain_table()
    for name in ("claim", "kind", "ledger", "place"):
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(row["id"], row["kind"], _verdict(row["ledger"]), row["place"])
    console().print(table)


def _verdict(name: str) -> Text:
    return Text(name, style=_STYLES[Verdict(name)])
