"""The page of an analysis of checkpoints: its tables, and the data of its interactive pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from loca_theory.checkpoints.report.column import Column, with_values
from loca_theory.expressivity.limits import coefficient_fraction
from loca_theory.plotting.page import tables
from loca_theory.plotting.page.fine_tunes import fine_tune_rows
from loca_theory.plotting.page.templates import render

if TYPE_CHECKING:
    from loca_theory.checkpoints import Analysis
    from loca_theory.checkpoints.measure.figure_data import EigenvalueHistogram
    from loca_theory.checkpoints.measure.rows import Matrix

_LINE_POINTS = 120
# Fields of a matrix that the script gets besides its columns, and of a column besides its values.
_OF_A_ROW = ("name", "tuned", "kind", "layer", "shape")
_OF_A_COLUMN = ("title", "about", "group", "unit", "scale", "r")


def analysis_page(result: Analysis) -> str:
    """The source of the page of an analysis."""
    count, means = len(result.matrices), result.summary.all.errors
    columns, grid = tables.matrix_columns(result), result.manifest["grid"]
    budget = f"the budget of LoRA with r = {result.first_rank}" if result.errors else ""
    return render(
        "analysis.html.j2",
        title=result.message.removesuffix("."),
        lead=" → ".join(filter(None, (grid["base"], ", ".join(map(str, grid["finetuned"]))))),
        warnings=dict.fromkeys(filter(None, (result.warning, *result.warnings))),
        findings=result.findings,
        config=result.config_source,
        budget=f"{result.total} split among the layers" if result.total else budget,
        accounting=result.budget,
        total=result.total,
        tuned=fine_tune_rows(result),
        matrices=(result.matrices, columns),
        means=_table(means, tables.MEAN),
        comparisons=_table(result.comparisons, tables.COMPARISON),
        allocation=_table(result.allocation, tables.ALLOCATION),
        skipped=_table(result.skipped, tables.SKIPPED),
        data=picture_data(result, columns) if count else None,
        library=_library() if count else "",
        manifest=result.manifest,
    )


def _table(rows: Sequence[Any], columns: Iterable[Column]) -> tuple[Sequence[Any], list[Column]]:
    """Rows of a table, and the columns that have a value in some of them."""
    return rows, with_values(columns, rows)


def _library() -> str:
    """The source of the plotting library, BokehJS, which the page embeds."""
    # Imported here, because only pages of analyses need it.
    from bokeh.resources import Resources

    return "\n".join(Resources(mode="inline", components=["bokeh", "bokeh-api"]).js_raw)


def picture_data(result: Analysis, columns: Sequence[Column]) -> dict[str, Any]:
    """The plain data that the page's script draws; ``columns`` are those of every matrix."""
    rows = result.matrices
    ranks = sorted({error.r for error in result.errors})
    spectra = {tables.matrix_identity(spectrum): _spectrum(spectrum) for spectrum in result.spectra}
    fractions = _coefficient_fractions(result, ranks)
    return {
        "columns": [
            {key: getattr(column, key) for key in _OF_A_COLUMN} | {"values": _numbers(column, rows)}
            for column in columns
        ],
        "rows": [{key: getattr(row, key) for key in _OF_A_ROW} for row in rows],
        "ranks": ranks,
        "coefficients": {str(r): of_rank for r, of_rank in fractions.items()},
        "line": _line([x for of_rank in fractions.values() for x in of_rank if x is not None]),
        "spectra": [spectra.get(tables.matrix_identity(row)) for row in rows],
    }


def _numbers(column: Column, rows: Sequence[Matrix]) -> list[float | None] | None:
    """The values of a column of numbers; None for one of texts."""
    numbers = [column.number(row) for row in rows]
    return numbers if any(value is not None for value in numbers) else None


def _coefficient_fractions(result: Analysis, ranks: Iterable[int]) -> dict[int, list[float | None]]:
    """Fraction of all coefficients that each budget pays for; None if it exceeds the matrix."""
    shapes = {tables.matrix_identity(row): row.shape for row in result.matrices}
    by_matrix = {}
    # A matrix has errors at a rank if and only if the budget fits it.
    for error in result.errors:
        key = tables.matrix_identity(error)
        fraction = result.coefficients_paid(shapes[key], error.r)
        by_matrix[error.r, key] = float(f"{fraction:.6g}")
    return {r: [by_matrix.get((r, key)) for key in shapes] for r in ranks}


def _line(fractions: Sequence[float]) -> dict[str, list[float]]:
    """The height of the map at which low rank and the best coefficients retain the same."""
    if not fractions:
        return {"x": [], "y": []}
    x = np.geomspace(min(fractions) / 4, min(4 * max(fractions), 1.0), _LINE_POINTS)
    heights = [coefficient_fraction(float(fraction)) for fraction in x]
    return {"x": [float(f"{a:.5g}") for a in x], "y": [float(f"{y:.5g}") for y in heights]}


def _spectrum(histogram: EigenvalueHistogram) -> dict[str, Any]:
    plain = {key: value for key, value in asdict(histogram).items() if key not in ("name", "tuned")}
    return plain | {"leading": [float(f"{number:.4g}") for number in histogram.leading]}
