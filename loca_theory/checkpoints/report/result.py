"""Result of the analysis of fine-tunes: tables, totals, a verdict and a configuration."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from functools import cached_property
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
from loca_theory.checkpoints.report.overview import by_tuned, html_of, overview_of
from loca_theory.checkpoints.report.proposal import proposed_config
from loca_theory.checkpoints.report.remarks import (
    IDENTICAL,
    allocations,
    budget,
    not_compared,
    rounding_remark,
    uncovered,
    warning,
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
        """What is charged to a budget, in words; the same for all tables and sentences."""
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
        """Which fine-tunes are compared in part, the base or unrelated to it, or not comparable."""
        grid = self.manifest["grid"]
        remarks = [
            *((label, uncovered(grid["coverage"][label])) for label in self.tuned),
            *((label, IDENTICAL) for label in grid["identical"]),
            *((group.name, warning(group)) for group in self.summary.by_tuned),
        ]
        return (*self._rounding, *self._named(remarks), *not_compared(self.matrices))

    @property
    def _rounding(self) -> list[str]:
        """That rounding is a large part of what was measured, where it is."""
        return self._named([(label, rounding_remark(self._of(label))) for label in self.tuned])

    def _named(self, remarks: Iterable[tuple[str, str]]) -> list[str]:
        """Remarks with the labels of their fine-tunes, if there are several."""
        is_named = len(self.tuned) > 1
        return [f"{label}: {text}" if is_named else text for label, text in remarks if text]

    def _of(self, label: str) -> list[Matrix]:
        return [row for row in self.matrices if row.tuned == label]

    @property
    def verdict(self) -> str:
        """Which adapter retains how much, why, and are the increments normal?

        A paragraph of at most five sentences, and one on each split of a total; before them, where
        it matters, that what was measured is for a large part rounding.
        """
        epsilon = self.manifest["grid"]["epsilon"]
        unchanged = sum(row.case == UNCHANGED.case for row in self.skipped)
        first = verdict(self.summary, self.matrices, self.errors, epsilon, unchanged)
        paragraphs = [*self._rounding, first]
        for name in self.tuned:
            texts = allocations([row for row in self.allocation if row.tuned == name], self.total)
            paragraphs += [f"{name}: {text}" if len(self.tuned) > 1 else text for text in texts]
        return "\n\n".join(paragraphs)

    @property
    def conclusions(self) -> list[str]:
        """The paragraphs of the verdict that are not among the warnings."""
        return [text for text in self.verdict.split("\n\n") if text not in self.warnings]

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
        texts = [fill(text, width) for text in (*self.warnings, *self.conclusions)]
        if len(self.tuned) > 1:
            texts.append(by_tuned(self).to_string(max_rows=SHOWN_ROWS, index=False))
        return "\n\n".join(texts)

    def _repr_html_(self) -> str:
        """Warnings, verdict and overview; for a single matrix, all its statistics in one column."""
        return html_of(self)
