"""Histograms of the eigenvalues of an increment, small enough to store one per matrix."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loca_theory.checkpoints.figure_rows import EigenvalueHistogram
from loca_theory.checkpoints.rows import Matrix
from loca_theory.increments.spectrum import BulkFit

_CELLS = 40
_LEADING = 12
# The cells of a bulk reach this many times as far as the upper edge of its law.
_BEYOND_EDGE = 1.3
# Smaller eigenvalues, as a power of ten of the largest, come from the rounding of single precision.
_SMALLEST = -12


def eigenvalue_histogram(
    matrix: Matrix,
    eigenvalues: NDArray[np.float64],
    bulk: BulkFit,
    *,
    has_law: bool,
) -> EigenvalueHistogram:
    """Count the eigenvalues of an increment in equal cells."""
    if bulk.sigma is None or not has_law:
        with np.errstate(divide="ignore"):
            values = np.log10(eigenvalues / eigenvalues.max())
        smallest = values[values >= _SMALLEST].min()
        start, stop = min(float(np.floor(smallest)), -1.0), 0.0
    else:
        values = eigenvalues / (max(matrix.shape) * bulk.sigma**2)
        start, stop = 0.0, _BEYOND_EDGE * (1 + (min(matrix.shape) / max(matrix.shape)) ** 0.5) ** 2
    counts, _ = np.histogram(values, _CELLS, (start, stop))
    beyond = np.sort(values[values > stop])[::-1]
    return EigenvalueHistogram(
        name=matrix.name,
        tuned=matrix.tuned,
        is_logarithmic=not has_law,
        start=start,
        stop=stop,
        below=int((values < start).sum()),
        counts=tuple(counts.tolist()),
        above=len(beyond),
        leading=tuple(beyond[:_LEADING].tolist()),
    )
