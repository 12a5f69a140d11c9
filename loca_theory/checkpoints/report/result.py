"""Result of the analysis of fine-tunes: tables, totals, a verdict and a configuration."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING, Any, ClassVar

from loca_theory.checkpoints.change.comparable import reasons
from loca_theory.checkpoints.measure.figure_data import EigenvalueHistogram, FigureData
from loca_theory.checkpoints.measure.rows import (
    AllocatedMatrix,
    CodedError,
    Comparison,
    Matrix,
    MatrixError,
)
from loca_theory.checkpoints.report.findings import findings
from loca_theory.checkpoints.report.overview import by_tuned, html_of, overview_of
from loca_theory.checkpoints.report.proposal import proposed_config
from loca_theory.checkpoints.report.remarks import (
    allocations,
    budget,
    not_compared,
    remarks_by_label,
)
from loca_theory.checkpoints.report.summary import Summary, summarise
from loca_theory.checkpoints.report.verdict import verdict
from loca_theory.checkpoints.source.checkpoint import Skipped
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import Accounting, Budget
from loca_theory.expressivity.spending import off_budgets
from loca_theory.sweeps import Result
from loca_theory.sweeps.results import SHOWN_ROWS, rows

if TYPE_CHECKING:
    import pandas as pd
    from peft import PeftConfig

_OF_MATRIX = {field.name for field in fields(Matrix)}


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
        """The accounting, in words; the same for all tables and sentences."""
        return budget(self.manifest["grid"])

    @cached_property
    def summary(self) -> Summary:
        """Totals over all matrices, by kind, by layer and by fine-tune."""
        return summarise(self.matrices, self.errors_of, self.ranks)

    @cached_property
    def errors_of(self) -> dict[tuple[str, str], list[MatrixError]]:
        """The errors on each matrix, by its name and the label of its fine-tune."""
        by_matrix = {(row.name, row.tuned): list[MatrixError]() for row in self.matrices}
        for error in self.errors:
            by_matrix[error.name, error.tuned].append(error)
        return by_matrix

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
        shapes = {
            row.shape
            for row in self.matrices
            if any(error.r == r for error in self.errors_of[row.name, row.tuned])
        }
        methods = (error.method for error in self.errors)
        return off_budgets(methods, [Budget(*shape, r, accounting) for shape in shapes])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Which fine-tunes are the base, unrelated to it, rounded, compared in part, or apart.

        One sentence each, of which the first matters most.
        """
        remarks = remarks_by_label(self.manifest["grid"], self.summary.by_tuned, self.matrices)
        return (*self._named(remarks), *not_compared(self.matrices))

    def _named(self, remarks: Iterable[tuple[str, str]]) -> list[str]:
        """Remarks with the labels of their fine-tunes, if there are several."""
        is_named = len(self.tuned) > 1
        return [f"{label}: {text}" if is_named else text for label, text in remarks if text]

    @property
    def _sentences(self) -> tuple[str, ...]:
        left_out = reasons(self.skipped)
        return verdict(
            self.summary, self.matrices, self.allocation, self.total, self.warnings, left_out
        )

    @property
    def message(self) -> str:
        """What to use, in one sentence: the form, its size, and how much it retains."""
        return self._sentences[0]

    @property
    def warning(self) -> str:
        """The warning that matters most, in one sentence; "" if there is none."""
        return "".join(self._sentences[1:])

    @property
    def verdict(self) -> str:
        """The message and the warning; ``findings`` has the reasons, ``warnings`` all warnings."""
        return " ".join(self._sentences)

    @property
    def findings(self) -> tuple[str, ...]:
        """What each form retains, why, and whether the increments are normal, a sentence each.

        After them, one sentence on each split of a total.
        """
        epsilon = self.manifest["grid"]["epsilon"]
        general = findings(self.summary, self.matrices, self.errors, epsilon)
        return (*general, *self._named(allocations(self.allocation, self.tuned, self.total)))

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

        def plain(error: MatrixError) -> dict[str, Any]:
            return {key: value for key, value in vars(error).items() if key not in _OF_MATRIX}

        return {
            "rows": [
                {**asdict(row), "errors": [*map(plain, self.errors_of[row.name, row.tuned])]}
                for row in self.matrices
            ],
            **{name: self._plain(name) for name in ("allocation", "comparisons", "bits")},
            "skipped": [
                {"name": row.name, "tuned": row.tuned, "reason": row.reason} for row in self.skipped
            ],
            "summary": {
                "warnings": list(self.warnings),
                **self.summary.to_json(),
                "verdict": self.verdict,
                "findings": list(self.findings),
                "config": self.config_source,
            },
            "manifest": self.manifest,
        }

    def overview(self) -> pd.DataFrame:
        """One row per matrix: its main statistics, and some errors at the first rank.

        The errors are those of LoRA, LoCA, FourierFT, selection of entries, and the methods that
        the user named.
        """
        return overview_of(self)

    def _text(self) -> str:
        width = get_terminal_size().columns
        texts = [fill(self.verdict, width)]
        if len(self.tuned) > 1:
            texts.append(by_tuned(self).to_string(max_rows=SHOWN_ROWS, index=False))
        return "\n\n".join(texts)

    def _repr_html_(self) -> str:
        """Verdict and overview; for a single matrix, all its statistics in one column."""
        return html_of(self)
