"""A column of a table: title, what it is about, value and text of a cell, and when it has none."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

MISSING = "none"
"""Text of a cell without a value."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title: Heading; columns that differ only by the rank have the same.
        value: Name of the row's field, or function of the row: a number, a text, or None.
        form: Format of numbers, by default with four digits for a float; or, with braces, a text
            with fields of the row.
        about: One line that says what the values are; "" if the docstring of the row says it.
        group: Heading of the columns that belong together.
        scale: Colours on the heat map: ``signed`` if the middle colour stands for 0, ``wide`` for
            powers of ten if the values differ by that much.
        r: The rank whose budget the values belong to; None if they belong to no budget.
        guard: Name of the row's field that says whether the value says anything; if not, the row
            has none. "" for every row.
        is_complement: Whether 1 minus the field is the value.
        least: Smaller values are not told apart from this one.
        missing: Text of a cell without a value.
    """

    title: str
    value: str | Callable[[Any], Any]
    form: str = ""
    about: str = ""
    group: str = ""
    scale: Literal["plain", "signed", "wide"] = "plain"
    r: int | None = None
    guard: str = ""
    is_complement: bool = False
    least: float = -math.inf
    missing: str = MISSING

    @property
    def unit(self) -> str:
        """The unit of the numbers: % or "" if they have no unit."""
        return "%" if self.form.endswith("%") else ""

    @property
    def heading(self) -> str:
        """The title with the rank, which no other column of the table has."""
        return self.title if self.r is None else f"{self.title}, r = {self.r}"

    def read(self, row: Any) -> Any:
        """The value of a row."""
        if self.guard and not getattr(row, self.guard):
            return None
        read = attrgetter(self.value) if isinstance(self.value, str) else self.value
        value = read(row)
        return 1 - value if self.is_complement and value is not None else value

    def text(self, row: Any) -> str:
        """The text of a row's cell."""
        if "{" in self.form:
            return self.form.format_map(vars(row))
        value = self.read(row)
        if value is None or value != value:
            return self.missing
        if isinstance(value, tuple):
            return "×".join(map(str, value))
        if isinstance(value, float) and value <= self.least:
            return f"≤ {self.least}"
        return format(value, self.form or (".4g" if isinstance(value, float) else ""))

    def number(self, row: Any) -> float | None:
        """The value of a row in its unit, to six digits; None if it is not a finite number."""
        value = self.read(row)
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        scale = 100 if self.unit else 1
        return float(f"{scale * value:.6g}") if is_number and math.isfinite(value) else None


def read_columns(path: Path) -> dict[str, tuple[Column, ...]]:
    """The columns that a file describes, by the name of their table."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    return {name: tuple(Column(**column) for column in table) for name, table in tables.items()}


def with_values(columns: Iterable[Column], rows: Sequence[Any]) -> list[Column]:
    """The columns that have a value in some row."""
    return [column for column in columns if any(column.read(row) not in (None, "") for row in rows)]
