"""Print how often each search solves the problems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from loca_theory.cli.output import console, plain_table, print_table
from loca_theory.convergence.results import RecoveryRow

_NOTES = (
    "solved: all locations that generated the data are found; diverged: not solved",
    "low..high: exact (Clopper–Pearson) 95% interval of the percentage solved",
    "found: mean number of these locations that are occupied at the end",
    "median loss: final loss, in units of the loss at ΔW = 0",
)


def print_recovery(rows: Sequence[RecoveryRow]) -> None:
    """Print the success rate of each search: all details if there is only one kind of problem."""
    out = console()
    kinds = list(dict.fromkeys(_kind(row) for row in rows))
    steps = rows[0].steps
    out.print(f"Problems solved by each search, after {steps} steps", style="bold")
    if len(kinds) == 1:
        first = rows[0]
        out.print(f"{first.problems} problems: {_words(first)}", highlight=False)
    out.print()
    print_table(_full(rows) if len(kinds) == 1 else _compared(rows, kinds), out)
    for line in _NOTES if len(kinds) == 1 else _NOTES[:2]:
        out.print(line, style="dim", highlight=False)


def _full(rows: Sequence[RecoveryRow]) -> Table:
    table = plain_table("search", "solved", "low..high", "found", "median loss", "diverged")
    for row in rows:
        table.add_row(
            row.search,
            f"{100 * row.recovered:.2f} %",
            _interval(row),
            f"{row.mean_found:.2f} of {row.components}",
            _loss(row),
            str(row.diverged),
        )
    return table


def _compared(rows: Sequence[RecoveryRow], kinds: Sequence[tuple[Any, ...]]) -> Table:
    cells = {(row.search, _kind(row)): row for row in rows}
    firsts = [next(row for row in rows if _kind(row) == kind) for kind in kinds]
    table = plain_table("search", *(_heading(row, rows) for row in firsts))
    for search in dict.fromkeys(row.search for row in rows):
        mine = [cells[search, kind] for kind in kinds]
        table.add_row(search, *(f"{100 * row.recovered:.1f} %" for row in mine))
        table.add_row("", *(_interval(row) for row in mine), style="dim")
        if any(row.diverged for row in mine):
            counts = (f"{row.diverged} diverged" if row.diverged else "" for row in mine)
            table.add_row("", *counts, style="dim")
    return table


def _kind(row: RecoveryRow) -> tuple[Any, ...]:
    return tuple(
        getattr(row, name) for name in ("interpretation", "size", "components", "condition")
    )


def _heading(row: RecoveryRow, rows: Sequence[RecoveryRow]) -> str:
    """Heading of a kind of problem: the settings in which the kinds differ."""
    parts = {
        "interpretation": row.interpretation,
        "size": f"{row.size}×{row.size}",
        "components": f"{row.components} components",
        "condition": _condition(row),
    }
    differing = [
        text for name, text in parts.items() if len({getattr(other, name) for other in rows}) > 1
    ]
    return "\n".join((*differing, f"n = {row.problems}"))


def _words(row: RecoveryRow) -> str:
    size, components = row.size, row.components
    interpretation = (
        "" if row.interpretation == "default" else f", interpretation {row.interpretation}"
    )
    return f"{size}×{size}, {components} components, {_condition(row)} weights{interpretation}"


def _condition(row: RecoveryRow) -> str:
    condition = row.condition
    return "Gaussian" if condition is None else f"condition {condition:g}"


def _interval(row: RecoveryRow) -> str:
    return f"{100 * row.low:.2f}..{100 * row.high:.2f}"


def _loss(row: RecoveryRow) -> str:
    loss = row.median_final_loss
    return "diverged" if loss is None else f"{loss:.1e}"
