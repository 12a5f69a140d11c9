"""Histograms and spectra of a few matrices, for the figures of an analysis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from loca_theory.checkpoints.rows import FigureData, Matrix
from loca_theory.checkpoints.statistics.matrix import MatrixAnalysis

_KINDS = ("query", "value")


def figure_data(
    analyses: Sequence[MatrixAnalysis], spectra: Mapping[str, Sequence[float]]
) -> tuple[FigureData, ...]:
    """Histograms and spectra of the given matrices.

    Args:
        analyses: Results of these matrices.
        spectra: Squared singular values of W′ by name of the matrix, for those that have them.
    """
    return tuple(
        FigureData(
            *(matrix.name, matrix.tuned, *matrix.shape, quantity, values),
            sigma=matrix.sigma,
            tv=matrix.tv,
            excess_kurtosis=matrix.excess_kurtosis,
        )
        for one in analyses
        for matrix in (one.matrix,)
        for quantity, values in _quantities(one, spectra.get(matrix.name, ()))
    )


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


def _quantities(
    found: MatrixAnalysis, weights: Sequence[float]
) -> Iterator[tuple[str, tuple[float, ...]]]:
    yield "entries", found.entries
    yield "increment", found.eigenvalues
    if any(weights):
        yield "weights", tuple(weights)


def _layer(found: MatrixAnalysis) -> float:
    matrix: Matrix = found.matrix
    return -1.0 if matrix.layer is None else matrix.layer
