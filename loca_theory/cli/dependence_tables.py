"""Printing what a dependence study found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loca_theory.cli.output import console, plain_table

Row = Mapping[str, Any]


def print_crossings(rows: Sequence[Row]) -> None:
    """Where R's error passes below D's: a line a structure and protocol, a column a rank."""
    out = console()
    out.print("Where LoRA overtakes DCT selection (R below D), 95% interval", style="bold")
    out.print()
    ranks = list(dict.fromkeys(row["r"] for row in rows))
    table = plain_table()
    for heading in ("structure", "protocol", ""):
        table.add_column(heading, no_wrap=True)
    for r in ranks:
        table.add_column(f"r = {r}", justify="right", no_wrap=True)
    for labels in dict.fromkeys(
        (row["structure"], row["protocol"], row["parameter"]) for row in rows
    ):
        mine = [
            row for row in rows if (row["structure"], row["protocol"], row["parameter"]) == labels
        ]
        if all(row["crossing"] is None for row in mine):
            cells = [f"none in [{mine[0]['searched_from']:g}, {mine[0]['searched_to']:g}]"]
        else:
            cells = [_interval(row) for row in mine]
        table.add_row(*labels, *cells)
    out.print(table)
    out.print()


def _interval(row: Row) -> str:
    if row["crossing"] is None:
        return "none"
    half = (row["high"] - row["low"]) / 2
    return f"{row['crossing']:.3f} ± {half:.3f}"


def print_detection(rows: Sequence[Row]) -> None:
    """Who notices: the power of each statistic, as it is and after centring the columns."""
    if not rows:
        return
    out = console()
    level = rows[0]["level"]
    out.print(f"Power of the tests of independence at level {level:g}", style="bold")
    out.print()
    statistics = list(dict.fromkeys(row["statistic"] for row in rows))
    table = plain_table()
    table.add_column("structure", no_wrap=True)
    table.add_column("value", justify="right")
    table.add_column("mean T", justify="right")
    for name in statistics:
        table.add_column(name, justify="right")
        table.add_column("centred", justify="right", style="dim")
    for structure, value in dict.fromkeys((row["structure"], row["value"]) for row in rows):
        mine = {
            (row["statistic"], row["centred"]): row
            for row in rows
            if (row["structure"], row["value"]) == (structure, value)
        }
        cells = [
            f"{mine[name, centred]['power']:.2f}"
            for name in statistics
            for centred in (False, True)
        ]
        mean = mine["T", False]["mean"]
        table.add_row(
            structure, f"{mine['T', False]['parameter']} {value:g}", f"{mean:.3f}", *cells
        )
    out.print(table)
    bounds = {(row["statistic"], row["centred"]): row["critical_value"] for row in rows}
    shown = ", ".join(f"{name} {bounds[name, False]:.4g}" for name in statistics)
    out.print(f"critical values (not centred): {shown}", style="dim", highlight=False)
