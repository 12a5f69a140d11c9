"""Methods: one class per family of approximations, one object per method."""

from loca_theory.expressivity.methods.bases import Basis, Cosine, Entries, Fourier
from loca_theory.expressivity.methods.bounds import Bound
from loca_theory.expressivity.methods.coordinates import CoordinateMethod
from loca_theory.expressivity.methods.frozen_factors import FrozenFactors
from loca_theory.expressivity.methods.low_rank import ColumnNormalised, LowRank
from loca_theory.expressivity.methods.method import Engine, Method
from loca_theory.expressivity.methods.registry import (
    DEFAULT_METHODS,
    METHODS,
    definition,
    find_method,
    find_methods,
    own_titles,
)
from loca_theory.expressivity.methods.selection import LocationSelection, Selection
from loca_theory.expressivity.methods.subspace import RandomCosines, RandomLocations, Subspace

__all__ = [
    "DEFAULT_METHODS",
    "METHODS",
    "Basis",
    "Bound",
    "ColumnNormalised",
    "CoordinateMethod",
    "Cosine",
    "Engine",
    "Entries",
    "Fourier",
    "FrozenFactors",
    "LocationSelection",
    "LowRank",
    "Method",
    "RandomCosines",
    "RandomLocations",
    "Selection",
    "Subspace",
    "definition",
    "find_method",
    "find_methods",
    "own_titles",
]
