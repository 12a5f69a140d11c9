"""How well low-rank, Fourier and cosine adapters can reconstruct a Gaussian matrix.

Every approximation is a :class:`Method`. Exact and asymptotic errors and the reduced sampler need
only NumPy and SciPy. The functions that take a matrix, such as :func:`approximate` and
:func:`retained_energies`, import torch on first use.
"""

from typing import TYPE_CHECKING

from loca_theory._lazy import lazy_exports
from loca_theory.expressivity.bidiagonal import leading_rows, sample_leading_eigenvalues
from loca_theory.expressivity.budgets import Accounting, Budget
from loca_theory.expressivity.catalogue import Catalogue, CatalogueResult, CatalogueRow
from loca_theory.expressivity.formulas import exact_error
from loca_theory.expressivity.limits import (
    Crossing,
    coefficient_fraction,
    limit_crossings,
    location_fraction,
    low_rank_fraction,
)
from loca_theory.expressivity.low_rank_exact import (
    LARGEST_EXACT_RANK,
    LARGEST_EXACT_SIZE,
    expected_leading_energy,
)
from loca_theory.expressivity.method_table import MethodRow, MethodTable
from loca_theory.expressivity.methods import (
    DEFAULT_METHODS,
    METHODS,
    Bands,
    Basis,
    BlockCirculant,
    BlockLowRank,
    Bound,
    ColumnNormalised,
    CoordinateMethod,
    Cosine,
    Engine,
    Entries,
    FittedFactors,
    Fourier,
    FrozenFactors,
    FrozenFrames,
    GroupedSelection,
    GroupedSubspace,
    Groups,
    Haar,
    Hadamard,
    HadamardOfLowRank,
    HadamardOfWeights,
    Hartley,
    Kronecker,
    LinearFamily,
    LocationSelection,
    LowRank,
    Method,
    PaddedWavelet,
    RandomCosines,
    RandomLocations,
    RepeatedColumns,
    Rows,
    ScaledRandomBases,
    Selection,
    SharedCoordinates,
    Subspace,
    find_method,
    find_methods,
)
from loca_theory.expressivity.monte_carlo import Estimate, MonteCarlo, Sampler, Series
from loca_theory.expressivity.order_statistics import (
    expected_location_sum,
    expected_top_sum,
    expected_top_sum_with_outlier,
)
from loca_theory.expressivity.ordering import (
    ORDERING_ACCOUNTINGS,
    THEOREM_1_ORDER,
    Ordering,
    OrderingResult,
    OrderingRow,
)
from loca_theory.expressivity.simulation import (
    ErrorRow,
    Simulation,
    SimulationResult,
    simulate,
    squares,
)
from loca_theory.expressivity.spectral import (
    LowRankComparison,
    compare_with_low_rank,
    has_spectral_error,
    spectral_error,
)
from loca_theory.expressivity.unequal_variances import expected_top_sum_of_unequal

if TYPE_CHECKING:
    from loca_theory.expressivity.matrices import (
        approximate,
        dense_errors,
        mean_retained_energies,
        retained_energies,
    )

__all__ = [
    "DEFAULT_METHODS",
    "LARGEST_EXACT_RANK",
    "LARGEST_EXACT_SIZE",
    "METHODS",
    "ORDERING_ACCOUNTINGS",
    "THEOREM_1_ORDER",
    "Accounting",
    "Bands",
    "Basis",
    "BlockCirculant",
    "BlockLowRank",
    "Bound",
    "Budget",
    "Catalogue",
    "CatalogueResult",
    "CatalogueRow",
    "ColumnNormalised",
    "CoordinateMethod",
    "Cosine",
    "Crossing",
    "Engine",
    "Entries",
    "ErrorRow",
    "Estimate",
    "FittedFactors",
    "Fourier",
    "FrozenFactors",
    "FrozenFrames",
    "GroupedSelection",
    "GroupedSubspace",
    "Groups",
    "Haar",
    "Hadamard",
    "HadamardOfLowRank",
    "HadamardOfWeights",
    "Hartley",
    "Kronecker",
    "LinearFamily",
    "LocationSelection",
    "LowRank",
    "LowRankComparison",
    "Method",
    "MethodRow",
    "MethodTable",
    "MonteCarlo",
    "Ordering",
    "OrderingResult",
    "OrderingRow",
    "PaddedWavelet",
    "RandomCosines",
    "RandomLocations",
    "RepeatedColumns",
    "Rows",
    "Sampler",
    "ScaledRandomBases",
    "Selection",
    "Series",
    "SharedCoordinates",
    "Simulation",
    "SimulationResult",
    "Subspace",
    "approximate",
    "coefficient_fraction",
    "compare_with_low_rank",
    "dense_errors",
    "exact_error",
    "expected_leading_energy",
    "expected_location_sum",
    "expected_top_sum",
    "expected_top_sum_of_unequal",
    "expected_top_sum_with_outlier",
    "find_method",
    "find_methods",
    "has_spectral_error",
    "leading_rows",
    "limit_crossings",
    "location_fraction",
    "low_rank_fraction",
    "mean_retained_energies",
    "retained_energies",
    "sample_leading_eigenvalues",
    "simulate",
    "spectral_error",
    "squares",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "approximate": "matrices",
        "dense_errors": "matrices",
        "mean_retained_energies": "matrices",
        "retained_energies": "matrices",
    },
)
