"""``loca-theory methods``, and the methods that a user names on the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from loca_theory.cli.options import Common, command_of
from loca_theory.cli.output import Rows, console, emit
from loca_theory.expressivity.methods.names import display_name

if TYPE_CHECKING:
    from loca_theory.expressivity import Budget, Method
    from loca_theory.expressivity.method_table import MethodRow, MethodTable

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

    Without names it also lists the coders that analyze --bits compares.

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

    result = methods(chosen_methods(names, common) if names else None, K=K, r=r)
    if common.out:
        common.note_written(result.save(common.out))
    emit(result.to_json(), lambda: _print(result), common, rows="methods")


def _print(table: MethodTable) -> None:
    _print_methods(table.methods)
    if table.coders:
        console().print("\nCoders, which analyze --bits compares")
        cells = [
            {"coder": one.name, "reference": one.reference, "what it is": one.title}
            for one in table.coders
        ]
        Rows(cells, dict.fromkeys(("reference", "what it is"), "left")).print(console())


def _print_methods(rows: Sequence[MethodRow]) -> None:
    cells = [
        {
            "method": display_name(row.name),
            "key": row.name,
            "oracle": "yes" if row.is_oracle else "",
            "parameters": "" if row.parameters is None else f"{row.parameters}",
            "stored bits": "" if row.stored_bits is None else f"{row.stored_bits:.0f}",
            "engines": " ".join(row.engines),
            "reference": row.reference,
            "what it is": row.title,
        }
        for row in rows
    ]
    texts = ("key", "oracle", "engines", "reference", "what it is")
    Rows(cells, dict.fromkeys(texts, "left")).print(console())


def chosen_methods(
    names: tuple[str, ...],
    common: Common,
    budgets: Iterable[Budget] = (),
    *,
    of_matrices: bool = False,
) -> tuple[Method, ...]:
    """Find the methods that the user named.

    ``all`` stands for the package's methods that exist at every budget and, if ``of_matrices``,
    that approximate a given matrix. Modules in the current folder are found too, as with
    ``python -m``.
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
                common.note(f"left out of all: {reason}")
    others = [name for name in names if name != _ALL and name not in ours]
    return find_methods([*ours, *others])
