"""Columns of the tables of an analysis's page: title, explanation, value and text of a cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from numbers import Real
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loca_theory.checkpoints import Analysis
    from loca_theory.checkpoints.rows import MatrixError

MISSING = "none"
"""Text of a cell without a value."""


class Scale(Enum):
    """Colours of a column's values on the heat map."""

    PLAIN = "plain"
    SIGNED = "signed"  # the middle colour stands for 0
    WIDE = "wide"  # by powers of ten if the values differ by that much


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title: Heading.
        explanation: One line that says what the values are.
        value: Function that returns the value for a row: a number, a text, or None.
        form: Format of numbers, or a function that makes the text of a row's cell.
        group: Heading of the columns that belong together.
        scale: Colours on the heat map.
        r: The rank whose budget the values belong to; None if they belong to no budget.
    """

    title: str
    explanation: str
    value: Callable[[Any], Any]
    form: str | Callable[[Any], str] = ""
    group: str = ""
    scale: Scale = Scale.PLAIN
    r: int | None = None

    def text(self, row: Any) -> str:
        """The text of a row's cell."""
        if callable(self.form):
            return self.form(row)
        value = self.value(row)
        if value is None or value != value:
            return MISSING
        return format(value, self.form) if self.form else str(value)

    def number(self, row: Any) -> float | None:
        """The value of a row to six digits; None if it is not a finite number."""
        value = self.value(row)
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        return float(f"{value:.6g}") if is_number and math.isfinite(value) else None


def matrix_columns(result: Analysis) -> list[Column]:
    """The columns of the table with one row per matrix.

    A statistic that the rows do not have, or that is missing for every matrix, has no column.
    """
    statistics = _present(_STATISTICS, result.matrices)
    errors = _errors(result)
    first = [column for column in statistics if column.group in (_NAME, _SIZE)]
    rest = [column for column in statistics if column not in first]
    return [
        *first,
        *(column for column in errors if column.group == _ERRORS),
        *rest,
        *(column for column in errors if column.group == _WORTH),
        *_present(_REMARKS, result.matrices),
    ]


def mean_error_columns() -> list[Column]:
    """The columns of the table with one row per rank and method."""
    return list(_MEAN)


def comparison_columns(rows: Sequence[Any]) -> list[Column]:
    """The columns of the table that compares the fine-tunes of one base."""
    return _present(_COMPARISON, rows)


def allocation_columns(rows: Sequence[Any]) -> list[Column]:
    """The columns of the table with the budget of every matrix."""
    return _present(_ALLOCATION, rows)


def skipped_columns(rows: Sequence[Any]) -> list[Column]:
    """The columns of the table of tensors that were left out."""
    return _present(_SKIPPED, rows)


def identity(row: Any) -> tuple[str, str]:
    """What tells a matrix from the others: its fine-tune ("" if that has no name) and its name."""
    return getattr(row, "tuned", None) or "", row.name


def _present(known: Mapping[str, Column], rows: Sequence[Any]) -> list[Column]:
    return [
        column
        for key, column in known.items()
        if any(getattr(row, key, None) not in (None, "") for row in rows)
    ]


def _errors(result: Analysis) -> list[Column]:
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
    columns = []
    for r in sorted({error.r for error in result.errors}):
        columns.append(_best(found, r, methods))
        columns += [_error(found, r, name) for name in methods]
        if "R" in methods:
            columns.append(_shuffled(found, r))
        columns += [_worth(found, r, name) for name in worth]
    return columns


_Errors = Mapping[tuple[str, str], Mapping[tuple[int, str], "MatrixError"]]
_ERRORS, _WORTH = "Error of each method", "What the basis is worth"


def _find(found: _Errors, row: Any, r: int, method: str) -> MatrixError | None:
    return found.get(identity(row), {}).get((r, method))


def _best(found: _Errors, r: int, methods: Iterable[str]) -> Column:
    def best(row: Any) -> str:
        errors = {name: one.error for name in methods if (one := _find(found, row, r, name))}
        least = min(errors.values(), default=None)
        return ", ".join(name for name, error in errors.items() if error == least) or MISSING

    return Column(
        f"best, r = {r}", f"Method with the smallest error at the budget of r = {r}.",
        best, group=_ERRORS, r=r,
    )  # fmt: skip


