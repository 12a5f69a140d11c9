"""Statistics of weight increments: tests of normality, and spectra compared with independence.

Functions of the entries of a matrix (counts, eigenvalues) accept tensors and NumPy arrays of any
real type and size, and import torch on first use.
"""

from loca_theory.increments.eigenvalues import (
    leading_squared_singular_values,
    squared_singular_values,
)
from loca_theory.increments.histogram import Histogram, histogram
from loca_theory.increments.marchenko_pastur import MarchenkoPastur
from loca_theory.increments.printed_test import AcceptanceError, PrintedTest, Tail
from loca_theory.increments.ranks import effective_rank, energy_ranks, stable_rank
from loca_theory.increments.shuffling import shuffle
from loca_theory.increments.spectrum import (
    SPIKE_LEVEL,
    BulkFit,
    fit_bulk,
    spectral_statistics,
    spike_quantile,
    tail_exponent,
)
from loca_theory.increments.total_variation import (
    TotalVariation,
    calibrated_test,
    null_statistics,
)
from loca_theory.increments.tracy_widom import (
    edge_scaling,
    tracy_widom_cdf,
    tracy_widom_quantile,
)
from loca_theory.increments.truncated_svd import TruncatedSVD, truncated_svd

__all__ = [
    "SPIKE_LEVEL",
    "AcceptanceError",
    "BulkFit",
    "Histogram",
    "MarchenkoPastur",
    "PrintedTest",
    "Tail",
    "TotalVariation",
    "TruncatedSVD",
    "calibrated_test",
    "edge_scaling",
    "effective_rank",
    "energy_ranks",
    "fit_bulk",
    "histogram",
    "leading_squared_singular_values",
    "null_statistics",
    "shuffle",
    "spectral_statistics",
    "spike_quantile",
    "squared_singular_values",
    "stable_rank",
    "tail_exponent",
    "tracy_widom_cdf",
    "tracy_widom_quantile",
    "truncated_svd",
]
