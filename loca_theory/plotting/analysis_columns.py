"""The columns of each table of an analysis's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from loca_theory.expressivity.methods.names import display_name
from loca_theory.plotting.columns import Column, Scale
from loca_theory.plotting.columns import field_column as _of
from loca_theory.plotting.error_columns import ERRORS, WORTH, error_columns, size_columns

if TYPE_CHECKING:
    from loca_theory.checkpoints import Analysis


def matrix_columns(result: Analysis) -> list[Column]:
    """The columns of the table with one row per matrix.

    A statistic that is missing for every matrix has no column.
    """
    statistics = _present(_STATISTICS, result.matrices)
    if len({row.tuned for row in result.matrices}) == 1:
        statistics = [column for column in statistics if column.title != _TUNED]
    errors = error_columns(result)
    first = [column for column in statistics if column.group in (_NAME, _SIZE)]
    rest = [column for column in statistics if column not in first]
    return [
        *first,
        *(column for column in errors if column.group == ERRORS),
        *size_columns(result),
        *rest,
        *(column for column in errors if column.group == WORTH),
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


def _present(known: Mapping[str, Column], rows: Sequence[Any]) -> list[Column]:
    return [
        column
        for key, column in known.items()
        if any(getattr(row, key) not in (None, "") for row in rows)
    ]


def _interval(row: Any) -> str:
    return f"{row.tv:.4f} ({row.tv_low:.4f}–{row.tv_high:.4f})"


_NAME, _SIZE, _ENTRIES, _SPECTRUM, _SUBSPACES = (
    "Kind and shape", "Size of the change", "Entries", "Spectrum", "Directions",
)  # fmt: skip
_TUNED = "fine-tune"
_STATISTICS = dict(
    [
        _of("name", "name", "Name of the weight in the base.", group=_NAME),
        _of("tuned", _TUNED, "The fine-tune that changed it.", group=_NAME),
        _of("kind", "kind", "What the matrix does, from its name.", group=_NAME),
        _of("layer", "layer", "Number of the layer, from the name.", group=_NAME),
        _of("shape", "shape", "Rows × columns.", lambda row: "×".join(map(str, row.shape)), _NAME),
        _of("dtype", "dtype", "Element type in the file.", group=_NAME),
        _of(
            "relative_norm", "‖ΔW‖/‖W₀‖",
            "Frobenius norm of the change, relative to that of the base's weight.",
            ".3g", _SIZE, Scale.WIDE,
        ),
        _of("weights_cosine", "cos(W₀, W′)",
            "Cosine of the angle between the base's weight and the fine-tuned one: almost 1 for a "
            "fine-tune, below 0.5 if the two are unrelated.", ".3f", _SIZE),
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
            "Exponential of the entropy of the singular values: how many directions matter.",
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
            "Overlap of the leading left singular vectors of the change with the base's: 0 to 1.",
            ".3f", _SUBSPACES),
        _of("right_alignment", "right alignment",
            "Overlap of the leading right singular vectors of the change with the base's: 0 to 1.",
            ".3f", _SUBSPACES),
        _of("intruders", "intruders",
            "Leading left singular vectors of the fine-tuned weight that resemble none of the "
            "base's.", "d", _SUBSPACES),
        _of("subspace_error", "subspace error",
            "Bound of the energy that the computed singular vectors miss, as a fraction.", ".1e",
            _SUBSPACES, Scale.WIDE),
    ]
)  # fmt: skip
_REMARKS = dict([_of("note", "note", "Remarks, such as why a statistic is missing.", group=_NAME)])
_MEAN = (
    Column("method", "LoCA stands for the best DCT coefficients, and "
           "entries for the largest ones.", lambda one: display_name(one.method)),
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
        _of("kind", "kind", "What the matrix does, from its name."),
        _of("layer", "layer", "Number of the layer, from the name."),
        _of("first", "first", "One fine-tune."),
        _of("second", "second", "The other fine-tune."),
        _of("cosine", "cosine", "Cosine of the angle between the two changes: 1 if they point the "
            "same way, 0 if they have nothing in common.", "+.3f"),
        _of("sign_conflict", "sign conflicts",
            "Fraction of the entries changed by both to which they give opposite signs; one half "
            "for unrelated changes.", ".1%"),
        _of("left_overlap", "left overlap",
            "Overlap of the leading left singular vectors of the two changes: 0 to 1.", ".3f"),
        _of("right_overlap", "right overlap",
            "Overlap of the leading right singular vectors of the two changes: 0 to 1.", ".3f"),
    ]
)  # fmt: skip
_ALLOCATION = dict(
    [
        _of("name", "name", "Name of the weight in the base."),
        _of("tuned", _TUNED, "The fine-tune."),
        ("method", Column("method", "LoRA, or LoCA with the best locations.",
                          lambda one: display_name(one.method))),
        _of("size", "size", "Rank, or number of coefficients.", "d"),
        _of("uniform", "uniform", "Largest size that the total pays for if all get the same.", "d"),
        _of("numbers", "numbers", "Trainable numbers of the allocated size.", ",d"),
        _of("energy", "energy", "Energy of the change, as a fraction of the whole fine-tune's.",
            ".1%"),
        _of("retained", "retained",
            "Fraction of the change's energy that the allocated size retains.", ".1%"),
        _of("uniform_retained", "uniform retained", "The same for the uniform size.", ".1%"),
        _of("equal_retained", "retained at the uniform cost",
            "Fraction of all energy that a split of what the uniform sizes cost retains.", ".1%"),
    ]
)  # fmt: skip
_SKIPPED = dict(
    [
        _of("name", "name", "Name of the tensor."),
        _of("tuned", _TUNED, "The fine-tune."),
        _of("reason", "note", "Why it was left out."),
    ]
)