def _error(found: _Errors, r: int, method: str) -> Column:
    def value(row: Any) -> float | None:
        one = _find(found, row, r, method)
        return None if one is None else one.error

    explanation = f"Relative squared error of {method} at the budget of r = {r}: the fraction of "
    explanation += "the energy that it cannot retain."
    return Column(f"{method}, r = {r}", explanation, value, ".3f", _ERRORS, r=r)


def _shuffled(found: _Errors, r: int) -> Column:
    def value(row: Any) -> float | None:
        one = _find(found, row, r, "R")
        return None if one is None else one.shuffled_error

    explanation = f"Error of LoRA (R) at r = {r} on the same entries in random order; much above R "
    explanation += "if the entries depend on each other."
    return Column(f"R shuffled, r = {r}", explanation, value, ".3f", _ERRORS, r=r)


def _worth(found: _Errors, r: int, method: str) -> Column:
    def value(row: Any) -> float | None:
        one = _find(found, row, r, method)
        if one is None or one.spectral_error is None:
            return None
        return one.spectral_error - one.error

    explanation = f"What the basis of {method} is worth at r = {r}: the error that the singular "
    explanation += "values alone predict, less the error. Above 0 the basis suits the matrix."
    return Column(
        f"{method} worth, r = {r}", explanation, value, "+z.3f", _WORTH, Scale.SIGNED, r
    )  # fmt: skip


def _of(
    key: str,
    title: str,
    explanation: str,
    form: str | Callable[[Any], str] = "",
    group: str = "",
    scale: Scale = Scale.PLAIN,
) -> tuple[str, Column]:
    """The column of one field of the rows."""
    return key, Column(
        title, explanation, lambda row: getattr(row, key, None), form, group, scale
    )  # fmt: skip


def _interval(row: Any) -> str:
    return f"{row.tv:.4f} ({row.tv_low:.4f}–{row.tv_high:.4f})"


