"""Histograms and spectra of a few matrices, for the figures of an analysis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loca_theory.checkpoints.figure_rows import FigureData
from loca_theory.checkpoints.statistics.matrix_analysis import MatrixAnalysis

_KINDS = ("query", "value")


def figure_data(
    analyses: Sequence[MatrixAnalysis], spectra: Mapping[str, Sequence[float]]
) -> tuple[FigureData, ...]:
    """Histograms and spectra of the given matrices, with those spectra of W′ that are given."""
    rows = []
    for one in analyses:
        matrix, weights = one.matrix, tuple(spectra.get(one.matrix.name, ()))
        values = {"entries": one.entries, "increment": one.eigenvalues, "weights": weights}
        rows += [
            FigureData(
                *(matrix.name, matrix.tuned, *matrix.shape, quantity, found),
                sigma=matrix.sigma,
                tv=matrix.tv,
                excess_kurtosis=matrix.excess_kurtosis,
            )
            for quantity, found in values.items()
            if quantity != "weights" or any(found)
        ]
    return tuple(rows)


def representative(analyses: Sequence[MatrixAnalysis]) -> list[MatrixAnalysis]:
    """Query and value of the middle layer, as in the paper's Fig. 1, or else the first matrices.

    Only matrices of the first fine-tune are chosen.
    """
    first = [one for one in analyses if one.matrix.tuned == analyses[0].matrix.tuned]
    chosen: list[MatrixAnalysis] = []
    for kind in _KINDS:
        mine = sorted((one for one in first if one.matrix.kind == kind), key=_layer)
        if mine:
            chosen.append(mine[len(mine) // 2])
    others = [one for one in first if one not in chosen]
    return (chosen + others)[: len(_KINDS)]


def _layer(found: MatrixAnalysis) -> float:
    return -1.0 if found.matrix.layer is None else found.matrix.layer
