"""The methods of the package."""

from __future__ import annotations

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

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        LowRank("LoRA", "LoRA, best rank-r approximation", "arXiv:2106.09685"),
        Bound(
            "printed line",
            "random locations, the paper's line 1 - N0/pq",
            error=bounds.printed_line,
        ),
        RandomLocations("random Fourier", "Fourier, random locations"),
        Subspace("random DCT", "DCT, random locations", basis=COSINE, scaling=1.0),
        RandomCosines(
            "FourierFT",
            "real coefficients, random locations, full spectrum",
            "arXiv:2405.03003",
            scaling=150.0,
        ),
        Bound(
            "upper bound",
            "upper bound on the error of Fourier pairs",
            error=bounds.upper_bound,
            large=bounds.limit_of_bounds,
        ),
        LocationSelection("Fourier pairs", "Fourier, best locations"),
        Bound(
            "lower bound",
            "lower bound on the error of Fourier pairs",
            error=bounds.lower_bound,
            large=bounds.limit_of_bounds,
        ),
        Selection("Fourier", "Fourier, best single coefficients", basis=FOURIER),
        Selection(
            "LoCA",
            "DCT, best coefficients (LoCA's target)",
            "arXiv:2502.06820",
            basis=COSINE,
            scaling=1.0,
        ),
        Selection("entries", "the largest entries of the matrix itself", basis=ENTRIES),
        Bound(
            "rate-distortion",
            "rate-distortion bound at LoRA's stored bits",
            error=bounds.rate_distortion,
        ),
        ColumnNormalised("DoRA", "column magnitudes times a rank-r direction", "arXiv:2402.09353"),
        FrozenFactors("VeRA", "frozen random factors, trained diagonals", "arXiv:2310.11454"),
        Subspace(
            "WaveFT", "Haar wavelet, random locations", "arXiv:2505.12532", basis=HAAR, scaling=25.0
        ),
        PaddedWavelet(
            "WaveFT-PEFT",
            "as in PEFT: Haar wavelet, odd sides padded",
            "arXiv:2505.12532",
            scaling=25.0,
        ),
        Subspace("SHiRA", "entries, random mask", "arXiv:2406.13175", basis=ENTRIES, scaling=1.0),
        LargestWeights(
            "Super-Tuning",
            "entries, those of the largest pretrained weights",
            "arXiv:2607.09287",
            basis=ENTRIES,
            scaling=1.0,
        ),
        Subspace(
            "SSH",
            "Hartley, locations chosen without the increment",
            "arXiv:2502.05539",
            basis=HARTLEY,
        ),
        GroupedSubspace(
            "sDCTFT",
            "DCT, locations in three bands, chosen without the increment",
            "arXiv:2410.09103",
            basis=COSINE,
            groups=bands,
        ),
        BlockCirculant("C3A", "circulant blocks", "arXiv:2407.19342"),
        RepeatedColumns("MiSS", "columns that repeat", "arXiv:2409.15371"),
        TrainedLeft("LoRA-FA", "LoRA with a frozen random A", "arXiv:2308.03303"),
        MinorVectors(
            "MiCA", "LoRA with B frozen at minor vectors of the weights", "arXiv:2604.01694"
        ),
        FrozenFrames("LoRA-XS", "a square core between frozen frames", "arXiv:2405.17604"),
        RandomCores("TinyLoRA", "random cores between frozen frames", "arXiv:2602.04118"),
        BlockRotation("OFT", "rotated blocks of inputs, small steps", "arXiv:2306.07280"),
        ScaledBlockRotation("BOFT", "OFT with scaled outputs, small steps", "arXiv:2311.06243"),
        Reflections("HRA", "reflections of the inputs, small steps", "arXiv:2405.17484"),
        PairRotation("RoAd", "rotated pairs of outputs, small steps", "arXiv:2409.00119"),
        PrincipalRotation("PSOFT", "rotated principal subspace, small steps", "arXiv:2505.11235"),
        GroupedSelection(
            "QWHA",
            "Hadamard, best coefficients of each row",
            "arXiv:2509.17428",
            basis=HADAMARD,
            groups=rows,
        ),
        GroupedSelection(
            "MaCP",
            "DCT, best coefficients of each of three bands",
            "arXiv:2505.23870",
            basis=COSINE,
            groups=bands,
        ),
        AlignedColumns(
            "DCT-columns", "DCT columns, the best aligned (Trion's frame)", "arXiv:2505.17967"
        ),
        BlockLowRank("GraLoRA", "2x2 blocks of rank r/2", "arXiv:2505.20355"),
        BlockDiagonalFactor("BD-LoRA", "LoRA with two diagonal blocks in B", "arXiv:2510.23346"),
        Kronecker("LoKr", "one Kronecker product of full factors", "arXiv:2309.14859"),
        HadamardOfLowRank("LoHa", "entrywise product of two low-rank matrices", "arXiv:2108.06098"),
        HadamardOfWeights(
            "HiRA", "low rank times the pretrained weights, entrywise", "openreview:TwJrTz9cRS"
        ),
        SumWithWeights("GLoRA", "sum of LoRA's product and HiRA's", "arXiv:2306.07967"),
        RepeatedNumbers("Uni-LoRA", "low rank of numbers that occur twice", "arXiv:2506.00799"),
        VectorBank("VB-LoRA", "low rank of mixtures of vectors from a bank", "arXiv:2405.15179"),
        ScaledRandomBases(
            "RandLoRA", "sum of frozen random bases, trained diagonals", "arXiv:2502.00987"
        ),
    )
}
"""The methods by name, in the order of tables and legends."""
