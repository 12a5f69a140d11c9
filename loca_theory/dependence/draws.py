"""Blocks of draws of a structure: losses of the methods, and test statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial

import numpy as np
import torch

from loca_theory._types import Array
from loca_theory.dependence import structures
from loca_theory.dependence.design import COMPARED, DRAWN
from loca_theory.dependence.detection import (
    DEPENDENCE_PACKAGES,
    STATISTICS,
    centred,
    low_frequency_fraction,
)
from loca_theory.dependence.structure import DrawFamily, Structure
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import Budget, Method
from loca_theory.expressivity.matrices import mean_retained_energies
from loca_theory.expressivity.methods import LowRank
from loca_theory.expressivity.methods.coordinates.bases import COSINE
from loca_theory.expressivity.methods.coordinates.coordinate_method import (
    CoordinateMethod,
    prefix_sums,
)
from loca_theory.expressivity.methods.names import seed_name
from loca_theory.expressivity.methods.registry import identities, is_recognisable
from loca_theory.increments.eigenvalues import squared_singular_values
from loca_theory.increments.spectrum import spectral_statistics
from loca_theory.sweeps import Cell, generator
from loca_theory.sweeps.random import Moments
from loca_theory.transforms import dct2

EXPERIMENT = "dependence"
# Draws per cell. Fixed, so that a run with more draws reuses the stored blocks of a shorter run.
BLOCK = 25
# The draws of a block with at most this many matrix entries (64 MiB) are cached between cells.
_ENTRIES_IN_MEMORY = 2**23


@dataclass(frozen=True)
class Block:
    """Losses and statistics of a block of draws.

    Attributes:
        losses: Moments of the losses of each method, one number per rank.
        gap: Moments of LoRA's loss minus LoCA's on the same draws.
        statistics: Each statistic's value in every draw.
        centred_statistics: The same for the centred matrices; None if they were not asked for.
    """

    losses: dict[str, Moments]
    gap: Moments
    statistics: dict[str, list[float]]
    centred_statistics: dict[str, list[float]] | None


@dataclass(frozen=True)
class DrawCell(Cell):
    """A block of draws of one structure at one value of its parameter.

    ``draws`` holds the first draw, and one past the last; ``methods`` include :data:`COMPARED`.
    """

    experiment = EXPERIMENT
    packages = DEPENDENCE_PACKAGES
    result = Block

    structure: Structure = field(metadata={"describe": structures.structure_identity})
    value: float
    p: int
    q: int
    ranks: tuple[int, ...]
    seed: int
    draws: tuple[int, int]
    methods: tuple[Method, ...] = field(default=DRAWN, metadata={"describe": identities})
    with_centred: bool = False

    @property
    def is_storable(self) -> bool:
        """Whether the structure and every method can be told from others of the same name."""
        is_known = structures.is_known_structure(self.structure)
        return is_known and all(map(is_recognisable, self.methods))


def evaluate(cell: DrawCell) -> Block:
    r"""Compute the losses and the statistics of one block of draws.

    A loss is :math:`(\|W\|^2 - \text{retained})/E\|W\|^2`. The retained energy is subtracted
    from the energy of the same draw, because the fluctuation that a shared mean adds to both would
    otherwise hide the difference.
    """
    p, q, structure = cell.p, cell.q, cell.structure
    energy = structure.energy(p, q, cell.value)
    budgets = [Budget(p, q, r) for r in cell.ranks]
    losses: dict[str, list[Array]] = {method.name: [] for method in cell.methods}
    statistics, centred_statistics = [], []
    family_of = _cached_family if BLOCK * p * q <= _ENTRIES_IN_MEMORY else _family
    for draw in range(*cell.draws):
        matrix = np.asarray(family_of(structure, p, q, cell.seed, draw)(cell.value))
        if matrix.shape != (p, q) or not np.isfinite(matrix).all():
            raise InvalidArgumentError(
                f"{structure.name}.family must give finite {p}x{q} matrices, not "
                f"an array of shape {matrix.shape}: {matrix}"
            )
        total = float(np.square(matrix).sum())
        tensor = torch.from_numpy(matrix)
        eigenvalues = squared_singular_values(tensor)
        spectrum = dct2(tensor)
        # The random choices of a method depend on the draw, but not on the value.
        rng_of = partial(generator, cell.seed, EXPERIMENT, p, q, structure.name, draw)
        retained = _retained(cell.methods, budgets, tensor, spectrum, eigenvalues, rng_of)
        for name, energies in retained.items():
            losses[name].append((total - energies) / energy)
        statistics.append(_statistics(eigenvalues, p, q, spectrum))
        if cell.with_centred:
            spectrum_of_rest = squared_singular_values(torch.from_numpy(centred(matrix)))
            # The first row of the spectrum holds the column means.
            spectrum[0] = 0.0
            centred_statistics.append(_statistics(spectrum_of_rest, p - 1, q, spectrum))
    first, second = (np.array(losses[method.name]) for method in COMPARED)
    return Block(
        losses={name: Moments.of(values) for name, values in losses.items()},
        gap=Moments.of(first - second),
        statistics=_columns(statistics),
        centred_statistics=_columns(centred_statistics) if cell.with_centred else None,
    )


def _statistics(eigenvalues: Array, p: int, q: int, spectrum: torch.Tensor) -> dict[str, float]:
    low = low_frequency_fraction(spectrum.numpy())
    return {**spectral_statistics(eigenvalues, p, q), "low-frequency": low}


def _columns(rows: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    return {name: [row[name] for row in rows] for name in STATISTICS}


def _retained(
    methods: Sequence[Method],
    budgets: Sequence[Budget],
    matrix: torch.Tensor,
    spectrum: torch.Tensor,
    eigenvalues: Array,
    rng_of: Callable[[str], np.random.Generator],
) -> dict[str, Array]:
    """Retained energies of each method, from a known decomposition and DCT."""
    retained: dict[str, Array] = {}
    transformed: list[CoordinateMethod] = []
    for method in methods:
        if type(method) is LowRank:  # a subclass may approximate differently
            ranks = [budget.r for budget in budgets]
            retained[method.name] = prefix_sums(eigenvalues[::-1], ranks)
        elif not isinstance(method, CoordinateMethod):
            rng = rng_of(seed_name(method.name))
            retained |= mean_retained_energies(matrix, [method], budgets, rng)
        elif method.basis == COSINE:
            retained[method.name] = method.mean_sums(spectrum.square().flatten(), budgets)
        else:
            transformed.append(method)
    return retained | mean_retained_energies(matrix, transformed, budgets)


def _family(structure: Structure, p: int, q: int, seed: int, draw: int) -> DrawFamily:
    """A draw as a function of the value, for common random numbers on the grid."""
    return structure.family(p, q, generator(seed, EXPERIMENT, p, q, structure.name, draw))


# Consecutive cells differ only in the value, and share the draws of a block.
_cached_family = lru_cache(maxsize=BLOCK)(_family)


@dataclass(frozen=True)
class Blocks:
    """The results of :func:`evaluate` for all blocks of draws of one structure at one value."""

    results: Sequence[Block]

    def losses(self, method: str) -> tuple[Array, Array]:
        """Mean losses of a method and their standard errors, one per rank."""
        return _mean_and_error([block.losses[method] for block in self.results])

    def gap(self) -> tuple[Array, Array]:
        """Mean loss of LoRA minus LoCA on the same draws, and its standard error, by rank."""
        return _mean_and_error([block.gap for block in self.results])

    def statistic(self, name: str, *, is_centred: bool) -> Array:
        """A statistic's value in every draw."""
        values: list[float] = []
        for block in self.results:
            values += ((block.centred_statistics or {}) if is_centred else block.statistics)[name]
        return np.array(values)


def _mean_and_error(of_blocks: Sequence[Moments]) -> tuple[Array, Array]:
    moments = Moments.merge(of_blocks)
    # NaN for a single draw, which has no standard error.
    return np.array(moments.mean), np.asarray(moments.standard_error, dtype=np.float64)
