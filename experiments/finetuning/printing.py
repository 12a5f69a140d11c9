"""Print tables on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

_WIDTH = 110


def number(value: float | None, digits: int = 2, *, sign: bool = False) -> str:
    """Format a number; missing and infinite values become a dash."""
    if value is None or abs(value) == float("inf"):
        return "–"
    return f"{value:{'+' if sign else ''}.{digits}f}"


def scale_of(measure: str) -> tuple[float, str, int]:
    """Factor, unit and number of digits for printing a metric."""
    return (100.0, "%", 1) if measure == "accuracy" else (1.0, "", 4)


def print_summary(
    lines: Iterable[Mapping[str, Any]],
    *,
    title: str,
    columns: Sequence[str] = ("method",),
    note: str = "",
) -> None:
    """Print means with intervals, and differences from the reference if the lines have them."""
    lines = list(lines)
    compared = any(line.get("difference") is not None for line in lines)
    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name)
    for name in ("trained", "mean", "95% interval", "seeds"):
        table.add_column(name, justify="right")
    if compared:
        table.add_column("difference", justify="right")
        table.add_column("95% interval", justify="right")
        table.add_column("p (Holm)", justify="right")
    for line in lines:
        factor, unit, digits = scale_of(line["measure"])
        cells = ["" if line[name] is None else str(line[name]) for name in columns]
        cells.append(f"{line['trained']:,}")
        cells += _mean(line, ("mean", "low", "high"), factor, digits, unit)
        count = str(line["seeds"])
        cells.append(count + (f" ({line['diverged']} diverged)" if line["diverged"] else ""))
        if compared:
            names = ("difference", "difference_low", "difference_high")
            cells += _mean(line, names, factor, digits, "", sign=True)
            cells.append(number(line.get("p_value"), 3))
        table.add_row(*cells)
    seeds = "intervals are over seeds: the test set and the pretrained model are always the same"
    print_table(table, title, f"{note}\n{seeds}" if note else seeds)


def print_table(table: Table, title: str, note: str = "") -> None:
    """Print a table with a title above and a note below."""
    console = Console(width=_WIDTH)
    console.print(f"\n[bold]{title}[/bold]", highlight=False)
    console.print(table)
    if note:
        console.print(note, highlight=False, soft_wrap=True)


def _mean(
    line: Mapping[str, Any],
    names: Sequence[str],
    factor: float,
    digits: int,
    unit: str,
    *,
    sign: bool = False,
) -> list[str]:
    mean, low, high = (None if line.get(name) is None else factor * line[name] for name in names)
    ends = f"{number(low, digits, sign=sign)} to {number(high, digits, sign=sign)}"
    shown = number(mean, digits, sign=sign)
    return [shown + unit if mean is not None else shown, ends if mean is not None else ""]
