"""Data and scripts of the interactive pictures of an analysis's page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from loca_theory.expressivity import Budget
from loca_theory.expressivity.limits import coefficient_fraction
from loca_theory.plotting.columns import Column
from loca_theory.plotting.error_columns import identity

if TYPE_CHECKING:
    from loca_theory.checkpoints import Analysis
    from loca_theory.checkpoints.rows import Matrix

_LINE_POINTS = 120


def library() -> str:
    """The source of the plotting library, BokehJS, which the page embeds."""
    # Imported here, because only pages of analyses need it.
    from bokeh.resources import Resources

    return "\n".join(Resources(mode="inline", components=["bokeh", "bokeh-api"]).js_raw)


def picture_data(result: Analysis, columns: Sequence[Column]) -> dict[str, Any]:
    """What the page's script draws, as plain data.

    Args:
        result: The analysis.
        columns: Columns of the table with one row per matrix, in its order.
    """
    rows = result.matrices
    ranks = sorted({error.r for error in result.errors})
    spectra = {identity(one): one for one in result.spectra}
    fractions = _coefficient_fractions(result, ranks)
    return {
        "columns": [
            {
                "title": column.title,
                "about": column.explanation,
                "group": column.group,
                "scale": column.scale.value,
                "r": column.r,
                "values": _numbers(column, rows),
            }
            for column in columns
        ],
        "rows": [
            {"name": row.name, "tuned": row.tuned, "kind": row.kind, "layer": row.layer,
             "shape": row.shape}
            for row in rows
        ],
        "ranks": ranks,
        "coefficients": {str(r): found for r, found in fractions.items()},
        "line": _line(one for found in fractions.values() for one in found if one is not None),
        "spectra": [_spectrum(spectra.get(identity(row))) for row in rows],
    }  # fmt: skip


def _numbers(column: Column, rows: Sequence[Matrix]) -> list[float | None] | None:
    """The values of a column of numbers; None for one of texts."""
    found = [column.number(row) for row in rows]
    return found if any(value is not None for value in found) else None


def _coefficient_fractions(result: Analysis, ranks: Iterable[int]) -> dict[int, list[float | None]]:
    """Fraction of all coefficients that each budget pays for; None if it exceeds the matrix."""
    accounting = result.manifest["grid"]["accounting"]
    # A matrix has errors at a rank if and only if the budget fits it.
    fitting = {(*identity(error), error.r) for error in result.errors}

    def fraction(row: Matrix, r: int) -> float | None:
        if (*identity(row), r) not in fitting:
            return None
        p, q = row.shape
        return float(f"{Budget(p, q, r, accounting).chosen_coefficients / (p * q):.6g}")

    return {r: [fraction(row, r) for row in result.matrices] for r in ranks}


def _line(fractions: Iterable[float]) -> dict[str, list[float]]:
    """The height of the map at which low rank and the best coefficients retain the same."""
    found = list(fractions)
    if not found:
        return {"x": [], "y": []}
    x = np.geomspace(min(found) / 4, min(4 * max(found), 1.0), _LINE_POINTS)
    heights = [coefficient_fraction(float(one)) for one in x]
    return {"x": [float(f"{one:.5g}") for one in x], "y": [float(f"{one:.5g}") for one in heights]}


def _spectrum(found: Any) -> dict[str, Any] | None:
    if found is None:
        return None
    plain = {key: value for key, value in asdict(found).items() if key not in ("name", "tuned")}
    return plain | {"leading": [float(f"{one:.4g}") for one in found.leading]}
