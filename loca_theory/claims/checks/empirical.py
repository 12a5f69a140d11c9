"""Claims on fine-tuning with adapters, measured from the stored tables of experiments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from loca_theory.claims.estimates import Estimate, Returned
from loca_theory.errors import ResourceError
from loca_theory.sweeps.results import find_tables

_DECIDED = ("verdict", "difference", "standard_error", "low", "high", "within", "fixed_low",
            "fixed_high", "kinds_low", "kinds_high", "margin", "measure", "tasks", "seeds",
            "pairs")  # fmt: skip


def load(
    results: Path | None, pattern: str, columns: Sequence[str], key: Sequence[str]
) -> pd.DataFrame | None:
    """Read all tables whose names match a pattern and which have some columns.

    A run that is in two tables counts once. If no table is found, the result is None.

    Args:
        results: Folder of the tables.
        pattern: Pattern of the tables' names.
        columns: Columns that a table needs.
        key: Columns that identify a run.

    Raises:
        ResourceError: a table cannot be read, or two tables disagree on a run.
    """
    found, names = [], []
    for path in find_tables(results, [pattern]):
        try:
            table = pd.read_parquet(path)
        except (OSError, ValueError) as error:
            msg = f"{path} cannot be read ({type(error).__name__}); delete it and make it again"
            raise ResourceError(msg) from error
        if set(columns) <= set(table.columns):
            found.append(table[list(columns)])
            names.append(str(path))
    if not found:
        return None
    rows = pd.concat(found, ignore_index=True)
    # Lists cannot be hashed, so rows are compared as text.
    rows = rows.loc[~rows.astype(str).duplicated()]
    if rows.duplicated(list(key)).any():
        run = rows[rows.duplicated(list(key))].iloc[0][list(key)]
        msg = f"{' and '.join(names)} disagree on the run {', '.join(map(str, run))}; "
        msg += "give a folder that has only one of them"
        raise ResourceError(msg)
    return rows


def designed(*, results: Path | None, table: str, comparison: str) -> Returned:
    """Verdict on a comparison that the design of the experiments defines.

    The number is the mean difference over tasks, in percentage points of accuracy or in per cent of
    the loss. Its bounds have the error rate of the comparison's family.

    Args:
        table: Pattern of the names of the table that ``python -m experiments.design --out`` writes.
        comparison: Name of the comparison.

    Source: ``experiments/design.toml``.
    """
    rows = load(results, table, ("comparison", *_DECIDED), ("comparison",))
    mine = None if rows is None else rows[rows["comparison"] == comparison]
    if mine is None or mine.empty:
        return {}, f"There is no table {table}.parquet with {comparison}."
    row = mine.iloc[0]
    size = f"{row['tasks']} tasks × {row['seeds']} seeds"
    if pd.isna(row["verdict"]):
        return {}, f"Of {size}, {row['pairs']} pairs of runs are there."
    unit = "per cent of the loss" if row["measure"] == "loss" else "points"
    note = f"{size}; margin {row['margin']:g} {unit}; within {row['within']:.2g}; for these tasks "
    note += f"alone {row['fixed_low']:+.2f} to {row['fixed_high']:+.2f}"
    if pd.notna(row["kinds_low"]):
        note += f", for other kinds of tasks {row['kinds_low']:+.2f} to {row['kinds_high']:+.2f}"
    note += "."
    found = Estimate(
        float(row["difference"]),
        float(row["standard_error"]),
        int(row["pairs"]),
        bounds=(float(row["low"]), float(row["high"])),
    )
    return {f"mean difference in {unit}": found}, note, row["verdict"]


def speed(*, results: Path | None, table: str, rival: str) -> Returned:
    """Steps per second relative to LoRA's, the smallest over the models measured.

    The table has one measurement per model without a standard error, so the value counts as exact.

    Args:
        table: Pattern of the tables' names.
        rival: The form of LoCA.

    Source: the table complexity, and the sentence that times are closer than the orders.
    """
    rows = load(results, table, ("model", "rival", "of_lora"), ("model", "rival"))
    if rows is None:
        return {}, f"There is no table {table}.parquet."
    mine = rows.loc[rows["rival"] == rival, "of_lora"].dropna()
    if mine.empty:
        return {}, f"{table}.parquet has no {rival}."
    return mine.min(), f"Models measured: {len(mine)}."
