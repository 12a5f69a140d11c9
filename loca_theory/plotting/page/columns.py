"""A column of a page's table: title, what it is about, value and text of a cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

MISSING = "none"
"""Text of a cell without a value."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title: Heading; columns that differ only by the rank have the same.
        about: One line that says what the values are.
        value: Name of the row's field, or function of the row: a number, a text, or None.
        form: Format of numbers, or a function that makes the text of a row's cell; by default a
            float has four digits.
        group: Heading of the columns that belong together.
        scale: Colours on the heat map: ``signed`` if the middle colour stands for 0, ``wide`` for
            powers of ten if the values differ by that much.
        r: The rank whose budget the values belong to; None if they belong to no budget.
    """

    title: str
    about: str
    value: str | Callable[[Any], Any]
    form: str | Callable[[Any], str] = ""
    group: str = ""
    scale: Literal["plain", "signed", "wide"] = "plain"
    r: int | None = None

    @property
    def unit(self) -> str:
        """The unit of the numbers: per cent, or none."""
        return "%" if isinstance(self.form, str) and self.form.endswith("%") else ""

    @property
    def heading(self) -> str:
        """The title with the rank, which no other column of the table has."""
        return self.title if self.r is None else f"{self.title}, r = {self.r}"

    def read(self, row: Any) -> Any:
        """The value of a row."""
        return getattr(row, self.value) if isinstance(self.value, str) else self.value(row)

    def text(self, row: Any) -> str:
        """The text of a row's cell."""
        if callable(self.form):
            return self.form(row)
        value = self.read(row)
        if value is None or value != value:
            return MISSING
        return format(value, self.form or (".4g" if isinstance(value, float) else ""))

    def number(self, row: Any) -> float | None:
        """The value of a row in its unit, to six digits; None if it is not a finite number."""
        value = self.read(row)
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        scale = 100 if self.unit else 1
        return float(f"{scale * value:.6g}") if is_number and math.isfinite(value) else None


def with_values(columns: Iterable[Column], rows: Sequence[Any]) -> list[Column]:
    """The columns that have a value in some row."""
    return [one for one in columns if any(one.read(row) not in (None, "") for row in rows)]
