"""The methods of the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loca_theory.expressivity.methods import bounds
from loca_theory.expressivity.methods.block_low_rank import (
    BlockDiagonalFactor,
    BlockLowRank,
    Kronecker,
)
from loca_theory.expressivity.methods.bounds import Bound
from loca_theory.expressivity.methods.coordinates.bases import (
    COSINE,
    ENTRIES,
    FOURIER,
    HAAR,
    HADAMARD,
    HARTLEY,
)
from loca_theory.expressivity.methods.coordinates.columns import AlignedColumns
from loca_theory.expressivity.methods.coordinates.groups import (
    GroupedSelection,
    GroupedSubspace,
    bands,
    rows,
)
from loca_theory.expressivity.methods.coordinates.selection import LocationSelection, Selection
from loca_theory.expressivity.methods.coordinates.shared import PaddedWavelet, RandomCosines
from loca_theory.expressivity.methods.coordinates.subspace import (
    LargestWeights,
    RandomLocations,
    Subspace,
)
from loca_theory.expressivity.methods.fitted import (
    HadamardOfLowRank,
    ScaledRandomBases,
)
from loca_theory.expressivity.methods.gradient_fits import (
    FrozenFactors,
    RepeatedNumbers,
    VectorBank,
)
from loca_theory.expressivity.methods.linear_families import (
    BlockCirculant,
    RepeatedColumns,
)
from loca_theory.expressivity.methods.low_rank import ColumnNormalised, LowRank
from loca_theory.expressivity.methods.method import Method
from loca_theory.expressivity.methods.names import TEXTS
from loca_theory.expressivity.methods.pretrained.frames import (
    FrozenFrames,
    MinorVectors,
    RandomCores,
    TrainedLeft,
)
from loca_theory.expressivity.methods.pretrained.rotations import (
    BlockRotation,
    PairRotation,
    PrincipalRotation,
    Reflections,
    ScaledBlockRotation,
)
from loca_theory.expressivity.methods.pretrained.weights import HadamardOfWeights, SumWithWeights


def _named(kind: Callable[..., Method], name: str, **settings: Any) -> Method:
    """A method of a kind, with the title and the publication that belong to its name."""
    title, reference = TEXTS[name]
    return kind(name, title, reference, **settings)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        _named(LowRank, "LoRA"),
        _named(Bound, "printed line", error=bounds.printed_line),
        _named(RandomLocations, "random Fourier"),
        _named(Subspace, "random DCT", basis=COSINE, scaling=1.0),
        _named(RandomCosines, "FourierFT", scaling=150.0),
        _named(Bound, "upper bound", error=bounds.upper_bound, large=bounds.limit_of_bounds),
        _named(LocationSelection, "Fourier pairs"),
        _named(Bound, "lower bound", error=bounds.lower_bound, large=bounds.limit_of_bounds),
        _named(Selection, "Fourier", basis=FOURIER),
        _named(Selection, "LoCA", basis=COSINE, scaling=1.0),
        _named(Selection, "entries", basis=ENTRIES),
        _named(Bound, "rate-distortion", error=bounds.rate_distortion),
        _named(ColumnNormalised, "DoRA"),
        _named(FrozenFactors, "VeRA"),
        _named(Subspace, "WaveFT", basis=HAAR, scaling=25.0),
        _named(PaddedWavelet, "WaveFT-PEFT", scaling=25.0),
        _named(Subspace, "SHiRA", basis=ENTRIES, scaling=1.0),
        _named(LargestWeights, "Super-Tuning", basis=ENTRIES, scaling=1.0),
        _named(Subspace, "SSH", basis=HARTLEY),
        _named(GroupedSubspace, "sDCTFT", basis=COSINE, groups=bands),
        _named(BlockCirculant, "C3A"),
        _named(RepeatedColumns, "MiSS"),
        _named(TrainedLeft, "LoRA-FA"),
        _named(MinorVectors, "MiCA"),
        _named(FrozenFrames, "LoRA-XS"),
        _named(RandomCores, "TinyLoRA"),
        _named(BlockRotation, "OFT"),
        _named(ScaledBlockRotation, "BOFT"),
        _named(Reflections, "HRA"),
        _named(PairRotation, "RoAd"),
        _named(PrincipalRotation, "PSOFT"),
        _named(GroupedSelection, "QWHA", basis=HADAMARD, groups=rows),
        _named(GroupedSelection, "MaCP", basis=COSINE, groups=bands),
        _named(AlignedColumns, "DCT-columns"),
        _named(BlockLowRank, "GraLoRA"),
        _named(BlockDiagonalFactor, "BD-LoRA"),
        _named(Kronecker, "LoKr"),
        _named(HadamardOfLowRank, "LoHa"),
        _named(HadamardOfWeights, "HiRA"),
        _named(SumWithWeights, "GLoRA"),
        _named(RepeatedNumbers, "Uni-LoRA"),
        _named(VectorBank, "VB-LoRA"),
        _named(ScaledRandomBases, "RandLoRA"),
    )
}
"""The methods by name, in the order of tables and legends."""
