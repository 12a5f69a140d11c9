"""Claims on fine-tunes that others published, measured from stored tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from loca_theory.claims.checks.empirical import load
from loca_theory.claims.estimates import Returned

_KEY = ("study", "pair", "name", "r", "method", "accounting")


def advantage(
    *, results: Path | None, table: str, r: Sequence[int], first: str, second: str
) -> Returned:
    """Retained fraction of one form less that of another, mean over matrices, by study and rank.

    The means count as exact, because these are all matrices of the studies.

    Args:
        table: Pattern of the names of the tables, which ``experiments.published`` writes.
        r: LoRA's ranks, which set the budgets.
        first: A method.
        second: Another.
    """
    found = {
        where: float((one["retained", first] - one["retained", second]).mean())
        for where, one in _by_study(results, table, r)
    }
    return found or ({}, f"There is no table {table}.parquet.")


def predicted_winners(*, results: Path | None, table: str, r: Sequence[int]) -> Returned:
    """Fraction of the matrices on which the singular values alone name the better of R and D.

    Args:
        table: Pattern of the names of the tables, which ``experiments.published`` writes.
        r: LoRA's ranks, which set the budgets.
    """
    found = {}
    for where, one in _by_study(results, table, r):
        wins = [one[key, "D"] > one[key, "R"] for key in ("retained", "predicted")]
        found[where] = float((wins[0] == wins[1]).mean())
    return found or ({}, f"There is no table {table}.parquet.")


def basis_gain(*, results: Path | None, table: str, r: Sequence[int]) -> Returned:
    """What D retains beyond what the singular values predict, mean over matrices.

    Args:
        table: Pattern of the names of the tables, which ``experiments.published`` writes.
        r: LoRA's ranks, which set the budgets.
    """
    found = {
        where: float((one["retained", "D"] - one["predicted", "D"]).mean())
        for where, one in _by_study(results, table, r)
    }
    return found or ({}, f"There is no table {table}.parquet.")


def _by_study(
    results: Path | None, table: str, ranks: Sequence[int]
) -> Iterator[tuple[str, pd.DataFrame]]:
    """A matrix per row, and (``retained`` or ``predicted``, method) per column."""
    rows = load(results, table, (*_KEY, "retained", "predicted"), _KEY)
    if rows is None:
        return
    rows = rows[(rows["accounting"] == "paper") & rows["r"].isin(ranks)]
    for (study, r), mine in rows.groupby(["study", "r"]):
        values = ["retained", "predicted"]
        wide = mine.pivot_table(index=["pair", "name"], columns="method", values=values)
        yield f"{study}, r = {r}", wide.astype(float)
