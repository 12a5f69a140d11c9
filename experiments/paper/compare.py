"""Compare the transcribed tables with the paper's LaTeX, number by number.

The LaTeX is parsed independently of the transcription: a row is matched to its cells only by the
headings of groups, lines and columns. A value that differs, a value that is not printed, and a
printed cell that was not transcribed are all disagreements.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from experiments.paper.latex import Cell, Grid, grid, key, read_number, uncommented
from experiments.paper.tables import ANY, Field, Row, Table, Value
from loca_theory.errors import InvalidArgumentError

# The paper's marks of lines that are taken from prior work.
_MARKS = ("†", "‡", "*")


@dataclass(frozen=True)
class Disagreement:
    """One difference between the transcription and the LaTeX.

    Attributes:
        table: Name of the transcribed table.
        row: The row, or the printed line if no row belongs to it.
        field: The field or the printed column.
        transcribed: The value in the file.
        printed: The value in the LaTeX.
    """

    table: str
    row: str
    field: str
    transcribed: str
    printed: str

    def __str__(self) -> str:
        where = f"{self.table}.toml, {self.row}, {self.field}"
        return f"{where}: transcribed {self.transcribed}, printed {self.printed}"


@dataclass(frozen=True)
class Comparison:
    """Result of the comparison of one table.

    Attributes:
        table: The transcribed table.
        compared: Number of transcribed values, spreads and marks compared with the LaTeX.
        disagreements: All differences.
    """

    table: Table
    compared: int
    disagreements: tuple[Disagreement, ...]


@dataclass
class _Ledger:
    """Differences found so far, and the cells that were compared."""

    table: Table
    compared: int = 0
    seen: set[tuple[int, int]] = field(default_factory=set)
    found: list[Disagreement] = field(default_factory=list)

    def check(self, holds: bool, row: str, what: str, ours: object, printed: str) -> None:
        self.compared += 1
        if not holds:
            shown = "nothing" if ours is None else str(ours)
            self.found.append(Disagreement(self.table.name, row, what, shown, printed or "nothing"))


def read_source(path: Path) -> str:
    """The LaTeX of a file, without comments.

    Raises:
        InvalidArgumentError: The file cannot be read, or is not LaTeX with tables.
    """
    try:
        source = uncommented(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        msg = f"cannot read {path}: {reason}"
        raise InvalidArgumentError(msg) from error
    if "\\begin{tabular}" not in source:
        msg = f"{path} is not LaTeX with tables: it has no \\begin{{tabular}}"
        raise InvalidArgumentError(msg)
    return source


def compare(tables: list[Table], source: str) -> list[Comparison]:
    """Compare every value of the tables with the LaTeX.

    Args:
        tables: The transcribed tables.
        source: LaTeX without comments, see :func:`read_source`.

    Raises:
        InvalidArgumentError: The LaTeX lacks the label of a table, or cannot be parsed.
    """
    grids = {table.label: grid(source, table.label) for table in tables if table.label}
    if missing := [label for label, found in grids.items() if found is None]:
        msg = f"the LaTeX has no table with the label {', '.join(missing)}"
        raise InvalidArgumentError(msg)
    found = []
    for table in tables:
        ledger = _Ledger(table)
        printed = grids.get(table.label)
        if printed is None:
            _compare_text(ledger, source)
        else:
            _compare_grid(ledger, printed)
        found.append(Comparison(table, ledger.compared, tuple(ledger.found)))
    return found


def _compare_text(ledger: _Ledger, source: str) -> None:
    """Compare numbers of the running text: the one after each field's anchor."""
    text = " ".join(source.split())
    for row in ledger.table.rows:
        for name, value in row.values.items():
            anchor = re.escape(" ".join(ledger.table.fields[name].printed.split()))
            numbers = re.findall(anchor + r"\s*([\d.,]*\d)", text)
            agrees = len(numbers) == 1 and _same(value, read_number(numbers[0]))
            ledger.check(agrees, row.name, name, value, " and ".join(numbers))


def _compare_grid(ledger: _Ledger, printed: Grid) -> None:
    table = ledger.table
    labels = _line_labels(table, printed)
    columns = [key(heading) for heading in printed.headings]
    first = 1 + bool(table.axes.group)
    occurrences: Counter[tuple[str, ...]] = Counter()
    for row in table.rows:
        identity = (row.model, row.method, row.task)
        ordinal = occurrences[identity]
        occurrences[identity] += 1
        for name, value in row.values.items():
            what = table.fields[name]
            lines = _lines_of(table, row, what, labels)
            matches = _columns(table, row, what, columns, first)
            if ordinal >= len(lines) or not matches:
                lacking = "line" if ordinal >= len(lines) else "column"
                ledger.check(False, row.name, name, _show(value), f"no such {lacking}")
                continue
            # Rows of one name correspond to lines of one name in the same order.
            at = lines[ordinal]
            for j in matches:
                cells = printed.lines[at].cells
                cell = cells[j] if j < len(cells) else Cell("", None)
                ledger.seen.add((at, j))
                ledger.check(_same(value, cell.value), row.name, name, _show(value), cell.text)
                spread = row.spreads.get(name)
                if spread is not None or cell.spread is not None:
                    agrees = spread is not None and _same(spread, cell.spread)
                    ledger.check(agrees, row.name, f"spread of {name}", spread, cell.text)
        _compare_mark(ledger, row, printed, labels, ordinal)
    _compare_budgets(ledger, printed)
    for name, column, cell in _untranscribed(ledger, printed, first):
        ledger.check(False, f"line {name!r}", f"column {column!r}", None, cell.text)


