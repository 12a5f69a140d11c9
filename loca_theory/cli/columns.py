"""The option that explains a command's columns, and the columns of printed tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from rich.console import Console
from rich.table import Table

from loca_theory.cli.output import console, text_width
from loca_theory.cli.signature import plain


@dataclass(frozen=True)
class Printed:
    """A column of a printed table that shows a field of a row.

    Attributes:
        field: Name of the field.
        form: Format of its values.
        is_complement: Whether 1 minus the value is shown.
    """

    field: str
    form: str = ""
    is_complement: bool = False

    def text(self, row: Any) -> str:
        """The text of a row's cell; "" if the row has no value."""
        value = getattr(row, self.field)
        if value is None:
            return ""
        return format(1 - value if self.is_complement else value, self.form)

    def meaning(self, row_type: type) -> str:
        """The meaning of the field, from the docstring of the row."""
        from loca_theory.sweeps.results import meanings

        start = f"1 − {self.field}. " if self.is_complement else ""
        return f"{start}{meanings(row_type)[self.field]}"


def print_pointer(out: Console, command: str) -> None:
    """Print below a table where its columns are explained."""
    text = f"What the columns mean: loca-theory {command} --columns"
    out.print(text, style="dim", width=text_width(out))


def print_columns(command: str, printed: Mapping[str, str]) -> None:
    """Print what the columns of a command's tables mean, those of the printed table last."""
    from loca_theory.sweeps.results import meanings

    out = console()
    package: Any = import_module("loca_theory")
    results = (getattr(package, public) for public in package.__all__)
    (result,) = [kind for kind in results if getattr(kind, "command", None) == command]
    for table, row_type in result.tables().items():
        _print(out, f"{table}, in files and --format json", meanings(row_type))
    if printed:
        _print(out, "The printed table", printed)


def _print(out: Console, title: str, texts: Mapping[str, str]) -> None:
    out.print(title, style="bold")
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, text in texts.items():
        table.add_row(f"  {name}", plain(text))
    out.print(table, width=text_width(out))
    out.print()
