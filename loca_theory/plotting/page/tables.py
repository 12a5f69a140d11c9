"""The columns of each table of an analysis's page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loca_theory.checkpoints.form.forms import SPLIT
from loca_theory.checkpoints.report.column import MISSING, Column, read_columns, with_values
from loca_theory.checkpoints.report.columns import (
    CHANGE,
    MATRIX,
    SHUFFLED,
    STATISTIC_COLUMNS,
    WEIGHT,
)
from loca_theory.plotting.looks import titles_of

if TYPE_CHECKING:
    from loca_theory.checkpoints import Analysis
    from loca_theory.checkpoints.measure.rows import MatrixError

_RETAINED, _WORTH, _SIZES = "Energy retained", "What the basis is worth", "Allocated sizes"


def matrix_columns(result: Analysis) -> list[Column]:
    """The columns of the table with one row per matrix.

    A statistic that is missing for every matrix has no column.
    """
    rows, errors = result.matrices, _error_columns(result)
    needless = {"tuned"} if len({row.tuned for row in rows}) == 1 else set()
    return [
        *with_values([column for column in MATRIX if column.value not in needless], rows),
        *(column for column in errors if column.group == _RETAINED),
        *with_values((*_size_columns(result), *CHANGE, *STATISTIC_COLUMNS), rows),
        *(column for column in errors if column.group == _WORTH),
        *with_values(_REMARKS, rows),
    ]


def matrix_identity(row: Any) -> tuple[str, str]:
    """What tells a matrix from the others: its fine-tune and its name."""
    return row.tuned, row.name


_Errors = dict[tuple[str, str, int, str], "MatrixError"]


def _error_columns(result: Analysis) -> list[Column]:
    """For each rank: what every method retains, what its basis is worth, and the best method."""
    errors: _Errors = {(*matrix_identity(row), row.r, row.method): row for row in result.errors}
    methods = list(dict.fromkeys(error.method for error in result.errors))
    predicted = {error.method for error in result.errors if error.spectral_error is not None}
    titles = titles_of(result.manifest)
    columns = []
    for r in sorted({error.r for error in result.errors}):
        about = "Method that retains most at the budget of rank r."
        value = partial(_best, errors, methods, r)
        columns.append(Column("best", value, about=about, group=_RETAINED, r=r))
        for method in methods:
            title = titles.get(method, method)
            about = "Energy retained at the budget of rank r by "
            about += f"{title if title.startswith(method) else f'{method} ({title})'}."
            value = partial(_retained, errors, r, method, "error")
            columns.append(Column(method, value, ".1%", about, _RETAINED, r=r))
            # The singular values alone say what LoRA retains, so its basis is worth nothing.
            if method != "LoRA" and method in predicted:
                about = f"What the basis of {method} is worth: the energy retained, less what the "
                about += "singular values alone predict. Above 0 the basis suits the matrix."
                value = partial(_worth, errors, r, method)
                columns.append(
                    Column(f"{method} worth", value, "+z.1%", about, _WORTH, "signed", r)
                )
        if "LoRA" in methods:
            value = partial(_retained, errors, r, "LoRA", "shuffled_error")
            title, about = SHUFFLED
            columns.append(Column(title, value, ".1%", about, _RETAINED, r=r))
    return columns


def _retained(errors: _Errors, r: int, method: str, field: str, row: Any) -> float | None:
    error = getattr(errors.get((*matrix_identity(row), r, method)), field, None)
    return None if error is None else 1 - error


def _worth(errors: _Errors, r: int, method: str, row: Any) -> float | None:
    cell = errors.get((*matrix_identity(row), r, method))
    return cell.spectral_error - cell.error if cell and cell.spectral_error is not None else None


def _best(errors: _Errors, methods: Iterable[str], r: int, row: Any) -> str:
    keys = ((*matrix_identity(row), r, method) for method in methods)
    candidates = [errors[key] for key in keys if key in errors]
    smallest = min((error.error for error in candidates), default=None)
    return ", ".join(error.method for error in candidates if error.error == smallest) or MISSING


def _size_columns(result: Analysis) -> list[Column]:
    """The sizes of the methods that give each matrix its own, if a total is split."""
    sizes = {(size.method, *matrix_identity(size)): size.size for size in result.allocation}
    return [
        Column(
            f"{form.title} size",
            partial(_size, sizes, form.method),
            "d",
            f"{form.unit_name.capitalize()} of {form.title} if {result.total} are split among the "
            "layers.",
            _SIZES,
            "wide",
        )
        for form in SPLIT
    ]


def _size(sizes: Mapping[tuple[str, ...], int], method: str, row: Any) -> int | None:
    return sizes.get((method, *matrix_identity(row)))


_TABLES = read_columns(Path(__file__).with_name("columns.toml"))
_REMARKS = _TABLES["remarks"]
MEAN = _TABLES["mean"]
"""The columns of the table with one row per rank and method."""
COMPARISON = (*WEIGHT, *_TABLES["comparison"])
"""The columns of the table that compares the fine-tunes of one base."""
ALLOCATION = (WEIGHT[0], *_TABLES["allocation"])
"""The columns of the table with the budget of every matrix."""
SKIPPED = _TABLES["skipped"]
"""The columns of the table of tensors that were left out."""
FINE_TUNE = _TABLES["fine-tune"]
"""The columns of the table of fine-tunes, without what methods retain."""
