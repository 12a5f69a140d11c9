"""The table of the page that has several fine-tunes below each other."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from loca_theory.checkpoints.report.columns import Column

if TYPE_CHECKING:
    from loca_theory.checkpoints import Analysis
    from loca_theory.checkpoints.report.summary import Totals

_FINE_TUNE = (
    Column("fine-tune", "The fine-tune.", lambda row: row.totals.name),
    Column("r", "LoRA's rank, which sets the budget.", "r"),
    Column("matrices", "Number of its matrices.", lambda row: row.totals.matrices),
    Column(
        "‖ΔW‖/‖W₀‖",
        "Relative size of the change, in the median of its matrices.",
        lambda row: row.totals.median_relative_norm,
        ".3g",
    ),
    Column(
        "rank 90%",
        "Smallest rank that retains 90% of the energy, in the median of its matrices.",
        lambda row: row.totals.median_rank_90,
        ".0f",
    ),
)


class FineTune(NamedTuple):
    """A row of the table of fine-tunes: its totals, and a rank."""

    totals: Totals
    r: int


def fine_tune_rows(result: Analysis) -> tuple[list[FineTune], list[Column]]:
    """The rows and columns of the table of fine-tunes; without rows if there is only one."""
    totals = result.summary.by_tuned if len(result.summary.by_tuned) > 1 else ()
    ranks = sorted({error.r for error in result.errors})
    rows = [FineTune(total, r) for r in ranks for total in totals]
    methods = dict.fromkeys(error.method for error in result.errors)
    retained = [
        Column(
            name,
            f"Energy of all its matrices that {name} retains.",
            partial(_retained, name),
            ".1%",
        )
        for name in methods
    ]
    return rows, [*_FINE_TUNE, *retained]


def _retained(method: str, row: FineTune) -> float | None:
    errors = (error for error in row.totals.errors if (error.method, error.r) == (method, row.r))
    return next((1 - error.error for error in errors), None)
