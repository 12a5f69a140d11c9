"""The columns of tables: title, what it is about, value and text of a cell, and when it has none.

The page of an analysis, the terminal and :meth:`Analysis.overview` show those that are listed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any, Literal

from loca_theory.checkpoints.report.summary import follows_law

_NAME, _SIZE, _ENTRIES, _SPECTRUM, _SUBSPACES = (
    "Kind and shape", "Size of the change", "Entries", "Spectrum", "Directions",
)  # fmt: skip
# So many random draws as the tests of normality make cannot tell smaller ones apart.
_LEAST_P_VALUE = 0.001
MISSING = "none"
"""Text of a cell without a value."""
_WITHOUT_ORDER = (
    "What LoRA retains of the same entries in random order; much less than without shuffling if "
    "the entries depend on each other. Of one matrix per kind, or of all if asked for."
)
SHUFFLED = "LoRA shuffled", _WITHOUT_ORDER
"""Title and meaning of the column with what LoRA retains of shuffled entries."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title: Heading; columns that differ only by the rank have the same.
        about: One line that says what the values are.
        value: Name of the row's field, or function of the row: a number, a text, or None.
        form: Format of numbers, or a function that makes the text of a row's cell; by default a
            float has four digits.
        group: Heading of the columns that belong together.
        scale: Colours on the heat map: ``signed`` if the middle colour stands for 0, ``wide`` for
            powers of ten if the values differ by that much.
        r: The rank whose budget the values belong to; None if they belong to no budget.
        guard: Whether the value of a row says anything; if not, it has none. None for every row.
    """

    title: str
    about: str
    value: str | Callable[[Any], Any]
    form: str | Callable[[Any], str] = ""
    group: str = ""
    scale: Literal["plain", "signed", "wide"] = "plain"
    r: int | None = None
    guard: Callable[[Any], bool] | None = None

    @property
    def unit(self) -> str:
        """The unit of the numbers: % or "" if they have no unit."""
        return "%" if isinstance(self.form, str) and self.form.endswith("%") else ""

    @property
    def heading(self) -> str:
        """The title with the rank, which no other column of the table has."""
        return self.title if self.r is None else f"{self.title}, r = {self.r}"

    def read(self, row: Any) -> Any:
        """The value of a row."""
        if self.guard is not None and not self.guard(row):
            return None
        return getattr(row, self.value) if isinstance(self.value, str) else self.value(row)

    def text(self, row: Any) -> str:
        """The text of a row's cell."""
        if callable(self.form):
            return self.form(row)
        value = self.read(row)
        if value is None or value != value:
            return MISSING
        return format(value, self.form or (".4g" if isinstance(value, float) else ""))

    def number(self, row: Any) -> float | None:
        """The value of a row in its unit, to six digits; None if it is not a finite number."""
        value = self.read(row)
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        scale = 100 if self.unit else 1
        return float(f"{scale * value:.6g}") if is_number and math.isfinite(value) else None


def with_values(columns: Iterable[Column], rows: Sequence[Any]) -> list[Column]:
    """The columns that have a value in some row."""
    return [column for column in columns if any(column.read(row) not in (None, "") for row in rows)]


def _p_value(field: str, row: Any) -> str:
    value = getattr(row, field)
    if value is None:
        return MISSING
    return "≤ 0.001" if value <= _LEAST_P_VALUE else f"{value:.3f}"


WEIGHT = (
    Column("name", "Name of the weight in the base.", "name", group=_NAME),
    Column("kind", "What the matrix does, from its name.", "kind", group=_NAME),
    Column("layer", "Number of the layer, from the name.", "layer", group=_NAME),
)
"""The columns of any table with a row per weight."""
MATRIX = (
    WEIGHT[0],
    Column("fine-tune", "The fine-tune that changed it.", "tuned", group=_NAME),
    *WEIGHT[1:],
    Column("shape", "Rows × columns.", "shape", lambda row: "×".join(map(str, row.shape)), _NAME),
)  # fmt: skip
"""The columns of a matrix that tell it from others."""
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
STATISTIC_COLUMNS = (
    Column("zeros", "Fraction of the entries that did not change at all; large if weights of 16 "
           "bits were rounded.", "zero_fraction", ".1%", _ENTRIES),
    Column("stored as", "The narrowest format that holds the values of the fine-tune.", "format",
           group=_SIZE),
    Column("changed", "Fraction of the entries that changed, of a base rounded to this format; "
           "none if it has as many bits as float32.", "changed", ".1%", _SIZE),
    Column("rounding", "Energy of the errors of rounding relative to that of the stored change, if "
           "both were independent and normal: above 5%, what is said is of the rounded change.",
           "rounding", ".2g", _SIZE, "wide"),
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
           "outlier_mass", ".0%", _SPECTRUM, guard=follows_law),
    Column("spikes", "Number of eigenvalues above that range: directions that are not noise; none "
           "if the other eigenvalues do not follow the law.",
           "spikes", "d", _SPECTRUM, guard=follows_law),
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
