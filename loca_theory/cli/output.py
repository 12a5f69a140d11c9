"""Print results as tables, JSON or CSV."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from loca_theory.cli.printable import csv_cell, printable
from loca_theory.expressivity.methods.names import display_name

if TYPE_CHECKING:
    from loca_theory.cli.options import Common
    from loca_theory.expressivity import Method
    from loca_theory.expressivity.simulation import ErrorRow

Row = Mapping[str, Any]

# Width for pipes and files, so that nothing is cut off.
_WIDTH_OF_FILES = 200
_DECIMALS, _ROUNDING = 4, 1e-14
_PREFERRED = ("exact", "monte-carlo", "asymptotic")


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document on stdout, with all digits of floats."""
    sys.stdout.write(json.dumps(document, indent=1, allow_nan=False) + "\n")


def print_csv(rows: Sequence[Row], columns: Sequence[str] | None = None) -> None:
    """Print rows as CSV on stdout, by default with the columns of the first; None is empty."""
    writer = csv.DictWriter(sys.stdout, columns or list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: csv_cell(value) for name, value in row.items()} for row in rows)


def emit(
    document: Mapping[str, Any],
    show: Callable[[], None],
    common: Common,
    rows: Sequence[Row] | None = None,
    columns: Sequence[str] | None = None,
) -> None:
    """Print a result in the format that the user chose.

    Args:
        document: The result for JSON; its ``rows`` are those of CSV.
        show: Prints the result as tables.
        common: The shared options.
        rows: Other rows for CSV.
        columns: Their columns; None for those of the first row.
    """
    match common.output_format:
        case "json":
            print_json(document)
        case "csv":
            print_csv(document["rows"] if rows is None else rows, columns)
        case _:
            show()


class SafeConsole(Console):
    """A console that shows control characters as escapes, whatever text they are in."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render as rich does, with escapes."""
        for one in super().render(renderable, options):
            yield one if one.control else Segment(printable(one.text, keep="\n"), one.style)


