"""``python -m experiments.paper``: list the transcribed tables."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table as Printed

from experiments.paper.tables import TABLES, Table, load
from loca_theory.cli.command import Group

_WIDTH = 100


@click.group(cls=Group)
def main() -> None:
    """List the transcribed tables of the paper."""


@main.command("list")
@click.option("--notes", is_flag=True, help="Also show errata, gaps and interpretations.")
def show(notes: bool) -> None:
    """List the transcribed tables."""
    printed = Printed("table", "label", "rows", "values", "title", box=None)
    for table in map(load, TABLES):
        values = sum(len(row.values) for row in table.rows)
        title = "\n".join((table.title, *(f"- {note}" for note in _notes(table) if notes)))
        printed.add_row(table.name, table.label, str(len(table.rows)), str(values), title)
    Console(width=_WIDTH).print(printed)


def _notes(table: Table) -> tuple[str, ...]:
    return table.notes + tuple(f"{row.name}: {row.notes}" for row in table.rows if row.notes)


if __name__ == "__main__":
    main(prog_name="python -m experiments.paper")
