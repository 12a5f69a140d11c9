"""Print tables on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Column, Table

_WIDTH = 110


def number(value: float | None, digits: int = 2, *, sign: bool = False) -> str:
    """Format a number; missing and infinite values become a dash."""
    if value is None or abs(value) == float("inf"):
        return "–"
    return f"{value:{'+' if sign else ''}.{digits}f}"


def print_table(
    title: str,
    left: Sequence[str],
    right: Sequence[str],
    rows: Iterable[Sequence[str]],
    note: str = "",
) -> None:
    """Print rows below headings of columns to the left and to the right, unless there are none."""
    columns = [Column(one, no_wrap=True) for one in left]
    columns += [Column(one, justify="right") for one in right]
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    if table.row_count:
        console = Console(width=_WIDTH)
        console.print(f"\n[bold]{title}[/bold]", highlight=False)
        console.print(table)
        if note:
            console.print(note, highlight=False, soft_wrap=True)


def print_summary(
    lines: Sequence[Mapping[str, Any]], *, title: str, columns: Sequence[str], note: str = ""
) -> None:
    """Print means with intervals, and differences from the reference if the lines have them."""
    is_compared = any(line.get("difference") is not None for line in lines)
    headings = ["trained", "mean", "95% interval", "seeds"]
    headings += ["difference", "95% interval", "p (Holm)"] if is_compared else []
    rows = []
    for line in lines:
        cells = ["" if line[name] is None else str(line[name]) for name in columns]
        cells += [f"{line['trained']:,}", *_percent(line, "mean", "low", "high", unit="%")]
        diverged = f" ({line['diverged']} diverged)" if line["diverged"] else ""
        cells.append(f"{line['seeds']}{diverged}")
        if is_compared:
            names = ("difference", "difference_low", "difference_high")
            cells += [*_percent(line, *names, sign=True), number(line.get("p_value"), 3)]
        rows.append(cells)
    seeds = "intervals are over seeds: the test set and the pretrained model are always the same"
    print_table(title, columns, headings, rows, f"{note}\n{seeds}" if note else seeds)


def _percent(
    line: Mapping[str, Any], *names: str, unit: str = "", sign: bool = False
) -> tuple[str, str]:
    """A mean and its interval."""
    mean, low, high = (None if (v := line.get(name)) is None else 100 * v for name in names)
    if mean is None:
        return number(None), ""
    ends = f"{number(low, 1, sign=sign)} to {number(high, 1, sign=sign)}"
    return number(mean, 1, sign=sign) + unit, ends
