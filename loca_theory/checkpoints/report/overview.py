"""Short tables of an analysis, as a shell and a notebook show them."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from loca_theory.checkpoints.form.forms import TYPES
from loca_theory.checkpoints.measure.settings import ANALYSED
from loca_theory.checkpoints.report.columns import CHANGE, MATRIX, STATISTIC_COLUMNS

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = (
    *("name", "tuned", "shape", "sigma", "relative_norm", "tv", "tv_p_value", "outlier_mass"),
    *("spikes", "rank_90"),
)


def overview_of(analysis: Any) -> pd.DataFrame:
    """One row per matrix: its main statistics, and some errors at the first rank."""
    import pandas as pd

    columns = {column.value: column for column in (*MATRIX, *CHANGE, *STATISTIC_COLUMNS)}
    names = [name for name in _COLUMNS if name != "tuned" or len(analysis.tuned) > 1]
    left_out = {method.name for method in ANALYSED} - {*TYPES}
    rows = [
        {name: columns[name].read(matrix) for name in names}
        | {
            f"{error.method}, r = {error.r}": error.error
            for error in analysis.errors_of[matrix.name, matrix.tuned]
            if error.r == analysis.first_rank and error.method not in left_out
        }
        for matrix in analysis.matrices
    ]
    return pd.DataFrame(rows, columns=None if rows else names)


def by_tuned(analysis: Any) -> pd.DataFrame:
    """Energy that each form retains of each fine-tune, at the first rank."""
    import pandas as pd

    rows = []
    for group in analysis.summary.by_tuned:
        rows.append(row := {"fine-tune": group.name, "matrices": group.matrices})
        for key, error in group.by_rank.get(analysis.first_rank, {}).items():
            if key in TYPES:
                row[f"{key} retains"] = f"{1 - error.error:.1%}"
    return pd.DataFrame(rows)


def html_of(analysis: Any) -> str:
    """Verdict and overview; for a single matrix, all its statistics in one column."""
    if len(analysis.matrices) == 1:
        errors = {f"{error.method}, r = {error.r}": error.error for error in analysis.errors}
        guarded = [column for column in STATISTIC_COLUMNS if column.guard]
        values = {str(column.value): column.read(analysis.matrices[0]) for column in guarded}
        table = analysis.to_frame().assign(**values, **errors).T.to_html(header=False, border=0)
    else:
        frame = overview_of(analysis)
        table = frame.to_html(max_rows=20, show_dimensions=True, border=0, index=False)
    if len(analysis.tuned) > 1:
        table = by_tuned(analysis).to_html(max_rows=20, border=0, index=False) + table
    return f"<p>{escape(analysis.verdict)}</p>{table}"
