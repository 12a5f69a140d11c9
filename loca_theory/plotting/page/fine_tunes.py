"""The table of the page that has several fine-tunes below each other."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from loca_theory.checkpoints.report.column import Column
from loca_theory.plotting.page.tables import FINE_TUNE

if TYPE_CHECKING:
    from loca_theory.checkpoints import Analysis
    from loca_theory.checkpoints.report.summary import Totals


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
            partial(_retained, name),
            ".1%",
            f"Energy of all its matrices that {name} retains.",
        )
        for name in methods
    ]
    return rows, [*FINE_TUNE, *retained]


def _retained(method: str, row: FineTune) -> float | None:
    errors = (error for error in row.totals.errors if (error.method, error.r) == (method, row.r))
    return next((1 - error.error for error in errors), None)
