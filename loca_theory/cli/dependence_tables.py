"""Print the results of a dependence study."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from loca_theory.cli.output import console, plain_table, print_table

if TYPE_CHECKING:
    from rich.table import Table

    from loca_theory.dependence.results import CrossingRow, PowerRow

_SHORT = {"rho": "ρ", "low-frequency": "low freq."}
_PROTOCOLS = {
    "same-draw": "same-draw: all methods approximate the same matrix",
    "iid-reference": "iid-reference: LoCA approximates independent entries",
}


def print_crossings(rows: Sequence[CrossingRow]) -> None:
    """Print where LoRA's error falls below LoCA's: a table per protocol, a line per structure."""
    out = console()
    out.print("Where LoRA overtakes LoCA, 95% interval", style="bold")
    ranks = list(dict.fromkeys(row.r for row in rows))
    for protocol in dict.fromkeys(row.protocol for row in rows):
        out.print()
        out.print(_PROTOCOLS[protocol], highlight=False)
        mine = [row for row in rows if row.protocol == protocol]
        print_table(_crossings_table(mine, ranks), out)
    out.print()


def _crossings_table(rows: Sequence[CrossingRow], ranks: Sequence[int]) -> Table:
    table = plain_table("structure", *(f"r = {r}" for r in ranks), "searched")
    table.columns[-1].justify = "left"
    for structure, parameter in dict.fromkeys((row.structure, row.parameter) for row in rows):
        mine = {row.r: row for row in rows if row.structure == structure}
        first = mine[ranks[0]]
        searched = f"{first.searched_from:g}..{first.searched_to:g}"
        table.add_row(
            structure,
            *(_interval(mine[r]) for r in ranks),
            f"{_SHORT.get(parameter, parameter)} {searched}",
        )
        closed = [mine[r].closed_form for r in ranks]
        if any(value is not None for value in closed):
            cells = ["" if value is None else f"{value:.3f}      " for value in closed]
            table.add_row("  closed form", *cells, "", style="dim")
    return table


_FINDINGS = {"D throughout": "LoCA wins", "R throughout": "LoRA wins", "R first": "LoRA first"}


def _interval(row: CrossingRow) -> str:
    if row.crossing is None or row.low is None or row.high is None:
        return _FINDINGS[row.finding]
    half = (row.high - row.low) / 2
    return f"{row.crossing:.3f}±{half:.3f}"


def print_detection(rows: Sequence[PowerRow]) -> None:
    """Print the power of each statistic, before and after centring the columns."""
    if not rows:
        return
    out = console()
    level = rows[0].level
    title = f"Power at level {level:g}, in %: before / after centring the columns"
    out.print(title, style="bold", highlight=False)
    draws = {row.structure == "independent": row.draws for row in rows}
    counts = f"{draws[False]} draws each; independent: {draws[True]} draws, measured test size"
    out.print(counts, style="dim", highlight=False)
    out.print()
    statistics = list(dict.fromkeys(row.statistic for row in rows))
    headings = [str(_SHORT.get(name, name)) for name in statistics]
    table = plain_table("structure", "mean T", *headings)
    for structure, value in dict.fromkeys((row.structure, row.value) for row in rows):
        mine = {
            (row.statistic, row.centred): row
            for row in rows
            if (row.structure, row.value) == (structure, value)
        }
        cells = [_power(mine.get((name, False)), mine.get((name, True))) for name in statistics]
        first = mine["T", False]
        name = structure
        if first.parameter and value is not None:
            name = f"{structure}, {_SHORT.get(first.parameter, first.parameter)} {value:g}"
        table.add_row(name, f"{first.mean:.3f}", *cells)
    print_table(table, out)
    bounds = {(row.statistic, row.centred): row.critical_value for row in rows}
    for centred, label in ((False, "before centring"), (True, "after centring")):
        shown = ", ".join(f"{name} {bounds[name, centred]:.3g}" for name in statistics)
        out.print(f"critical values {label}: {shown}", style="dim", highlight=False)


def _power(uncentred: PowerRow | None, centred: PowerRow | None) -> str:
    if uncentred is None or centred is None:
        return ""
    return f"{100 * uncentred.power:.0f} / {100 * centred.power:.0f}"
