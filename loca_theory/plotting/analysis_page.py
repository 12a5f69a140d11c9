"""The page of an analysis of checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from loca_theory.plotting.analysis_columns import (
    allocation_columns,
    comparison_columns,
    matrix_columns,
    mean_error_columns,
    skipped_columns,
)
from loca_theory.plotting.columns import Column
from loca_theory.plotting.interactive import library, picture_data
from loca_theory.plotting.templates import PageTable, render

if TYPE_CHECKING:
    from loca_theory.checkpoints import Analysis

_ERRORS = (
    "Relative error over all matrices, weighted by energy. LoCA stands for the best DCT "
    "coefficients, and entries for the largest ones. If the error is below “same singular values”, "
    "the method's basis suits these increments."
)
_MATRICES = (
    "One row per matrix. Errors are fractions of the energy (the sum of the squared entries) that "
    "a method cannot retain: 0 is perfect, 1 retains nothing."
)


def analysis_page(result: Analysis) -> str:
    """The source of the page of an analysis."""
    count = len(result.matrices)
    columns = matrix_columns(result)
    tables = [
        _table("Between the fine-tunes", result.comparisons, comparison_columns,
               "How alike the changes of two fine-tunes of one base are, matrix by matrix."),
        _table("Size of every matrix's adapter", result.allocation, allocation_columns,
               f"{result.total}, split among the linear layers so that they retain the most "
               "energy, beside the same size for all."),
        _table("Skipped", result.skipped, skipped_columns, "Tensors that were left out, and why."),
    ]  # fmt: skip
    return render(
        "analysis.html.j2",
        title=f"Increments of {count} " + ("matrix" if count == 1 else "matrices"),
        lead=_sources(result),
        warnings=result.warnings,
        verdict=result.verdict.split("\n\n"),
        config=result.config,
        means=_means(result),
        matrices=PageTable(
            "Every matrix",
            {column.heading: column.explanation for column in columns},
            [[column.text(row) for column in columns] for row in result.matrices],
            _MATRICES,
            about={column.title: column.explanation for column in columns},
        ),
        tables=[table for table in tables if table.rows],
        data=picture_data(result, columns) if count else None,
        library=library() if count else "",
        manifest=result.manifest,
    )


def _sources(result: Analysis) -> str:
    grid = result.manifest["grid"]
    return " → ".join(filter(None, (grid["base"], ", ".join(map(str, grid["finetuned"])))))


def _means(result: Analysis) -> PageTable:
    means = result.summary.all.errors
    found = _table("Reconstruction error of each method", means, lambda _: mean_error_columns())
    return PageTable(
        found.title, found.columns, found.rows, _ERRORS, tuple(one.r for one in means)
    )  # fmt: skip


def _table(title: str, rows: Sequence[Any], columns: Any, lead: str = "") -> PageTable:
    found: Sequence[Column] = columns(rows)
    return PageTable(
        title,
        {column.title: column.explanation for column in found},
        [[column.text(row) for column in found] for row in rows],
        lead,
    )
