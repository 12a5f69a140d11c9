"""Methods: one class per family of approximations, one object per method."""

from loca_theory.expressivity.methods.bases import (
    Basis,
    Cosine,
    Entries,
    Fourier,
    Haar,
    Hadamard,
    Hartley,
)
from loca_theory.expressivity.methods.block_low_rank import BlockLowRank, Kronecker
from loca_theory.expressivity.methods.bounds import Bound
from loca_theory.expressivity.methods.coordinates import CoordinateMethod
from loca_theory.expressivity.methods.fitted import (
    FittedFactors,
    HadamardOfLowRank,
    HadamardOfWeights,
    ScaledRandomBases,
)
from loca_theory.expressivity.methods.frozen_factors import FrozenFactors
from loca_theory.expressivity.methods.groups import (
    Bands,
    GroupedSelection,
    GroupedSubspace,
    Groups,
    Rows,
)
from loca_theory.expressivity.methods.linear_families import (
    BlockCirculant,
    FrozenFrames,
    LinearFamily,
    RepeatedColumns,
)
from loca_theory.expressivity.methods.low_rank import ColumnNormalised, LowRank
from loca_theory.expressivity.methods.method import Engine, Method
from loca_theory.expressivity.methods.registry import (
    DEFAULT_METHODS,
    METHODS,
    definition,
    existing_methods,
    find_method,
    find_methods,
    identities,
    identity,
    is_recognisable,
    own_titles,
)
from loca_theory.expressivity.methods.selection import LocationSelection, Selection
from loca_theory.expressivity.methods.subspace import (
    PaddedWavelet,
    RandomCosines,
    RandomLocations,
    SharedCoordinates,
    Subspace,
)

__all__ = [
    "DEFAULT_METHODS",
    "METHODS",
    "Bands",
    "Basis",
    "BlockCirculant",
    "BlockLowRank",
    "Bound",
    "ColumnNormalised",
    "CoordinateMethod",
    "Cosine",
    "Engine",
    "Entries",
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
    "PaddedWavelet",
    "RandomCosines",
    "RandomLocations",
    "RepeatedColumns",
    "Rows",
    "ScaledRandomBases",
    "Selection",
    "SharedCoordinates",
    "Subspace",
    "definition",
    "existing_methods",
    "find_method",
    "find_methods",
    "identities",
    "identity",
    "is_recognisable",
    "own_titles",
]
