"""Result of the analysis of fine-tunes: tables, totals, a verdict and a configuration."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from html import escape
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING, Any, ClassVar

from loca_theory.checkpoints.change.pair import UNCHANGED
from loca_theory.checkpoints.measure.figure_data import EigenvalueHistogram, FigureData
from loca_theory.checkpoints.measure.rows import (
    AllocatedMatrix,
    CodedError,
    Comparison,
    Matrix,
    MatrixError,
)
from loca_theory.checkpoints.measure.settings import ANALYSED
from loca_theory.checkpoints.report.columns import CHANGE, MATRIX, STATISTICS
from loca_theory.checkpoints.report.proposal import proposed_config
from loca_theory.checkpoints.report.remarks import (
    IDENTICAL,
    allocations,
    budget,
    not_compared,
    rounded,
    uncovered,
    warning,
)
from loca_theory.checkpoints.report.summary import Summary, summarise
from loca_theory.checkpoints.report.verdict import SHOWN, verdict
from loca_theory.checkpoints.source.checkpoint import Skipped
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import Accounting, Budget
from loca_theory.expressivity.methods.names import display_name
from loca_theory.expressivity.spending import off_budgets
from loca_theory.sweeps import Result
from loca_theory.sweeps.results import SHOWN_ROWS, rows

if TYPE_CHECKING:
    import pandas as pd
    from peft import PeftConfig

_KEY = ["name", "tuned"]
_OVERVIEW = (
    *("name", "tuned", "shape", "sigma", "relative_norm", "tv", "tv_p_value", "outlier_mass"),
    *("spikes", "rank_90"),
)
_OF_MATRIX = {one.name for one in fields(Matrix)}


@dataclass(frozen=True, repr=False)
class Analysis(Result):
    """Result of the analysis of one or several fine-tunes of one base.

    Attributes:
        matrices: Statistics of every increment that could be analysed.
        errors: Relative error of each method on each of these increments.
        spectra: Histogram of the eigenvalues of each of these increments.
        figure_data: Histograms and spectra of a few increments, for figures.
        allocation: Size of each linear layer's adapter if a total is split among them.
        comparisons: Every two fine-tunes, compared weight by weight.
        bits: What coders leave of each of these increments at some bits per entry.
        skipped: Tensors that were left out.
    """

    matrices: tuple[Matrix, ...] = rows(Matrix)
    errors: tuple[MatrixError, ...] = rows(MatrixError)
    spectra: tuple[EigenvalueHistogram, ...] = rows(EigenvalueHistogram)
    figure_data: tuple[FigureData, ...] = rows(FigureData)
    allocation: tuple[AllocatedMatrix, ...] = rows(AllocatedMatrix)
    comparisons: tuple[Comparison, ...] = rows(Comparison)
    bits: tuple[CodedError, ...] = rows(CodedError)
    skipped: tuple[Skipped, ...] = rows(Skipped)
    command: ClassVar[str] = "analyze"
    names: ClassVar[tuple[str, ...]] = ("name", "tuned")

    @property
    def ranks(self) -> tuple[int, ...]:
        """LoRA ranks that set the budgets."""
        return tuple(self.manifest["grid"]["ranks"])

    @property
    def tuned(self) -> tuple[str, ...]:
        """Labels of the fine-tunes, in the given order."""
        return tuple(self.manifest["grid"]["labels"])

    @property
    def total(self) -> str | None:
        """The total that ``allocation`` splits, in words; None without an allocation."""
        return self.manifest["grid"]["allocate"]

    @property
    def budget(self) -> str:
        """What is charged to a budget, in words; the same for all tables and sentences."""
        return budget(self.manifest["grid"])

    @cached_property
    def summary(self) -> Summary:
        """Totals over all matrices, by kind, by layer and by fine-tune."""
        return summarise(self.matrices, self.errors, self.ranks)

    @property
    def first_rank(self) -> int:
        """The first rank at which there are errors; 0 if there are none."""
        return next(iter(self.summary.all.by_rank), 0)

    def coefficients_paid(self, shape: tuple[int, int], r: int) -> float:
        """Fraction of a matrix's coefficients that the budget of rank r pays for."""
        budget = Budget(*shape, r, Accounting(self.manifest["grid"]["accounting"]))
        return budget.chosen_coefficients / math.prod(shape)

    @property
    def off_budget(self) -> dict[str, str]:
        """What methods spend of the budget of the first rank, where it is off by more than 2%."""
        r, accounting = self.first_rank, Accounting(self.manifest["grid"]["accounting"])
        have = {(error.name, error.tuned) for error in self.errors if error.r == r}
        shapes = {one.shape for one in self.matrices if (one.name, one.tuned) in have}
        methods = (error.method for error in self.errors)
        return off_budgets(methods, [Budget(*shape, r, accounting) for shape in shapes])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Which fine-tunes are compared in part, the base or unrelated to it, or not comparable."""
        grid = self.manifest["grid"]
        remarks = [
            *((label, rounded(self._of(label))) for label in self.tuned),
            *((label, uncovered(grid["coverage"][label])) for label in self.tuned),
            *((label, IDENTICAL) for label in grid["identical"]),
            *((group.name, warning(group)) for group in self.summary.by_tuned),
        ]
        is_named = len(self.tuned) > 1
        texts = [f"{label}: {text}" if is_named else text for label, text in remarks if text]
        return (*texts, *not_compared(self.matrices))

    def _of(self, label: str) -> list[Matrix]:
        return [row for row in self.matrices if row.tuned == label]

    @property
    def verdict(self) -> str:
        """Which adapter retains how much, why, and are the increments normal?

        At most five sentences, then a paragraph on each split of a total.
        """
        epsilon = self.manifest["grid"]["epsilon"]
        unchanged = sum(row.case == UNCHANGED.case for row in self.skipped)
        paragraphs = [verdict(self.summary, self.matrices, self.errors, epsilon, unchanged)]
        for name in self.tuned:
            texts = allocations([row for row in self.allocation if row.tuned == name], self.total)
            paragraphs += [f"{name}: {text}" if len(self.tuned) > 1 else text for text in texts]
        return "\n\n".join(paragraphs)

    def config(self, method: str | None = None, rank: int | None = None) -> PeftConfig:
        """The configuration, for PEFT, of the adapter that this fine-tune would fit.

        It has a size for each matrix if a total was split among them. Do not choose by
        reconstruction what you will train: training with an adapter finds another change.

        Args:
            method: ``LoRA``, ``LoCA``, ``FourierFT`` or ``entries``; None for the method that
                retains most.
            rank: LoRA's rank that sets the budget, one of ``ranks``; None for the sizes of the
                split, or for the first rank.

        Returns:
            A configuration such as ``LoraConfig``; ``config_source`` is the source of this one.

        Raises:
            InvalidArgumentError: there are several fine-tunes, which need not have the same best
                adapter, the method or the rank is unknown, or no layer can have the adapter.
            ResourceError: PEFT is not installed.
        """
        return proposed_config(self, method, rank).make()

    @property
    def config_source(self) -> str:
        """Source of ``config()``, ready to paste; "" if there is none."""
        try:
            return proposed_config(self).source
        except InvalidArgumentError:
            return ""

    def to_json(self) -> dict[str, Any]:
        """Plain data: one row per matrix with its errors, skipped tensors, totals, manifest."""
        errors: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for error in self.errors:
            mine = errors.setdefault((error.name, error.tuned), [])
            mine.append({key: one for key, one in vars(error).items() if key not in _OF_MATRIX})
        return {
            "rows": [
                {**asdict(one), "errors": errors.get((one.name, one.tuned), [])}
                for one in self.matrices
            ],
            **{name: self._plain(name) for name in ("allocation", "comparisons", "bits")},
            "skipped": [
                {"name": one.name, "tuned": one.tuned, "reason": one.reason}
                for one in self.skipped
            ],
            "summary": {
                "warnings": list(self.warnings), **self.summary.to_json(), "verdict": self.verdict,
                "config": self.config_source,
            },
            "manifest": self.manifest,
        }  # fmt: skip

    def overview(self) -> pd.DataFrame:
        """One row per matrix: its main statistics, and some errors at the first rank.

        The errors are those of LoRA, LoCA, FourierFT, selection of entries, and the methods that
        the user named.
        """
        import pandas as pd

        columns = {column.value: column for column in (*MATRIX, *CHANGE, *STATISTICS)}
        values = {name: map(columns[name].read, self.matrices) for name in _OVERVIEW}
        frame, errors = pd.DataFrame(values), self.to_frame("errors")
        first = self.first_rank
        usual = [method.name for method in ANALYSED]
        is_shown = errors["method"].isin(SHOWN) | ~errors["method"].isin(usual)
        at = errors[(errors["r"] == first) & is_shown]
        wide = at.pivot_table(index=_KEY, columns="method", values="error", sort=False)
        wide = wide.add_suffix(f", r = {first}")
        shown = frame.merge(wide, left_on=_KEY, right_index=True, how="left")
        return shown if len(self.tuned) > 1 else shown.drop(columns="tuned")

    def _text(self) -> str:
        width = get_terminal_size().columns
        texts = [fill(one, width) for one in (*self.warnings, *self.verdict.split("\n\n"))]
        if len(self.tuned) > 1:
            texts.append(self._by_tuned().to_string(max_rows=SHOWN_ROWS, index=False))
        return "\n\n".join(texts)

    def _by_tuned(self) -> pd.DataFrame:
        """Energy that each form retains of each fine-tune, at the first rank."""
        import pandas as pd

        return pd.DataFrame([
            {"fine-tune": one.name, "matrices": one.matrices, **{
                f"{display_name(key)} retains": f"{1 - error.error:.1%}"
                for key, error in one.by_rank.get(self.first_rank, {}).items()
                if key in SHOWN
            }}
            for one in self.summary.by_tuned
        ])  # fmt: skip

    def _repr_html_(self) -> str:
        """Warnings, verdict and overview; for a single matrix, all its statistics in one column."""
        if len(self.matrices) == 1:
            errors = {f"{e.method}, r = {e.r}": e.error for e in self.errors}
            guarded = [column for column in STATISTICS if column.guard is not None]
            values = {str(column.value): column.read(self.matrices[0]) for column in guarded}
            frame = self.to_frame().assign(**values, **errors)
            table = frame.T.to_html(header=False, border=0)
        else:
            table = self.overview().to_html(
                max_rows=20, show_dimensions=True, border=0, index=False
            )
        texts = [*self.warnings, *self.verdict.split("\n\n")]
        paragraphs = (f"<p>{escape(one)}</p>" for one in texts)
        if len(self.tuned) > 1:
            table = self._by_tuned().to_html(max_rows=20, border=0, index=False) + table
        return f"{''.join(paragraphs)}{table}"
