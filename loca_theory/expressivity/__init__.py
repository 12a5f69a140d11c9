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
from loca_theory.expressivity.low_rank_exact import LARGEST_EXACT, expected_leading_energy
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
    THEOREM_1_ORDER,
    Violation,
    theorem_1_violations,
)
from loca_theory.expressivity.simulation import (
    ErrorRow,
    Simulation,
    SimulationResult,
    simulate,
    squares,
)

if TYPE_CHECKING:
    from loca_theory.expressivity.matrices import (
        approximate,
        dense_errors,
        mean_retained_energies,
        retained_energies,
    )

__all__ = [
    "DEFAULT_METHODS",
    "LARGEST_EXACT",
    "METHODS",
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
    "Method",
    "MethodRow",
    "MethodTable",
    "MonteCarlo",
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
    "Violation",
    "approximate",
    "coefficient_fraction",
    "dense_errors",
    "exact_error",
    "expected_leading_energy",
    "expected_location_sum",
    "expected_top_sum",
    "expected_top_sum_with_outlier",
    "find_method",
    "find_methods",
    "leading_rows",
    "limit_crossings",
    "location_fraction",
    "low_rank_fraction",
    "mean_retained_energies",
    "retained_energies",
    "sample_leading_eigenvalues",
    "simulate",
    "squares",
    "theorem_1_violations",
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
