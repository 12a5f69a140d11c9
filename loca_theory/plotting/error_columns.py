"""Columns of the table of matrices that other tables fill: errors and allocated sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from loca_theory.expressivity.methods.names import display_name
from loca_theory.plotting.columns import MISSING, Column, Scale
from loca_theory.plotting.lines import titles_of

if TYPE_CHECKING:
    from loca_theory.checkpoints import Analysis
    from loca_theory.checkpoints.rows import MatrixError

ERRORS, WORTH, SIZES = "Error of each method", "What the basis is worth", "Allocated sizes"
"""Groups of these columns."""


def identity(row: Any) -> tuple[str, str]:
    """What tells a matrix from the others: its fine-tune and its name."""
    return row.tuned, row.name


def error_columns(result: Analysis) -> list[Column]:
    """For each rank: the error of every method, what its basis is worth, and the best method."""
    found: dict[tuple[str, str], dict[tuple[int, str], MatrixError]] = {}
    for error in result.errors:
        found.setdefault(identity(error), {})[error.r, error.method] = error
    methods = list(dict.fromkeys(error.method for error in result.errors))
    worth = [
        name
        for name in methods
        # The singular values alone give LoRA's error, so its basis is worth nothing.
        if name != "R"
        and any(one.spectral_error is not None for one in result.errors if one.method == name)
    ]
    columns, titles = [], titles_of(result.manifest)
    for r in sorted({error.r for error in result.errors}):
        columns.append(_best(found, r, methods))
        columns += [_error(found, r, name, titles.get(name, name)) for name in methods]
        if "R" in methods:
            columns.append(_shuffled(found, r))
        columns += [_worth(found, r, name) for name in worth]
    return columns


_Errors = Mapping[tuple[str, str], Mapping[tuple[int, str], "MatrixError"]]


def _find(found: _Errors, row: Any, r: int, method: str) -> MatrixError | None:
    return found.get(identity(row), {}).get((r, method))


def _best(found: _Errors, r: int, methods: Iterable[str]) -> Column:
    def best(row: Any) -> str:
        errors = {name: one.error for name in methods if (one := _find(found, row, r, name))}
        least = min(errors.values(), default=None)
        winners = (display_name(name) for name, error in errors.items() if error == least)
        return ", ".join(winners) or MISSING

    return Column(
        "best", "Method with the smallest error at the budget of rank r.", best,
        group=ERRORS, r=r,
    )  # fmt: skip


def _error(found: _Errors, r: int, method: str, title: str) -> Column:
    def value(row: Any) -> float | None:
        one = _find(found, row, r, method)
        return None if one is None else one.error

    shown = display_name(method)
    what = shown if title == method else f"{shown} ({title})"
    explanation = f"Relative squared error of {what} at the budget of rank r: the fraction of the "
    explanation += "energy that it cannot retain."
    return Column(shown, explanation, value, ".3f", ERRORS, r=r)


def _shuffled(found: _Errors, r: int) -> Column:
    def value(row: Any) -> float | None:
        one = _find(found, row, r, "R")
        return None if one is None else one.shuffled_error

    explanation = "Error of LoRA on the same entries in random order; much above LoRA's error if "
    explanation += "the entries depend on each other."
    return Column("LoRA shuffled", explanation, value, ".3f", ERRORS, r=r)


def _worth(found: _Errors, r: int, method: str) -> Column:
    def value(row: Any) -> float | None:
        one = _find(found, row, r, method)
        if one is None or one.spectral_error is None:
            return None
        return one.spectral_error - one.error

    shown = display_name(method)
    explanation = f"What the basis of {shown} is worth: the error that the singular values alone "
    explanation += "predict, less the error. Above 0 the basis suits the matrix."
    return Column(f"{shown} worth", explanation, value, "+z.3f", WORTH, Scale.SIGNED, r)


def size_columns(result: Analysis) -> list[Column]:
    """For each method of the allocation: the size that each matrix gets."""
    found: dict[str, dict[tuple[str, str], int]] = {}
    for one in result.allocation:
        found.setdefault(one.method, {})[identity(one)] = one.size
    return [_size(method, sizes, result.total) for method, sizes in found.items()]


def _size(method: str, sizes: Mapping[tuple[str, str], int], total: str | None) -> Column:
    def value(row: Any) -> int | None:
        return sizes.get(identity(row))

    what = "LoRA's rank" if method == "R" else "Number of LoCA's coefficients"
    explanation = f"{what} if {total} are split among the linear layers."
    return Column(f"{display_name(method)} size", explanation, value, "d", SIZES, Scale.WIDE)
