"""Rows of results: read from a stored table, and printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click
import pandas as pd

from loca_theory.sweeps.tables import is_stored, load_rows

Row = dict[str, Any]


def stored_rows(folder: Path, name: str) -> list[Row]:
    """The rows of a table; empty if it is not stored."""
    return load_rows(folder, name)[0].to_pylist() if is_stored(folder, name) else []


def in_words(row: Row) -> str:
    """A row as one line."""
    return ", ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in row.items()
    )


def show(title: str, table: pd.DataFrame) -> None:
    """Print a table below its title, unless it is empty."""
    if len(table):
        click.echo(f"\n{title}\n{table.to_string(float_format='{:.3f}'.format)}")


def print_table(
    title: str,
    left: Sequence[str],
    right: Sequence[str],
    rows: Iterable[Sequence[Any]],
    note: str = "",
) -> None:
    """Print a table whose ``left`` columns are its index; an empty table is not printed."""
    table = pd.DataFrame(list(rows), columns=[*left, *right])
    if len(table):
        table = table.set_index([*left]) if left else table
        shown = table.to_string(
            index=bool(left), na_rep="–", float_format="{:.3g}".format, sparsify=False
        )
        click.echo("\n".join(("", title, shown, *([note] if note else []))))