_NAME, _SIZE, _ENTRIES, _SPECTRUM, _SUBSPACES = (
    "Kind and shape", "Size of the change", "Entries", "Spectrum", "Directions",
)  # fmt: skip
_STATISTICS = dict(
    [
        _of("name", "name", "Name of the weight in the base.", group=_NAME),
        _of("tuned", "fine-tune", "The fine-tune that changed it.", group=_NAME),
        _of("kind", "kind", "What the matrix does, from its name.", group=_NAME),
        _of("layer", "layer", "Number of the layer, from the name.", group=_NAME),
        _of("shape", "shape", "Rows × columns.", lambda row: "×".join(map(str, row.shape)), _NAME),
        _of("dtype", "dtype", "Element type in the file.", group=_NAME),
        _of(
            "relative_norm", "‖ΔW‖/‖W₀‖",
            "Frobenius norm of the change, relative to that of the base's weight.",
            ".3g", _SIZE, Scale.WIDE,
        ),
        _of("sigma", "σ", "Standard deviation of the entries of the change.", ".3g", _SIZE,
            Scale.WIDE),
        _of("energy", "energy", "Sum of the squared entries of the change.", ".3g", _SIZE,
            Scale.WIDE),
        _of("zero_fraction", "zeros",
            "Fraction of the entries that did not change at all; large if weights of 16 bits were "
            "rounded.", ".1%", _ENTRIES),
        _of("excess_kurtosis", "kurtosis",
            "Excess kurtosis of the entries: 0 for a normal law, above 0 for heavier tails.",
            "+.3f", _ENTRIES, Scale.SIGNED),
        _of("tv", "TV (95%)",
            "Total variation of the entries from a normal law (0 to 1), with its 95% interval.",
            _interval, _ENTRIES),
        _of("tv_p_value", "p",
            "p-value of the hypothesis that the entries are normal, up to the total variation "
            "epsilon; small if they are not.", ".3f", _ENTRIES),
        _of("tv_p_value_as_printed", "p (paper)",
            "p-value of the test that the paper prints; none if its loop does not end.",
            ".3f", _ENTRIES),
        _of("stable_rank", "stable rank",
            "Energy in units of the largest squared singular value: small if one direction "
            "dominates.", ".1f", _SPECTRUM, Scale.WIDE),
        _of("effective_rank", "effective rank",
            "Exponential of the entropy of the spectrum: the number of directions that matter.",
            ".1f", _SPECTRUM, Scale.WIDE),
        _of("rank_50", "rank 50%", "Smallest rank that retains 50% of the energy.", "d",
            _SPECTRUM, Scale.WIDE),
        _of("rank_90", "rank 90%", "Smallest rank that retains 90% of the energy.", "d",
            _SPECTRUM, Scale.WIDE),
        _of("rank_99", "rank 99%", "Smallest rank that retains 99% of the energy.", "d",
            _SPECTRUM, Scale.WIDE),
        _of("outlier_mass", "outside bulk",
            "Fraction of the energy outside the range of the Marchenko–Pastur law, which "
            "independent entries follow.", ".0%", _SPECTRUM),
        _of("spikes", "spikes",
            "Number of eigenvalues above that range: directions that are not noise.", "d",
            _SPECTRUM),
        _of("mp_sigma", "MP σ", "σ of the Marchenko–Pastur law that fits the bulk; none without "
            "a bulk.", ".3g", _SPECTRUM, Scale.WIDE),
        _of("mp_distance", "MP distance",
            "Kolmogorov distance of the spectrum from that law (0 to 1); above 0.1 there is no "
            "such bulk.", ".3f", _SPECTRUM),
        _of("tail_exponent", "tail α",
            "Exponent of the power law that fits the largest eigenvalues; small for a heavy tail.",
            ".2f", _SPECTRUM),
        _of("left_alignment", "left alignment",
            "Overlap of the leading left singular vectors of the change with the base's (0 to 1).",
            ".3f", _SUBSPACES),
        _of("right_alignment", "right alignment",
            "Overlap of the leading right singular vectors of the change with the base's (0 to 1).",
            ".3f", _SUBSPACES),
        _of("intruders", "intruders",
            "Leading singular vectors of the fine-tuned weight that resemble none of the base's.",
            "d", _SUBSPACES),
    ]
)  # fmt: skip
_REMARKS = dict([_of("note", "note", "Remarks, such as why a statistic is missing.", group=_NAME)])
_MEAN = (
    Column("method", "R is LoRA; F1 random, F2 and F3 best Fourier locations; D the best DCT "
           "coefficients; S the largest entries.", lambda one: one.method),
    Column("r", "LoRA's rank, which sets the budget.", lambda one: one.r),
    Column("error", "Of these increments.", lambda one: one.error, ".3f"),
    Column("independent", "Expected for independent normal entries.",
           lambda one: one.iid_error,
           lambda one: "not known" if one.iid_error is None else f"{one.iid_error:.3f}"),
    Column("shuffled", "Of the same entries in random order.", lambda one: one.shuffled_error,
           ".3f"),
    Column("same singular values", "Expected for the same singular values and random singular "
           "vectors: less the error, it is what the method's basis is worth.",
           lambda one: one.spectral_error,
           lambda one: "not known" if one.spectral_error is None else f"{one.spectral_error:.3f}"),
    Column("best on", "Number of matrices on which no method has a smaller error.",
           lambda one: one.best_on, lambda one: f"{one.best_on} of {one.matrices}"),
)  # fmt: skip
_COMPARISON = dict(
    [
        _of("name", "name", "Name of the weight in the base."),
        _of("first", "first", "One fine-tune."),
        _of("second", "second", "The other fine-tune."),
        _of("cosine", "cosine", "Cosine between the two changes: 1 if they point the same way, 0 "
            "if they have nothing in common.", "+.3f"),
        _of("sign_conflict", "sign conflicts",
            "Fraction of the entries that one increases and the other decreases.", ".1%"),
        _of("subspace_overlap", "subspace overlap",
            "Overlap of the leading singular subspaces of the two changes (0 to 1).", ".3f"),
    ]
)  # fmt: skip
_ALLOCATION = dict(
    [
        _of("name", "name", "Name of the weight in the base."),
        _of("tuned", "fine-tune", "The fine-tune."),
        _of("method", "method", "The adapter."),
        _of("size", "size", "Rank or number of components that this matrix gets.", "d"),
        _of("uniform", "uniform", "What it would get if all matrices got the same.", "d"),
        _of("numbers", "numbers", "Trainable numbers.", ",d"),
        _of("retained", "retained", "Fraction of this matrix's energy that is retained.", ".1%"),
        _of("uniform_retained", "uniform retained",
            "The same with the uniform split.", ".1%"),
    ]
)  # fmt: skip
_SKIPPED = dict(
    [
        _of("name", "name", "Name of the tensor."),
        _of("tuned", "fine-tune", "The fine-tune."),
        _of("reason", "note", "Why it was left out."),
    ]
)
