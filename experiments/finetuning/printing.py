"""Print tables on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
import pandas as pd

_PERCENT = ["mean", "low", "high", "difference", "difference_low", "difference_high"]


def print_table(
    title: str,
    left: Sequence[str],
    right: Sequence[str],
    rows: Iterable[Sequence[Any]],
    note: str = "",
) -> None:
    """Print a table whose ``left`` columns are its index; print nothing if there are no rows."""
    table = pd.DataFrame(list(rows), columns=[*left, *right])
    if len(table):
        table = table.set_index([*left]) if left else table
        shown = table.to_string(
            index=bool(left), na_rep="–", float_format="{:.3g}".format, sparsify=False
        )
        click.echo("\n".join(("", title, shown, *([note] if note else []))))


def print_summary(
    lines: Sequence[Mapping[str, Any]], *, title: str, columns: Sequence[str], note: str = ""
) -> None:
    """Print means with intervals, and differences from the reference if the lines have them."""
    table = pd.DataFrame(lines)
    percent = [name for name in _PERCENT if name in table]
    table[percent] = 100 * table[percent].astype(float)
    right = ["trained", *percent, "p_value", "seeds", "diverged"]
    right = [name for name in right if name in table]
    rows = table[[*columns, *right]].itertuples(index=False)
    seeds = "intervals are over seeds: the test set and the pretrained model are always the same"
    note = f"{note}\n{seeds}" if note else seeds
    print_table(f"{title}, in percent", columns, right, rows, note)
