"""``loca-theory methods``, and the methods that a user names on the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from loca_theory.cli.options import Common, command_of
from loca_theory.cli.output import Rows, console, emit, print_note
from loca_theory.expressivity.methods.names import known_name

if TYPE_CHECKING:
    from rich.console import Console

    from loca_theory.expressivity import Budget, Method
    from loca_theory.expressivity.method_table import MethodRow, MethodTable

_ALL = "all"
_TEXTS = ("oracle", "error", "what it is", "reference")
_NOTES = (
    "Costs for a {K}×{K} matrix at the budget of LoRA of rank {r}, N0 = r(p + q) = {numbers} "
    "numbers. oracle: picks its locations by looking at the matrix, which training does not know; "
    "each costs one more number of N0. parameters: values without locations. stored bits: 16 for a "
    "value, and those of the picked locations. "
    "error: what simulate computes, exact or simulated by draws."
)
_STEPS = (
    "A {K}×{K} matrix at the budget of LoRA of rank {r}. first step: the Frobenius norm of the "
    "change that the first step of Adam makes at the learning rate {lr:g}, for an adapter as PEFT "
    "initialises it and LoRA with alpha = 2r. equivalent rate: moves the matrix as far as LoRA at "
    "{lr:g}; where to start a search, not the best rate."
)


@command_of(
    "expressivity.method_table:methods",
    click.argument("names", nargs=-1, metavar="[NAME]..."),
    out="Folder for the table and a manifest (settings and versions, as JSON).  "
    "[default: nothing is stored]",
    without=("names",),
    K={"flag": "--K"},
)
def command(*, common: Common, names: tuple[str, ...], K: int, r: int, lr: float | None) -> None:
    """List the methods that the other commands compare, or only the named ones, and their costs.

    Without names it also lists the coders that analyze --bits compares.

    Name your own method as module:attribute. A method marked as oracle chooses what it stores by
    looking at the matrix. Training does not know this matrix, so it can at best reach the oracle's
    error. The costs are the trained parameters and the stored bits (with the indices that an oracle
    chooses) at LoRA's budget of the rank --r for a K×K matrix. A method without costs does not
    exist there, or is only a formula. With a learning rate --lr the table says how far the first
    step of training moves the matrix, and the rate at which each method moves it as far as LoRA.

    \b
    Examples:
      loca-theory methods --format json
      loca-theory methods --K 4096 --r 16
      loca-theory methods --K 768 --r 8 --lr 1e-4
      loca-theory methods LoCA my_methods:BestColumns
    """
    from loca_theory.expressivity.method_table import methods

    separate = tuple(name for text in names for name in text.split(","))
    result = methods(chosen_methods(separate, common) if names else None, K=K, r=r, lr=lr)
    if common.out:
        common.note_written(result.save(common.out))
    emit(result.to_json(), lambda: _print(result), common, rows="methods")


def _print(table: MethodTable) -> None:
    from loca_theory.expressivity.methods.bounds import Bound
    from loca_theory.expressivity.methods.registry import METHODS

    out, K, r = console(), table.manifest["grid"]["K"], table.manifest["grid"]["r"]
    if table.manifest["grid"]["lr"] is not None:
        _print_steps(out, table)
        return
    print_note(out, _NOTES.format(K=K, r=r, numbers=f"{2 * K * r:,}"))
    bounds = [row for row in table.methods if isinstance(METHODS.get(row.name), Bound)]
    methods = [row for row in table.methods if row not in bounds]
    for title, rows in (("Methods", methods), ("Bounds on errors, by formulas", bounds)):
        if rows:
            _print_rows(out, f"{title}: {len(rows)}", [_cells(row) for row in rows])
    if table.coders:
        cells = [
            {"coder": coder.name, "reference": coder.reference, "what it is": coder.title}
            for coder in table.coders
        ]
        _print_rows(out, "Coders, which analyze --bits compares (rate–distortion in files)", cells)


def _print_steps(out: Console, table: MethodTable) -> None:
    """Print the first steps, and which methods have none."""
    grid = table.manifest["grid"]
    print_note(out, _STEPS.format(**grid))
    with_step = [row for row in table.methods if row.first_step is not None]
    cells = [
        {
            "method": row.name,
            "parameters": f"{row.parameters:,}",
            "first step": f"{row.first_step:.1e}",
            "equivalent rate": f"{row.equivalent_lr:.1e}",
            "reference": row.reference,
            "what it is": row.title,
        }
        for row in with_step
    ]
    if cells:
        _print_rows(out, f"First step of training: {len(with_step)}", cells)
    if without_step := [row.name for row in table.methods if row not in with_step]:
        print_note(out, f"Not known: {', '.join(without_step)}.")


def _cells(row: MethodRow) -> dict[str, str]:
    return {
        "method": row.name,
        "oracle": "yes" if row.is_oracle else "",
        "parameters": "" if row.parameters is None else f"{row.parameters:,}",
        "stored bits": "" if row.stored_bits is None else f"{row.stored_bits:,.0f}",
        "error": "exact" if "exact" in row.engines else "simulated" if row.engines else "",
        "what it is": row.title,
        "reference": row.reference,
    }


def _print_rows(out: Console, title: str, cells: Sequence[Mapping[str, str]]) -> None:
    out.print(title, style="bold")
    Rows(cells, dict.fromkeys(_TEXTS, "left")).print(out)


def chosen_methods(
    names: tuple[str, ...],
    common: Common,
    budgets: Iterable[Budget] = (),
    *,
    of_matrices: bool = False,
) -> tuple[Method, ...]:
    """Find the methods that the user named.

    ``all`` stands for the package's methods that exist at every budget and, if ``of_matrices``,
    that approximate a given matrix.
    """
    from loca_theory.expressivity.methods.registry import METHODS, existing_methods, find_methods

    search_current_folder(names)
    keys, ours = [known_name(name) for name in names], []
    if _ALL in keys:
        for name, reason in existing_methods(budgets).items():
            if of_matrices and not METHODS[name].can_approximate:
                continue  # only a formula
            if not reason:
                ours.append(name)
            elif name not in keys:
                common.note(f"left out of all: {reason}")
    other_keys = [key for key in keys if key != _ALL and key not in ours]
    return find_methods([*ours, *other_keys])


def search_current_folder(names: Iterable[str]) -> None:
    """Find ``module:attribute`` in the current folder too, as with ``python -m``."""
    if any(":" in name for name in names) and "" not in sys.path:
        sys.path.insert(0, "")
