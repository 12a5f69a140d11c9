"""``python -m experiments.paper``: list the transcribed tables, compare them with the LaTeX."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.table import Table as Printed

from experiments.paper.compare import compare, read_source
from experiments.paper.tables import TABLES, Table, load
from loca_theory.cli.command import Group

_WIDTH = 100


@click.group(cls=Group)
def main() -> None:
    """List the transcribed tables of the paper, or compare them with its LaTeX."""


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


@main.command("compare")
@click.argument("paper", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--table",
    "names",
    multiple=True,
    type=click.Choice(TABLES),
    help="Compare only this table; may be given several times.",
)
def compare_command(paper: Path, names: tuple[str, ...]) -> None:
    """Compare every transcribed value with the LaTeX file PAPER; exit 1 if any differs.

    Example: python -m experiments.paper compare paper.tex --table glue_results
    """
    found = compare([load(name) for name in names or TABLES], read_source(paper))
    printed = Printed("table", "label", "compared", "agree", "differ", box=None)
    for one in found:
        differ = len(one.disagreements)
        counts = (one.compared, one.compared - differ, differ)
        printed.add_row(one.table.name, one.table.label, *map(str, counts))
    Console(width=_WIDTH).print(printed)
    disagreements = [difference for one in found for difference in one.disagreements]
    for difference in disagreements:
        click.echo(str(difference))
    if disagreements:
        msg = f"{len(disagreements)} of {sum(one.compared for one in found)} comparisons disagree"
        raise click.ClickException(msg)
    click.echo("Everything agrees.")


def _notes(table: Table) -> tuple[str, ...]:
    return table.notes + tuple(f"{row.name}: {row.notes}" for row in table.rows if row.notes)


if __name__ == "__main__":
    main(prog_name="python -m experiments.paper")
