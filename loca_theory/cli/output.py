"""Print results as tables, JSON or CSV."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from loca_theory.cli.common import Common
from loca_theory.cli.printable import csv_cell, printable

# Width for pipes and files, so that nothing is cut off; COLUMNS in the environment counts first.
_WIDTH_OF_FILES = 200
# Rows of a table, and width of a text, for people.
_MOST_ROWS, _TEXT_WIDTH = 60, 100


def emit(
    document: Mapping[str, Any],
    show: Callable[[], None],
    common: Common,
    rows: str = "rows",
    columns: Sequence[str] | None = None,
) -> None:
    """Print a result in the format that the user chose: the document, or what ``show`` prints.

    CSV has one table of the document, with these columns or those of its first row.
    """
    match common.output_format:
        case "json":
            # Floats with all their digits.
            sys.stdout.write(json.dumps(document, indent=1, allow_nan=False) + "\n")
        case "csv":
            _print_csv(document[rows], columns)
        case _:
            show()


def _print_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None) -> None:
    """Print some columns of rows as CSV on stdout; None is empty."""
    names = list(rows[0]) if columns is None else columns
    writer = csv.DictWriter(sys.stdout, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: csv_cell(value) for name, value in row.items()} for row in rows)


class SafeConsole(Console):
    """A console for plain text, which shows control characters as escapes."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render as rich does, with escapes."""
        for part in super().render(renderable, options):
            yield part if part.control else Segment(printable(part.text, keep="\n"), part.style)


def text_width(out: Console) -> int:
    """Width of running text: that of the console, but no more than is easy to read."""
    return min(out.width, _TEXT_WIDTH)


def print_note(out: Console, text: str) -> None:
    """Print a dim text that explains a table, and an empty line."""
    out.print(f"{text}\n", style="dim", width=text_width(out))


def console() -> Console:
    """Make a console for stdout, as wide as the terminal or COLUMNS; a pipe is wide."""
    out = SafeConsole(markup=False, highlight=False, emoji=False)
    if not (out.is_terminal or os.environ.get("COLUMNS", "").isdigit()):
        out.width = _WIDTH_OF_FILES
    return out


@dataclass(frozen=True)
class Rows:
    """A table whose headings are the keys of its first row; the first column names the rows.

    Attributes:
        cells: The rows, in which a cell may be missing; text of unknown origin must be printable.
        justify: How columns are justified other than names to the left and the rest to the right.
    """

    cells: Sequence[Mapping[str, str | Text]]
    justify: Mapping[str, Literal["left", "right"]] = field(default_factory=dict)

    def print(self, out: Console, *, then_empty: bool = True) -> None:
        """Print the table without cutting anything off, and then an empty line.

        If it is wider than the console, its names are folded, down to half the width. If it is
        still too wide, its columns are spread over several tables, each with the names. Of many
        rows, the first are printed; empty columns are not.
        """
        if (hidden := len(self.cells) - _MOST_ROWS) > 0:
            replace(self, cells=self.cells[:_MOST_ROWS]).print(out, then_empty=False)
            text = f"… and {hidden} more; all of them in --format json and the files of --out"
            out.print(f"{text}\n" if then_empty else text)
            return
        names, *headings = self._headings
        foldable = max(self._width([names], out) - out.width // 2, 0)
        parts: list[list[str]] = []
        for heading in headings:
            if parts and self._width([*parts[-1], heading], out) - foldable <= out.width:
                parts[-1].append(heading)
            else:
                parts.append([names, heading])
        for part in parts:
            out.print(self._table(part))
            if then_empty or part is not parts[-1]:
                out.print()

    def fits(self, out: Console) -> bool:
        """Whether the whole table fits the console."""
        return self._width(self._headings, out) <= out.width

    @property
    def _headings(self) -> list[str]:
        """The name of the rows, and the headings of all columns that are not empty."""
        names, *columns = self.cells[0]
        return [names, *(name for name in columns if any(row.get(name) for row in self.cells))]

    def _width(self, headings: Sequence[str], out: Console) -> int:
        options = out.options.update_width(10_000)
        return out.measure(self._table(headings), options=options).maximum

    def _table(self, headings: Sequence[str]) -> Table:
        """Some columns with a rule under their head, without the rows that are empty in them."""
        table = Table(
            box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1), collapse_padding=True
        )
        names, *columns = headings
        table.add_column(names, overflow="fold", justify=self.justify.get(names, "left"))
        for heading in columns:
            justify = self.justify.get(heading, "right")
            table.add_column(heading, justify=justify, no_wrap=True)
        for row in self.cells:
            cells = [row.get(heading, "") for heading in headings]
            if any(cells[1:]) or not columns:
                table.add_row(*cells)
        return table
