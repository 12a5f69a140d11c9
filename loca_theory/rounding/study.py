"""Tables of what survives rounding: of independent changes, and of low-rank ones below the step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from loca_theory.rounding.cells import rounding_cells
from loca_theory.rounding.fit.cosine import fit_cosines
from loca_theory.rounding.fit.low_rank import fit_low_rank
from loca_theory.rounding.formats import find_format
from loca_theory.rounding.laws import rounded_change
from loca_theory.sweeps import Cell, Result, Runner, generator
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.results import rows
from loca_theory.sweeps.runner import DEFAULT_RUNNER
from loca_theory.sweeps.store import described

_PACKAGES = (
    "loca_theory.increments",
    "loca_theory.rounding",
    "loca_theory.sweeps.random",
    "loca_theory.transforms",
)


@dataclass(frozen=True)
class LawRow:
    """How much of independent normal changes of normal weights survives in a format.

    Attributes:
        format: Name of the format.
        ratio: σ/s, the standard deviation of the changes over that of the weights.
        changed: Probability that a stored number changes.
        error: E(d - Δ)²/σ².
    """

    format: str
    ratio: float
    changed: float
    error: float


@dataclass(frozen=True)
class SurvivalRow:
    """Errors of one method on a rounded change of low rank.

    Attributes:
        steps: Median change, in median steps of the weights.
        method: LoRA, LoCA or entries, of d; LoRA inside cells, of the cells.
        error: Squared error relative to d, the mean of the draws.
        change_error: Squared error relative to the change Δ that was made.
    """

    steps: float
    method: str
    error: float
    change_error: float


@dataclass(frozen=True, repr=False)
class RoundingResult(Result):
    """How much of a change survives rounding.

    Attributes:
        laws: A row per format and ratio.
        survival: A row per size of the change and method.
    """

    laws: tuple[LawRow, ...] = rows(LawRow)
    survival: tuple[SurvivalRow, ...] = rows(SurvivalRow)
    command = "rounding"


@dataclass(frozen=True)
class RoundingStudy:
    """Specification of both tables.

    Attributes:
        formats: Names of the formats of the laws.
        ratios: Values of σ/s, with weights of unit variance.
        shape: p and q of the low-rank changes of bfloat16 weights.
        rank: Their rank r. LoCA and entries have r(p + q)/2 numbers, and as many locations.
        steps: Their sizes.
        draws: Draws of each size.
        seed: Root seed.
    """

    formats: tuple[str, ...] = ("bfloat16", "float16", "float8_e4m3", "float8_e5m2")
    ratios: tuple[float, ...] = tuple(round(10 ** (k / 8 - 6), 10) for k in range(49))
    shape: tuple[int, int] = (512, 512)
    rank: int = 8
    steps: tuple[float, ...] = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    draws: int = 3
    seed: int = 0

    def describe(self) -> dict[str, Any]:
        """The specification as plain data, for a manifest."""
        return described(self, "seed")

    def run(self, runner: Runner = DEFAULT_RUNNER) -> RoundingResult:
        """Compute both tables; each point of either is a cell of a sweep."""
        laws = [LawCell(name, ratio) for name in self.formats for ratio in self.ratios]
        law_rows = [
            LawRow(cell.format, cell.ratio, **law)
            for cell, law in zip(laws, runner.run(laws, law_of), strict=True)
        ]
        cells = [
            SurvivalCell(self.shape, self.rank, steps, self.draws, self.seed)
            for steps in self.steps
        ]
        survival_rows = [
            SurvivalRow(cell.steps, method, error, change_error)
            for cell, errors in zip(cells, runner.run(cells, survival_of), strict=True)
            for method, (error, change_error) in errors.items()
        ]
        described_run = manifest(grid=self.describe(), seed=self.seed)
        return RoundingResult(described_run, tuple(law_rows), tuple(survival_rows))


@dataclass(frozen=True)
class LawCell(Cell):
    """The law of one format at one ratio."""

    experiment = "rounding.laws"
    packages = _PACKAGES

    format: str
    ratio: float


@dataclass(frozen=True)
class SurvivalCell(Cell):
    """Low-rank changes of one size."""

    experiment = "rounding.survival"
    packages = _PACKAGES

    shape: tuple[int, int]
    rank: int
    steps: float
    draws: int
    seed: int


def law_of(cell: LawCell) -> dict[str, float]:
    """The fields of a row."""
    law = rounded_change(find_format(cell.format), cell.ratio)
    return {"changed": law.changed, "error": law.error}


def survival_of(cell: SurvivalCell) -> dict[str, list[float]]:
    """Both errors of each method, as means of the draws."""
    draws = [_errors(cell, draw) for draw in range(cell.draws)]
    return {
        method: np.mean([errors[method] for errors in draws], axis=0).tolist()
        for method in draws[0]
    }


def _errors(cell: SurvivalCell, draw: int) -> dict[str, tuple[float, float]]:
    (p, q), form = cell.shape, find_format("bfloat16")
    source = generator(cell.seed, "rounded low rank", p, q, cell.rank, draw)
    base = form.round(torch.from_numpy(0.02 * source.standard_normal((p, q))))
    b, a = source.standard_normal((p, cell.rank)), source.standard_normal((cell.rank, q))
    change = torch.from_numpy(b @ a)
    change *= cell.steps * form.steps(base).median() / change.abs().median()
    tuned = form.round(base + change)
    d, cells = (tuned - base).float(), rounding_cells(base, tuned, form)
    numbers = cell.rank * (p + q) // 2
    entries = torch.zeros_like(d)
    chosen = d.abs().flatten().topk(numbers).indices
    entries.view(-1)[chosen] = d.view(-1)[chosen]
    approximations = {
        "LoRA": fit_low_rank(d, cells, cell.rank, steps=0).increment(),
        "LoCA": fit_cosines(d, cells, numbers, turns=0).increment(),
        "entries": entries,
        "LoRA inside cells": fit_low_rank(d, cells, cell.rank).increment(),
    }
    return {
        method: (_relative(matrix, d.double()), _relative(matrix, change))
        for method, matrix in approximations.items()
    }


def _relative(matrix: torch.Tensor, reference: torch.Tensor) -> float:
    return float((matrix.double() - reference).square().sum() / reference.square().sum())
