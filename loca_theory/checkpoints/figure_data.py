"""Histograms and spectra of a few matrices, for the figures of an analysis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from loca_theory.checkpoints.matrix import MatrixAnalysis
from loca_theory.checkpoints.rows import FigureData, Matrix
from loca_theory.increments import squared_singular_values

if TYPE_CHECKING:
    from loca_theory.checkpoints.pairs import CheckpointPair

_KINDS = ("query", "value")


def figure_data(
    analyses: Mapping[str, MatrixAnalysis], pair: CheckpointPair
) -> tuple[FigureData, ...]:
    """Histograms and spectra of the representative matrices.

    Args:
        analyses: Results by name of the matrix.
        pair: The checkpoints, for the spectrum of the fine-tuned weights, which is left out if all
            of them are 0.
    """
    names = _representative([one.matrix for one in analyses.values()])
    return tuple(
        FigureData(
            *(name, *matrix.shape, quantity, values),
            sigma=matrix.sigma,
            tv=matrix.tv,
            excess_kurtosis=matrix.excess_kurtosis,
        )
        for name in names
        for matrix in (analyses[name].matrix,)
        for quantity, values in _quantities(analyses[name], pair)
    )


def _representative(matrices: Sequence[Matrix]) -> list[str]:
    """Query and value of the middle layer, as in the paper's Fig. 1, or else the first matrices."""
    chosen: list[str] = []
    for kind in _KINDS:
        mine = sorted((one for one in matrices if one.kind == kind), key=_layer)
        if mine:
            chosen.append(mine[len(mine) // 2].name)
    others = [one.name for one in matrices if one.name not in chosen]
    return (chosen + others)[: len(_KINDS)]


def _quantities(
    found: MatrixAnalysis, pair: CheckpointPair
) -> Iterator[tuple[str, tuple[float, ...]]]:
    from loca_theory.transforms.inputs import balanced

    yield "entries", found.entries
    yield "increment", found.eigenvalues
    weights = pair.tuned_weights(found.matrix.name)
    if weights is not None:
        values = squared_singular_values(balanced(weights, found.matrix.name)[0])
        if values.any():
            yield "weights", tuple(values.tolist())


def _layer(matrix: Matrix) -> float:
    return -1.0 if matrix.layer is None else matrix.layer
