"""``loca-theory methods``, and the methods that a user names on the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from loca_theory.cli.options import Common, command_of
from loca_theory.cli.output import console, emit, plain_table, print_table
from loca_theory.cli.progress import note
from loca_theory.cli.stores import note_written
from loca_theory.expressivity.methods.names import display_name

if TYPE_CHECKING:
    from loca_theory.expressivity import Budget, Method

_ALL = "all"


@command_of(
    "expressivity.method_table:methods",
    click.argument("names", nargs=-1, metavar="[NAME]..."),
    out="Folder for the table and a manifest (settings and versions, as JSON).  "
    "[default: nothing is stored]",
    without=("names",),
    K={"flag": "--K"},
)
def command(*, common: Common, names: tuple[str, ...], K: int, r: int) -> None:
    """List the methods that the other commands compare, or only the named ones, and their costs.

    Name your own method as module:attribute. A method marked as oracle chooses what it stores by
    looking at the matrix. Training does not know this matrix, so it can at best reach the oracle's
    error. The costs are the trained parameters and the stored bits (with the indices that an oracle
    chooses) at LoRA's budget of the rank --r for a K×K matrix. A method without costs does not
    exist there, or is only a formula.

    \b
    Examples:
      loca-theory methods --format json
      loca-theory methods --K 4096 --r 16
      loca-theory methods LoCA my_methods:BestColumns
    """
    from loca_theory.expressivity.method_table import methods

    result = methods(chosen_methods(names) if names else None, K=K, r=r)
    if common.out:
        note_written(result.save(common.out), common)
    found = [{**asdict(row), "engines": " ".join(row.engines)} for row in result.methods]
    emit(result.to_json(), lambda: _print(found), common, rows=found)


def _print(rows: Sequence[Mapping[str, Any]]) -> None:
    costs = ("parameters", "stored bits")
    table = plain_table("method", "key", "oracle", *costs, "engines", "reference", "what it is")
    for column in table.columns:
        column.justify = "right" if column.header in costs else "left"
    for row in rows:
        parameters, bits = row["parameters"], row["stored_bits"]
        table.add_row(
            display_name(row["name"]),
            row["name"],
            "yes" if row["is_oracle"] else "",
            "" if parameters is None else f"{parameters}",
            "" if bits is None else f"{bits:.0f}",
            row["engines"],
            row["reference"],
            row["title"],
        )
    print_table(table, console())


def chosen_methods(
    names: tuple[str, ...],
    budgets: Iterable[Budget] = (),
    *,
    quiet: bool = True,
    of_matrices: bool = False,
) -> tuple[Method, ...]:
    """Find the methods that the user named.

    ``all`` stands for the package's methods that exist at every budget and, if ``of_matrices``,
    that approximate a given matrix. Modules in the current
    folder are found too, as with ``python -m``.
    """
    from loca_theory.expressivity.methods.registry import METHODS, existing_methods, find_methods

    if any(":" in name for name in names) and "" not in sys.path:
        sys.path.insert(0, "")
    ours = []
    if _ALL in names:
        for name, reason in existing_methods(budgets).items():
            if of_matrices and not METHODS[name].can_approximate:
                continue  # only a formula
            if not reason:
                ours.append(name)
            elif name not in names:
                note(f"left out of all: {reason}", quiet=quiet)
    others = [name for name in names if name != _ALL and name not in ours]
    return find_methods([*ours, *others])
