"""The option that explains a command's columns, and the columns of printed tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from rich.console import Console
from rich.table import Table

from loca_theory.checkpoints.report.column import Column
from loca_theory.cli.output import console, text_width
from loca_theory.cli.signature import plain

printed = partial(Column, missing="")
"""A column of a printed table that shows a field of a row, or nothing."""


def meanings_of(columns: Iterable[Column], row_type: type) -> dict[str, str]:
    """The meaning of each column by its title, from the docstring of the row."""
    from loca_theory.sweeps.results import meanings

    fields = meanings(row_type)
    texts = {column.title: fields[str(column.value)] for column in columns}
    complements = {c.title: f"1 − {c.value}. {texts[c.title]}" for c in columns if c.is_complement}
    return texts | complements


def print_pointer(out: Console, command: str) -> None:
    """Print below a table where its columns are explained."""
    text = f"What the columns mean: loca-theory {command} --columns"
    out.print(text, style="dim", width=text_width(out))


def print_columns(command: str, further: Mapping[str, str]) -> None:
    """Print what the columns of a command's tables mean, those of the printed table first."""
    from loca_theory.sweeps.results import meanings

    out = console()
    package: Any = import_module("loca_theory")
    results = (getattr(package, public) for public in package.__all__)
    (result,) = [kind for kind in results if getattr(kind, "command", None) == command]
    if further:
        _print(out, "The printed table", further)
    for table, row_type in result.tables().items():
        _print(out, f"{table}, in files and --format json", meanings(row_type))


def _print(out: Console, title: str, texts: Mapping[str, str]) -> None:
    out.print(title, style="bold")
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, text in texts.items():
        table.add_row(f"  {name}", plain(text))
    out.print(table, width=text_width(out))
    out.print()
