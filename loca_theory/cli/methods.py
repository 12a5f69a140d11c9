"""``loca-theory methods``, and the methods that a user names on the command line."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from loca_theory.cli.options import Common, options
from loca_theory.cli.output import console, plain_table, print_csv, print_json, print_table
from loca_theory.cli.stores import note_written

if TYPE_CHECKING:
    from loca_theory.expressivity import Method

_ALL = "all"


@click.command("methods")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@options(
    out="Folder for the table and a manifest (settings and versions, as JSON).  "
    "[default: nothing is stored]"
)
def command(*, common: Common, names: tuple[str, ...]) -> None:
    """List the methods that the other commands compare, or only the named ones.

    Name your own method as module:attribute. A method marked as oracle chooses what it stores by
    looking at the matrix. Training does not know this matrix, so it can at best reach the oracle's
    error.

    \b
    Examples:
      loca-theory methods --format json
      loca-theory methods D my_methods:BestColumns
    """
    from loca_theory.expressivity.method_table import methods

    result = methods(chosen_methods(names) if names else None)
    if common.out:
        note_written(result.save(common.out), common)
    found = [{**asdict(row), "engines": " ".join(row.engines)} for row in result.rows]
    match common.output_format:
        case "json":
            print_json(result.to_json())
        case "csv":
            print_csv(found)
        case _:
            table = plain_table("method", "", "engines", "reference", "what it is")
            for column in table.columns:
                column.justify = "left"
            for row in found:
                is_oracle = "oracle" if row["is_oracle"] else ""
                table.add_row(
                    row["method"], is_oracle, row["engines"], row["reference"], row["title"]
                )
            print_table(table, console())


def chosen_methods(names: tuple[str, ...]) -> tuple[Method, ...]:
    """Find the methods that the user named; ``all`` stands for those of the package.

    Modules in the current folder are found too, as with ``python -m``.

    Raises:
        InvalidArgumentError: a name is unknown, a module cannot be imported, or two methods have
            the same name.
    """
    from loca_theory.expressivity.methods import METHODS, find_methods

    if any(":" in name for name in names) and "" not in sys.path:
        sys.path.insert(0, "")
    ours = tuple(METHODS) if _ALL in names else ()
    others = [name for name in names if name != _ALL and name not in ours]
    return find_methods([*ours, *others])
