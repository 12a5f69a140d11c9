"""Results of the analysis of one increment, and those of a few that figures show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from loca_theory.checkpoints.measure.rows import CodedError, IncrementRow, Matrix, MatrixError
from loca_theory.checkpoints.model.names import middle_of_each_kind

_KINDS = ("query", "value")

_CELLS = 40
_LEADING = 12
# The cells of a bulk reach this many times as far as the upper edge of its law.
_BEYOND_EDGE = 1.3
# Smaller eigenvalues, as a power of ten of the largest, come from the rounding of single precision.
_SMALLEST = -12


@dataclass(frozen=True)
class EigenvalueHistogram(IncrementRow):
    """Histogram of the eigenvalues λ of ΔWᵀΔW, over one of two variables.

    If the spectrum has a Marchenko–Pastur bulk: λ/(max(p, q) σ²), σ = ``mp_sigma``, in cells from 0
    to 1.3 times the law's upper edge. Otherwise: log₁₀(λ/λ₁), λ₁ the largest eigenvalue, in cells
    up to 0.

    Attributes:
        is_logarithmic: Whether the variable is log₁₀(λ/λ₁).
        start: Lower end of the first of 40 equal cells.
        stop: Upper end of the last cell.
        below: Number of eigenvalues below ``start``: 0, or rounding errors.
        counts: Number of eigenvalues in each cell.
        above: Number of eigenvalues above ``stop``.
        leading: The largest of these, at most 12, largest first.
    """

    is_logarithmic: bool
    start: float
    stop: float
    below: int
    counts: tuple[int, ...]
    above: int
    leading: tuple[float, ...]


@dataclass(frozen=True)
class FigureData(IncrementRow):
    """Values that a figure plots for one matrix.

    Attributes:
        p: Number of rows.
        q: Number of columns.
        quantity: What the values are: ``entries``, fractions of the standardised entries in 128
            equal cells from −8 to 8; ``increment``, squared singular values of ΔW, smallest first;
            ``weights``, those of W′.
        values: The values. If entries lie beyond 2^±32, they are those of the matrix divided by a
            power of two.
        sigma: Standard deviation of the entries of ΔW.
        tv: Total variation of these entries from a normal law.
        excess_kurtosis: Excess kurtosis of these entries.
    """

    p: int
    q: int
    quantity: str
    values: tuple[float, ...]
    sigma: float
    tv: float
    excess_kurtosis: float


def eigenvalue_histogram(
    matrix: Matrix, eigenvalues: NDArray[np.float64], sigma: float | None
) -> EigenvalueHistogram:
    """Count the eigenvalues of an increment in equal cells; σ of their law is None without one."""
    if sigma is None:
        with np.errstate(divide="ignore"):
            values = np.log10(eigenvalues / eigenvalues.max())
        smallest = values[values >= _SMALLEST].min()
        start, stop = min(float(np.floor(smallest)), -1.0), 0.0
    else:
        values = eigenvalues / (max(matrix.shape) * sigma**2)
        start, stop = 0.0, _BEYOND_EDGE * (1 + (min(matrix.shape) / max(matrix.shape)) ** 0.5) ** 2
    counts, _ = np.histogram(values, _CELLS, (start, stop))
    beyond = np.sort(values[values > stop])[::-1]
    return EigenvalueHistogram(
        name=matrix.name,
        tuned=matrix.tuned,
        is_logarithmic=sigma is None,
        start=start,
        stop=stop,
        below=int((values < start).sum()),
        counts=tuple(counts.tolist()),
        above=len(beyond),
        leading=tuple(beyond[:_LEADING].tolist()),
    )


@dataclass(frozen=True)
class MatrixAnalysis:
    """Results of the analysis of one increment.

    Attributes:
        matrix: Statistics of the increment.
        errors: Relative error of each method, rank by rank.
        entries: Fractions of the standardised entries in 128 equal cells from −8 to 8.
        eigenvalues: Squared singular values of ΔW, smallest first. If the largest entry, of about
            2ᵉ, lies beyond 2^±32, they are those of ΔW/2ᵉ, so that squares stay in range.
        spectrum: Histogram of these eigenvalues.
        coded: What coders leave of the increment; empty unless asked for.
    """

    matrix: Matrix
    errors: tuple[MatrixError, ...]
    entries: tuple[float, ...]
    eigenvalues: tuple[float, ...]
    spectrum: EigenvalueHistogram
    coded: tuple[CodedError, ...] = ()


STORED = TypeAdapter(MatrixAnalysis)
"""Restores an analysis from JSON of what :func:`dataclasses.asdict` returns."""


def figure_data(
    analyses: Sequence[MatrixAnalysis], spectra: Mapping[str, Sequence[float]]
) -> Iterator[FigureData]:
    """Histograms and spectra of the given matrices, with those spectra of W′ that are given."""
    for one in analyses:
        matrix, weights = one.matrix, tuple(spectra.get(one.matrix.name, ()))
        values = {"entries": one.entries, "increment": one.eigenvalues, "weights": weights}
        for quantity, found in values.items():
            if quantity != "weights" or any(found):
                yield FigureData(
                    *(matrix.name, matrix.tuned, *matrix.shape, quantity, found),
                    sigma=matrix.sigma,
                    tv=matrix.tv,
                    excess_kurtosis=matrix.excess_kurtosis,
                )


def representative(analyses: Sequence[MatrixAnalysis]) -> list[MatrixAnalysis]:
    """Query and value of the middle layer, as in the paper's Fig. 1, or else the first matrices.

    Only matrices of the first fine-tune are chosen.
    """
    first = [one for one in analyses if one.matrix.tuned == analyses[0].matrix.tuned]
    middle = middle_of_each_kind(one.matrix for one in first)

    def rank(one: MatrixAnalysis) -> int:
        is_shown = one.matrix in middle and one.matrix.kind in _KINDS
        return _KINDS.index(one.matrix.kind) if is_shown else len(_KINDS)

    return sorted(first, key=rank)[: len(_KINDS)]
