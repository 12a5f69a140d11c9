"""Compare methods under dependence: tables of losses, crossings and detection."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from loca_theory import _arguments
from loca_theory._lookup import member
from loca_theory.dependence.design import (
    COMPARED,
    DEFAULT_DRAWS,
    DEFAULT_LEVEL,
    DEFAULT_NULL_DRAWS,
    Design,
    Protocol,
)
from loca_theory.dependence.detection import NULL_BLOCK, NullCell, evaluate_null
from loca_theory.dependence.draws import BLOCK, Block, Blocks, DrawCell, evaluate
from loca_theory.dependence.predictions import predictions
from loca_theory.dependence.results import CorrelationResult, PowerRow
from loca_theory.dependence.structure import Structure
from loca_theory.dependence.structures import STRUCTURES, find_structures
from loca_theory.dependence.tables import Configuration, crossing_rows, detection_rows, loss_rows
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import Method
from loca_theory.expressivity.methods.registry import find_methods
from loca_theory.sweeps import Runner
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.random import draw_blocks
from loca_theory.sweeps.runner import DEFAULT_RUNNER, chosen_runner


def correlate(
    size: int | None = None,
    *,
    ranks: int | Iterable[int],
    shape: tuple[int, int] | None = None,
    structures: str | Structure | Iterable[str | Structure] = tuple(STRUCTURES),
    protocols: str | Iterable[str] = ("same-draw", "iid-reference"),
    methods: str | Method | Iterable[str | Method] | None = None,
    rho: float | Iterable[float] | None = None,
    fraction: float | Iterable[float] | None = None,
    exponent: float | Iterable[float] | None = None,
    draws: int = DEFAULT_DRAWS,
    seed: int = 0,
    detect: bool = False,
    level: float = DEFAULT_LEVEL,
    null_draws: int = DEFAULT_NULL_DRAWS,
    runner: Runner | None = None,
) -> CorrelationResult:
    """Find where dependence makes LoRA overtake DCT selection, and how often a test detects it.

    Args:
        size: Size K of a square matrix.
        ranks: LoRA ranks r, which set the budgets.
        shape: A rectangular shape (p, q) instead of a size.
        structures: Kinds of dependence, or what :func:`~loca_theory.dependence.ar1`,
            :func:`~loca_theory.dependence.blocks` and :func:`~loca_theory.dependence.spiked`
            return. A number may follow three names: ``ar1:0.1``, this correlation of neighbouring
            columns, instead of rho; ``blocks:8``, blocks of 8 rows and columns, instead of the
            largest common divisor of the sides up to 16; ``spiked:3``, three random directions of
            equal energy, instead of one. Name your own structure as ``module:attribute``.
        protocols: What the low-rank error is compared with: under ``same-draw``, errors on the same
            matrix; under ``iid-reference``, errors on a matrix with independent entries.
        methods: Methods or their names in addition to LoRA and LoCA, which the crossings
            compare; None for the lines of the paper's figures. Under ``same-draw`` your own method
            is applied to the draws if it approximates matrices; under ``iid-reference`` its exact
            error is used, if known.
        rho: Correlations, increasing, of the structures other than ``spiked``, ``scaled`` and
            ``power-law``; None for 0, 0.01, ..., 0.4.
        fraction: Fractions, increasing, of the energy that ``spiked`` has in random directions;
            None for 0, 0.02, ..., 0.4.
        exponent: Exponents, increasing, with which the variances of ``scaled`` and ``power-law``
            decay; None for 0, 0.1, ..., 1.5.
        draws: Number of draws of each structure, at least 2; all values share the random numbers.
        seed: Root seed.
        detect: Also measure the power of tests that see one matrix.
        level: Size of the tests of independence.
        null_draws: Number of draws of the statistics under independence.
        runner: Runner that computes the draws.

    Raises:
        InvalidArgumentError: a name is unknown, a number is out of range, an argument belongs to
            none of the structures, or a method has no value under any of the protocols.
        ResourceError: the workers or the store fail; finished blocks remain in the store.

    >>> import loca_theory.dependence as dependence
    >>> found = dependence.correlate(
    ...     24, ranks=2, structures="spiked", fraction=[0, 0.2, 0.4], draws=10
    ... )
    >>> [(row.r, row.finding) for row in found.crossings if row.protocol == "same-draw"]
    [(2, 'crossing')]
    """
    if (size is None) == (shape is None):
        raise InvalidArgumentError("give either size=... (a square matrix) or shape=...")
    if shape is None:
        p = q = _arguments.whole_number("size", size)
    else:
        p, q = _arguments.shape(shape)
    names = _arguments.as_tuple(protocols)
    study = Study(
        p,
        q,
        _arguments.ranks(ranks),
        find_structures(structures),
        protocols=tuple(member(Protocol, "protocol", name) for name in names),
        methods=None if methods is None else find_methods(methods),
        rho=None if rho is None else _arguments.numbers("rho", rho),
        fraction=None if fraction is None else _arguments.numbers("fraction", fraction),
        exponent=None if exponent is None else _arguments.numbers("exponent", exponent),
        draws=draws,
        seed=seed,
        detect=detect,
        level=level,
        null_draws=null_draws,
    )
    return study.run(chosen_runner(runner))


class Study(Design):
    """A :class:`Design` that can be run; it takes the same arguments."""

    def run(self, runner: Runner = DEFAULT_RUNNER) -> CorrelationResult:
        """Compute the tables."""
        configurations = [
            (structure, value)
            for structure in self.structures
            for value in sorted({*self.grid(structure), *self.detection_values(structure)})
        ]
        drawn = self._blocks(configurations, self.drawn, runner)
        forms = predictions(self.budgets)
        crossings = crossing_rows(
            self, drawn, forms, lambda pairs: self._blocks(pairs, COMPARED, runner)
        )
        detection: tuple[PowerRow, ...] = ()
        if self.detect:
            nulls = {is_centred: self._null(runner, is_centred) for is_centred in (False, True)}
            detection = tuple(detection_rows(self, drawn, nulls))
        return CorrelationResult(
            manifest(grid=self.describe(), seed=self.seed),
            rows=tuple(loss_rows(self, drawn, forms)),
            crossings=tuple(crossings),
            detection=detection,
        )

    def _blocks(
        self, configurations: Sequence[Configuration], methods: tuple[Method, ...], runner: Runner
    ) -> dict[Configuration, Blocks]:
        # All values of a block come one after the other, because the draws of the last block are
        # cached.
        cells = [
            DrawCell(
                structure,
                value,
                self.p,
                self.q,
                self.ranks,
                self.seed,
                draws,
                methods,
                with_centred=value in self.detection_values(structure),
            )
            for ordered in self.structures
            for draws in draw_blocks(0, self.draws, BLOCK)
            for structure, value in configurations
            if structure is ordered
        ]
        results_of: dict[Configuration, list[Block]] = {pair: [] for pair in configurations}
        for cell, result in zip(cells, runner.run(cells, evaluate), strict=True):
            results_of[cell.structure, cell.value].append(result)
        return {configuration: Blocks(results) for configuration, results in results_of.items()}

    def _null(self, runner: Runner, is_centred: bool) -> dict[str, NDArray[np.float64]]:
        blocks = draw_blocks(0, self.null_draws, NULL_BLOCK)
        cells = [NullCell(self.p - is_centred, self.q, self.seed, draws) for draws in blocks]
        drawn = runner.run(cells, evaluate_null)
        return {name: np.concatenate([block[name] for block in drawn]) for name in drawn[0]}
