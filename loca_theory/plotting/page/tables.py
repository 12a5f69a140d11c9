"""The columns of each table of an analysis's page."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from loca_theory.checkpoints.summary import follows_law
from loca_theory.expressivity.methods.names import display_name
from loca_theory.plotting.lines import titles_of
from loca_theory.plotting.page.columns import MISSING, Column, with_values

if TYPE_CHECKING:
    from loca_theory.checkpoints import Analysis
    from loca_theory.checkpoints.rows import MatrixError

_NAME, _SIZE, _ENTRIES, _SPECTRUM, _SUBSPACES = (
    "Kind and shape", "Size of the change", "Entries", "Spectrum", "Directions",
)  # fmt: skip
_RETAINED, _WORTH, _SIZES = "Energy retained", "What the basis is worth", "Allocated sizes"
_NOTES = "Remarks"
# So many random draws as the tests of normality make cannot tell smaller ones apart.
_LEAST_P_VALUE = 0.001


def matrix_columns(result: Analysis) -> list[Column]:
    """The columns of the table with one row per matrix.

    A statistic that is missing for every matrix has no column.
    """
    rows, errors = result.matrices, _error_columns(result)
    needless = {"tuned"} if len({row.tuned for row in rows}) == 1 else set()
    return [
        *with_values([column for column in _MATRIX if column.value not in needless], rows),
        *(column for column in errors if column.group == _RETAINED),
        *with_values((*_size_columns(result), *CHANGE, *STATISTICS), rows),
        *(column for column in errors if column.group == _WORTH),
        *with_values(_REMARKS, rows),
    ]


def identity(row: Any) -> tuple[str, str]:
    """What tells a matrix from the others: its fine-tune and its name."""
    return row.tuned, row.name


_Errors = dict[tuple[str, str, int, str], "MatrixError"]


def _error_columns(result: Analysis) -> list[Column]:
    """For each rank: what every method retains, what its basis is worth, and the best method."""
    found: _Errors = {(*identity(one), one.r, one.method): one for one in result.errors}
    methods = list(dict.fromkeys(error.method for error in result.errors))
    predicted = {error.method for error in result.errors if error.spectral_error is not None}
    titles = titles_of(result.manifest)
    columns = []
    for r in sorted({error.r for error in result.errors}):
        about = "Method that retains most at the budget of rank r."
        value = partial(_best, found, methods, r)
        columns.append(Column("best", about, value, group=_RETAINED, r=r))
        for method in methods:
            shown, title = display_name(method), titles.get(method, method)
            about = "Energy retained at the budget of rank r by "
            about += f"{title if title.startswith(shown) else f'{shown} ({title})'}."
            value = partial(_retained, found, r, method, "error")
            columns.append(Column(shown, about, value, ".1%", _RETAINED, r=r))
            # The singular values alone say what LoRA retains, so its basis is worth nothing.
            if method != "R" and method in predicted:
                about = f"What the basis of {shown} is worth: the energy retained, less what the "
                about += "singular values alone predict. Above 0 the basis suits the matrix."
                value = partial(_worth, found, r, method)
                columns.append(Column(f"{shown} worth", about, value, "+z.1%", _WORTH, "signed", r))
        if "R" in methods:
            about = "What LoRA retains of the same entries in random order; much less than without "
            about += "shuffling if the entries depend on each other. Of one matrix per kind, or of "
            about += "all if asked for."
            value = partial(_retained, found, r, "R", "shuffled_error")
            columns.append(Column("LoRA shuffled", about, value, ".1%", _RETAINED, r=r))
    return columns


def _retained(found: _Errors, r: int, method: str, field: str, row: Any) -> float | None:
    error = getattr(found.get((*identity(row), r, method)), field, None)
    return None if error is None else 1 - error


def _worth(found: _Errors, r: int, method: str, row: Any) -> float | None:
    one = found.get((*identity(row), r, method))
    return one.spectral_error - one.error if one and one.spectral_error is not None else None


def _best(found: _Errors, methods: Iterable[str], r: int, row: Any) -> str:
    known = [one for method in methods if (one := found.get((*identity(row), r, method)))]
    least = min((one.error for one in known), default=None)
    return ", ".join(display_name(one.method) for one in known if one.error == least) or MISSING


def _size_columns(result: Analysis) -> list[Column]:
    """The sizes of the methods that give each matrix its own, if a total is split."""
    sizes = {(one.method, *identity(one)): one.size for one in result.allocation}
    split = f"if {result.total} are split among the layers."
    return [
        Column("LoRA size", f"LoRA's rank {split}",
               lambda row: sizes.get(("R", *identity(row))), "d", _SIZES, "wide"),
        Column("LoCA size", f"Number of LoCA's coefficients {split}",
               lambda row: sizes.get(("D", *identity(row))), "d", _SIZES, "wide"),
    ]  # fmt: skip


def _p_value(field: str, row: Any) -> str:
    value = getattr(row, field)
    if value is None:
        return MISSING
    return "≤ 0.001" if value <= _LEAST_P_VALUE else f"{value:.3f}"


def _or_unknown(field: str, row: Any) -> str:
    error = getattr(row, field)
    return "not known" if error is None else f"{1 - error:.1%}"


_WEIGHT = (
    Column("name", "Name of the weight in the base.", "name", group=_NAME),
    Column("kind", "What the matrix does, from its name.", "kind", group=_NAME),
    Column("layer", "Number of the layer, from the name.", "layer", group=_NAME),
)
_MATRIX = (
    _WEIGHT[0],
    Column("fine-tune", "The fine-tune that changed it.", "tuned", group=_NAME),
    *_WEIGHT[1:],
    Column("shape", "Rows × columns.", "shape", lambda row: "×".join(map(str, row.shape)), _NAME),
)  # fmt: skip
CHANGE = (
    Column("dtype", "Element type in the file.", "dtype", group=_NAME),
    Column("‖ΔW‖/‖W₀‖", "Frobenius norm of the change, relative to that of the base's weight.",
           "relative_norm", ".3g", _SIZE, "wide"),
    Column("cos(W₀, W′)", "Cosine of the angle between the base's weight and the fine-tuned one: "
           "almost 1 for a fine-tune, below 0.5 if the two are unrelated.", "weights_cosine",
           ".3f", _SIZE),
    Column("σ", "Standard deviation of the entries of the change.", "sigma", ".3g", _SIZE, "wide"),
    Column("energy", "Sum of the squared entries of the change.", "energy", ".3g", _SIZE, "wide"),
)  # fmt: skip
"""The columns of a matrix that say how large its change is."""
STATISTICS = (
    Column("zeros", "Fraction of the entries that did not change at all; large if weights of 16 "
           "bits were rounded.", "zero_fraction", ".1%", _ENTRIES),
    Column("kurtosis", "Excess kurtosis of the entries: 0 for a normal law, above 0 for heavier "
           "tails.", "excess_kurtosis", "+.3f", _ENTRIES, "signed"),
    Column("TV (95%)", "Total variation of the entries from a normal law (0 to 1), with its 95% "
           "interval.", "tv", lambda row: f"{row.tv:.4f} ({row.tv_low:.4f}–{row.tv_high:.4f})",
           _ENTRIES),
    Column("p", "p-value of the hypothesis that the entries are normal, up to the total variation "
           "epsilon (0.001 if not given); small if they are not. Of 999 random draws, so at least "
           "0.001.", "tv_p_value", partial(_p_value, "tv_p_value"), _ENTRIES),
    Column("p (paper)", "p-value of the test that the paper prints, of 1000 random draws; none if "
           "its loop does not end.", "tv_p_value_as_printed",
           partial(_p_value, "tv_p_value_as_printed"), _ENTRIES),
    Column("stable rank", "Energy in units of the largest squared singular value: small if one "
           "direction dominates.", "stable_rank", ".1f", _SPECTRUM, "wide"),
    Column("effective rank", "Exponential of the entropy of the singular values: how many "
           "directions matter.", "effective_rank", ".1f", _SPECTRUM, "wide"),
    *(Column(f"rank {n}%", f"Smallest rank that retains {n}% of the energy.", f"rank_{n}", "d",
             _SPECTRUM, "wide") for n in (50, 90, 99)),
    Column("outside bulk", "Fraction of the energy outside the range of the Marchenko–Pastur law, "
           "which independent entries follow; none if the other eigenvalues do not follow it.",
           lambda row: row.outlier_mass if follows_law(row) else None, ".0%", _SPECTRUM),
    Column("spikes", "Number of eigenvalues above that range: directions that are not noise; none "
           "if the other eigenvalues do not follow the law.",
           lambda row: row.spikes if follows_law(row) else None, "d", _SPECTRUM),
    Column("MP σ", "σ of the Marchenko–Pastur law that fits the bulk; none without a bulk.",
           "mp_sigma", ".3g", _SPECTRUM, "wide"),
    Column("MP distance", "Kolmogorov distance of the spectrum from that law (0 to 1); above 0.1 "
           "there is no such bulk.", "mp_distance", ".3f", _SPECTRUM),
    Column("tail α", "Exponent of the power law that fits the largest eigenvalues; small for a "
           "heavy tail.", "tail_exponent", ".2f", _SPECTRUM),
    *(Column(f"{side} alignment", f"Overlap of the leading {side} singular vectors of the change "
             "with the base's: 0 to 1.", f"{side}_alignment", ".3f", _SUBSPACES)
      for side in ("left", "right")),
    Column("intruders", "Leading left singular vectors of the fine-tuned weight that resemble none "
           "of the base's.", "intruders", "d", _SUBSPACES),
    Column("subspace error", "Bound of the energy that the computed singular vectors miss, as a "
           "fraction.", "subspace_error", ".1e", _SUBSPACES, "wide"),
)  # fmt: skip
"""The columns of a matrix's statistics."""
_REMARKS = (Column("note", "Remarks, such as why a statistic is missing.", "note", group=_NOTES),)
MEAN = (
    Column("method", "LoCA stands for the best DCT coefficients, and entries for the largest ones.",
           lambda one: display_name(one.method)),
    Column("r", "LoRA's rank, which sets the budget.", "r"),
    Column("retained", "Of these increments.", "error", partial(_or_unknown, "error")),
    Column("independent", "Expected for independent normal entries.", "iid_error",
           partial(_or_unknown, "iid_error")),
    Column("shuffled", "Of the same entries in random order.", "shuffled_error",
           partial(_or_unknown, "shuffled_error")),
    Column("same singular values", "Expected for the same singular values and random singular "
           "vectors: what is retained beyond it is what the method's basis is worth.",
           "spectral_error", partial(_or_unknown, "spectral_error")),
    Column("best on", "Number of matrices of which no method retains more.", "best_on",
           lambda one: f"{one.best_on} of {one.matrices}"),
)  # fmt: skip
"""The columns of the table with one row per rank and method."""
COMPARISON = (
    *_WEIGHT,
    Column("first", "One fine-tune.", "first"),
    Column("second", "The other fine-tune.", "second"),
    Column("cosine", "Cosine of the angle between the two changes: 1 if they point the same way, 0 "
           "if they have nothing in common.", "cosine", "+.3f"),
    Column("sign conflicts", "Fraction of the entries changed by both to which they give opposite "
           "signs; one half for unrelated changes.", "sign_conflict", ".1%"),
    *(Column(f"{side} overlap", f"Overlap of the leading {side} singular vectors of the two "
             "changes: 0 to 1.", f"{side}_overlap", ".3f") for side in ("left", "right")),
)  # fmt: skip
"""The columns of the table that compares the fine-tunes of one base."""
ALLOCATION = (
    _WEIGHT[0],
    Column("fine-tune", "The fine-tune.", "tuned"),
    Column("method", "LoRA, LoCA with the best locations, or entries.",
           lambda one: display_name(one.method)),
    Column("size", "Rank, number of coefficients, or r of SHiRA.", "size", "d"),
    Column("uniform", "Largest size that the total pays for if all get the same.", "uniform", "d"),
    Column("numbers", "Trainable numbers of the allocated size.", "numbers", ",d"),
    Column("energy", "Energy of the change, as a fraction of that of all these layers.", "energy",
           ".1%"),
    Column("retained", "Fraction of the change's energy that the allocated size retains.",
           "retained", ".1%"),
    Column("uniform retained", "The same for the uniform size.", "uniform_retained", ".1%"),
    Column("retained at the uniform cost", "Fraction of all energy that a split of what the "
           "uniform sizes cost retains.", "equal_retained", ".1%"),
)  # fmt: skip
"""The columns of the table with the budget of every matrix."""
SKIPPED = (
    Column("name", "Name of the tensor.", "name"),
    Column("fine-tune", "The fine-tune.", "tuned"),
    Column("note", "Why it was left out.", "reason"),
)
"""The columns of the table of tensors that were left out."""