def _compare_mark(
    ledger: _Ledger, row: Row, printed: Grid, labels: list[tuple[str, str]], ordinal: int
) -> None:
    """Compare whether the line of a method is marked as taken from prior work."""
    table = ledger.table
    if table.axes.line != ("method",):
        return
    lines = _lines_of(table, row, None, labels)
    if ordinal < len(lines):
        text = printed.lines[lines[ordinal]].cells[bool(table.axes.group)].text
        marked = any(mark in text for mark in _MARKS)
        ledger.check(marked == row.prior_work, row.name, "prior_work", row.prior_work, text)


def _compare_budgets(ledger: _Ledger, printed: Grid) -> None:
    """Compare the number of frequency components in a column's heading."""
    for what in ledger.table.fields.values():
        for heading in printed.headings:
            stated = re.search(r"=\s*([\d,]+)", heading)
            if key(heading) == key(what.printed) and (stated or what.frequency_components):
                budget = read_number(stated[1]) if stated else None
                agrees = _same(what.frequency_components or "", budget)
                ours = what.frequency_components
                ledger.check(agrees, heading, "frequency_components", ours, heading)


def _untranscribed(ledger: _Ledger, printed: Grid, first: int) -> Iterator[tuple[str, str, Cell]]:
    """Cells of the body that are not empty and belong to no row."""
    for i, line in enumerate(printed.lines):
        for j, cell in enumerate(line.cells[first:], first):
            if cell.value is not None and (i, j) not in ledger.seen:
                column = printed.headings[j] if j < len(printed.headings) else f"number {j + 1}"
                yield " ".join(c.text for c in line.cells[:first] if c.text), column, cell


def _line_labels(table: Table, printed: Grid) -> list[tuple[str, str]]:
    """Group and heading of every line, for matching.

    Groups are separated by the rules between blocks, not by the spans of multirow, which are wrong
    in the paper's tables.
    """
    if not table.axes.group:
        return [("", key(line.cells[0].text)) for line in printed.lines]
    heads: dict[int, str] = {}
    for line in printed.lines:
        if line.cells[0].text:
            heads.setdefault(line.block, key(line.cells[0].text))
    return [
        (heads.get(line.block, ""), key(line.cells[1].text) if len(line.cells) > 1 else "")
        for line in printed.lines
    ]


def _lines_of(
    table: Table, row: Row, what: Field | None, labels: list[tuple[str, str]]
) -> list[int]:
    """Indices of the printed lines with a row's group and heading, from the top."""
    wanted = tuple(_heading(table, row, what, axis) for axis in ("group", "line"))
    return [i for i, label in enumerate(labels) if label == wanted]


def _heading(table: Table, row: Row, what: Field | None, axis: str) -> str:
    """The printed heading of a row's group, line or column, for matching."""
    parts = []
    for role in getattr(table.axes, axis):
        if role == "field":
            parts.append(what.printed if what else "")
        else:
            name = getattr(row, role)
            parts.append(table.printed.get(name, name))
    return key(" ".join(parts))


def _columns(table: Table, row: Row, what: Field, headings: list[str], first: int) -> list[int]:
    """Indices of the columns of a value: all columns if the row holds for all of them."""
    roles = table.axes.column
    if "field" not in roles and all(getattr(row, role) == ANY for role in roles):
        return list(range(first, len(headings)))
    wanted = _heading(table, row, what, "column")
    return [j for j, heading in enumerate(headings) if heading == wanted]


def _same(ours: Value, printed: object) -> bool:
    """Whether a transcribed value equals the printed one in all digits."""
    if isinstance(ours, tuple):
        # A list of words is printed as one text, separated by commas.
        theirs = printed.split(",") if isinstance(printed, str) else printed
        if not isinstance(theirs, (tuple, list)) or len(theirs) != len(ours):
            return False
        return all(_same(a, b) for a, b in zip(ours, theirs, strict=True))
    if isinstance(ours, str):
        return isinstance(printed, str) and key(ours) == key(printed)
    return isinstance(printed, Decimal) and Decimal(str(ours)) == printed


def _show(value: Value) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