class _TableOfNames(Table):
    """A table whose first column has names of unknown origin, which must not be read as markup."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        name, *others = cells
        super().add_row(
            Text(printable(name)) if isinstance(name, str) else name, *others, **options
        )


def console() -> Console:
    """Make a console for stdout, as wide as the terminal; in a pipe, nothing is cut off."""
    out = SafeConsole()
    if not out.is_terminal:
        out.width = _WIDTH_OF_FILES
    return out


def plain_table(name: str, *headings: str) -> Table:
    """Make a table with a rule under its head and no other lines."""
    table = _TableOfNames(
        box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1), collapse_padding=True
    )
    table.add_column(name, overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def print_table(table: Table, out: Console) -> None:
    """Print a table made by :func:`plain_table` without cutting anything off.

    If it is wider than the console, the names of its rows are folded, down to half the width. If it
    is still too wide, its columns are spread over several tables, each with the names.
    """
    names = _width(_part(table, [0]), out)
    foldable = max(names - out.width // 2, 0)
    parts: list[list[int]] = []
    for i in range(1, len(table.columns)):
        if parts and _width(_part(table, [*parts[-1], i]), out) - foldable <= out.width:
            parts[-1].append(i)
        else:
            parts.append([0, i])
    for number, columns in enumerate(parts):
        if number:
            out.print()
        out.print(_part(table, columns))


def fits(table: Table, out: Console) -> bool:
    """Whether a table fits the console without changes."""
    return _width(table, out) <= out.width


def _part(table: Table, columns: Sequence[int]) -> Table:
    """Copy some columns of a table, without the rows that are empty in them."""
    chosen = [table.columns[i] for i in columns]
    part = plain_table("", *("" for _ in chosen[1:]))
    for new, column in zip(part.columns, chosen, strict=True):
        new.header, new.footer, new.justify = column.header, column.footer, column.justify
    part.show_footer = any(column.footer for column in chosen[1:])
    for row, cells in zip(table.rows, zip(*(c.cells for c in chosen), strict=True), strict=True):
        if any(cells[1:]) or len(cells) == 1:
            part.add_row(*cells, style=row.style)
    return part


def _width(table: Table, out: Console) -> int:
    return out.measure(table, options=out.options.update_width(10_000)).maximum


def print_errors(rows: Sequence[ErrorRow], methods: Sequence[Method]) -> None:
    """Print a table for each shape: a row per rank, a column per method, worst method first.

    A cell is the exact value if there is one, else the simulated value with its standard error,
    else the limit (≈). Methods whose printed values are equal share a column. If there are both
    exact and simulated values, the last line gives their largest difference, in standard errors.
    """
    out = console()
    for shape in dict.fromkeys((row.p, row.q) for row in rows):
        mine = [row for row in rows if (row.p, row.q) == shape]
        table = _table(mine, between=" ± ")
        if not fits(table, out):
            table = _table(mine, between="\n± ")
        title = f"{shape[0]} × {shape[1]}: expected relative error ‖W − Ŵ‖² / ‖W‖²"
        out.print(title, style="bold", highlight=False)
        out.print()
        print_table(table, out)
        if table.show_footer:
            draws = max(row.draws or 0 for row in mine)
            text = f"max z: largest |Monte Carlo − exact| in standard errors, {draws} draws"
            out.print(text, style="dim", highlight=False)
        out.print()
    printed = {row.method for row in rows}
    named = [method for method in methods if method.name in printed]
    width = max(len(method.display_name) for method in named)
    for method in named:
        line = f"  {method.display_name:<{width}}  {method.title}"
        out.print(line, style="dim", highlight=False, markup=False)


def _worst_first(rows: Sequence[ErrorRow]) -> list[str]:
    best: dict[tuple[str, int], ErrorRow] = {}
    for engine in _PREFERRED:
        for row in rows:
            if row.engine == engine:
                best.setdefault((row.method, row.r), row)
    errors: dict[str, list[float]] = {row.method: [] for row in rows}
    for (method, _), row in best.items():
        errors[method].append(row.error)
    return sorted(errors, key=lambda method: -sum(errors[method]) / len(errors[method]))


def _table(rows: Sequence[ErrorRow], *, between: str) -> Table:
    """Make the table of one shape; ``between`` separates a value from its standard error."""
    ranks = list(dict.fromkeys(row.r for row in rows))
    cells = {(row.method, row.r, str(row.engine)): row for row in rows}

    def cell(method: str, r: int) -> str:
        known = (cells[method, r, e] for e in _PREFERRED if (method, r, e) in cells)
        row = next(known, None)
        return "" if row is None else _cell(row, between)

    columns: dict[tuple[str, ...], list[str]] = {}
    for method in _worst_first(rows):
        columns.setdefault(tuple(cell(method, r) for r in ranks), []).append(method)

    table = plain_table("r", *("\n".join(map(display_name, names)) for names in columns.values()))
    disagreement = [_largest_disagreement(cells, names, ranks) for names in columns.values()]
    table.show_footer = any(disagreement)
    table.columns[0].justify = "right"
    for column, footer in zip(table.columns, ("max z", *disagreement), strict=True):
        column.footer = footer
    for i, r in enumerate(ranks):
        table.add_row(str(r), *(column[i] for column in columns))
    return table


def _cell(row: ErrorRow, between: str) -> str:
    if row.engine == "asymptotic":
        return f"≈ {row.error:.{_DECIMALS}f}"
    if row.engine == "exact":
        return f"{row.error:.{_DECIMALS}f}"
    error = row.standard_error
    if error is None:
        return f"{row.error:.{_DECIMALS}f}{between}?"
    # A standard error this small is rounding only.
    is_rounding = error <= _ROUNDING * row.error
    decimals = _DECIMALS if is_rounding else max(_DECIMALS, math.ceil(-math.log10(error)))
    return f"{row.error:.{decimals}f}{between}{error:.{decimals}f}"


def _largest_disagreement(
    cells: Mapping[tuple[str, int, str], ErrorRow], methods: Sequence[str], ranks: Sequence[int]
) -> str:
    scores = []
    for method in methods:
        for r in ranks:
            exact = cells.get((method, r, "exact"))
            simulated = cells.get((method, r, "monte-carlo"))
            if exact and simulated and simulated.standard_error:
                gap = abs(simulated.error - exact.error)
                scores.append(gap / simulated.standard_error)
    return f"{max(scores):.1f}" if scores else ""
