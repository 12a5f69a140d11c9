"""Compare methods under dependence: tables of losses, crossings and detection."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from loca_theory import _arguments
from loca_theory.dependence import draws as draw_blocks
from loca_theory.dependence.design import (
    DEFAULT_DRAWS,
    DEFAULT_LEVEL,
    DEFAULT_NULL_DRAWS,
    Design,
)
from loca_theory.dependence.null_law import evaluate_null, null_cells
from loca_theory.dependence.predictions import Prediction
from loca_theory.dependence.protocols import COMPARED, Protocol, find_protocols
from loca_theory.dependence.results import CorrelationResult
from loca_theory.dependence.structures import STRUCTURES, find_structure
from loca_theory.dependence.tables import Configuration, crossing_rows, detection_rows, loss_rows
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import METHODS, Method
from loca_theory.expressivity.methods.registry import find_methods
from loca_theory.expressivity.monte_carlo import MonteCarlo, Sampler, Series
from loca_theory.sweeps import Runner
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.runner import DEFAULT_RUNNER

# Number of draws of the low-rank loss of independent entries, which the closed forms use.
_LOSS_DRAWS = 400


def correlate(
    size: int | None = None,
    *,
    ranks: int | Iterable[int],
    shape: tuple[int, int] | None = None,
    structures: str | Iterable[str] = tuple(STRUCTURES),
    protocols: str | Iterable[str] = tuple(Protocol),
    methods: str | Method | Iterable[str | Method] | None = None,
    rho: float | Iterable[float] | None = None,
    fraction: float | Iterable[float] | None = None,
    exponent: float | Iterable[float] | None = None,
    draws: int = DEFAULT_DRAWS,
    seed: int = 0,
    level: float = DEFAULT_LEVEL,
    null_draws: int = DEFAULT_NULL_DRAWS,
    spikes: int = 1,
    rho_columns: float | None = None,
    block: int | None = None,
    runner: Runner = DEFAULT_RUNNER,
) -> CorrelationResult:
    """Find where dependence makes LoRA overtake DCT selection, and how often a test detects it.

    Args:
        size: Size K of a square matrix.
        ranks: LoRA ranks r, which set the budgets.
        shape: A rectangular shape (p, q) instead of a size.
        structures: Kinds of dependence, names in :data:`~loca_theory.dependence.STRUCTURES`.
        protocols: What the low-rank error is compared with: under ``same-draw``, errors on the same
            matrix; under ``iid-reference``, errors on a matrix with independent entries.
        methods: Methods or their names in addition to the methods R and D, which the crossings
            compare; None for the lines of the paper's figures. Under ``same-draw`` your own method
            is applied to the draws if it approximates matrices; under ``iid-reference`` its exact
            error is used, if known.
        rho: Correlations, increasing; None for 0, 0.01, ..., 0.4.
        fraction: Fractions of the energy in the spikes, increasing; None for 0, 0.02, ..., 0.4.
        exponent: Exponents of the power laws, increasing; None for 0, 0.1, ..., 1.5.
        draws: Number of draws of each structure, at least 2; all values share the random numbers.
        seed: Root seed.
        level: Size of the tests of independence.
        null_draws: Number of draws of the statistics under independence.
        spikes: Number of equally strong directions of ``spiked``.
        rho_columns: Correlation of neighbouring columns under ``ar1``; None for that of
            neighbouring rows, ``rho``.
        block: Rows, and columns, of a block of ``blocks``, a divisor of p and q; None for the
            largest up to 16.
        runner: Runner that computes the draws.

    Raises:
        InvalidArgumentError: a name is unknown, a number is out of range, an argument belongs to
            none of the structures, or a method has no value under any of the protocols.
        ResourceError: the workers or the store fail; finished blocks remain in the store.

    >>> import loca_theory.dependence as dependence
    >>> found = dependence.correlate(
    ...     24, ranks=2, structures="spiked", fraction=[0, 0.2, 0.4], draws=10, null_draws=400
    ... )
    >>> [(row.r, row.finding) for row in found.crossings if row.protocol == "same-draw"]
    [(2, 'crossing')]
    """
    if (size is None) == (shape is None):
        msg = "give either size (a square matrix) or shape=(p, q)"
        raise InvalidArgumentError(msg)
    if shape is None:
        p = q = _arguments.whole_number("size", size)
    else:
        p, q = _arguments.shape(shape)
    study = Study(
        p,
        q,
        _arguments.ranks(ranks),
        structures=_arguments.as_tuple(structures),
        protocols=find_protocols(protocols),
        methods=None if methods is None else find_methods(methods),
        rho=None if rho is None else _arguments.numbers("rho", rho),
        fraction=None if fraction is None else _arguments.numbers("fraction", fraction),
        exponent=None if exponent is None else _arguments.numbers("exponent", exponent),
        draws=draws,
        seed=seed,
        level=level,
        null_draws=null_draws,
        spikes=spikes,
        rho_columns=rho_columns,
        block=block,
    )
    return study.run(_arguments.instance("runner", runner, Runner))


class Study(Design):
    """A :class:`Design` that can be run; it takes the same arguments."""

    def run(self, runner: Runner = DEFAULT_RUNNER) -> CorrelationResult:
        """Compute the tables."""
        configurations = [
            (name, value) for name in self.structures for value in self._all_values(name)
        ]
        blocks = self._blocks(configurations, self.drawn, runner)
        predictions = self._predictions(runner)
        nulls = {centred: self._null(runner, centred) for centred in (False, True)}
        crossings = crossing_rows(
            self,
            blocks,
            predictions,
            lambda configurations: self._blocks(configurations, COMPARED, runner),
        )
        return CorrelationResult(
            manifest(grid=self.describe(), seed=self.seed),
            rows=tuple(loss_rows(self, blocks, predictions)),
            crossings=tuple(crossings),
            detection=tuple(detection_rows(self, blocks, nulls)),
        )

    def _all_values(self, name: str) -> list[float]:
        return sorted({*self.grid(name), *self.detection_values(name)})

    def _cells(
        self, name: str, value: float, methods: tuple[Method, ...]
    ) -> list[draw_blocks.DrawCell]:
        return [
            draw_blocks.DrawCell(
                find_structure(name, self.option(name)),
                value,
                self.p,
                self.q,
                self.ranks,
                self.seed,
                (start, min(start + draw_blocks.BLOCK, self.draws)),
                methods,
                with_centred=value in self.detection_values(name),
            )
            for start in range(0, self.draws, draw_blocks.BLOCK)
        ]

    def _blocks(
        self, configurations: Sequence[Configuration], methods: tuple[Method, ...], runner: Runner
    ) -> dict[Configuration, draw_blocks.Blocks]:
        cells = [self._cells(*configuration, methods) for configuration in configurations]
        # All values of a block come one after the other, because the draws of the last block are
        # cached.
        order = sorted(
            ((i, j) for i, block in enumerate(cells) for j in range(len(block))),
            key=lambda pair: (configurations[pair[0]][0], pair[1], pair[0]),
        )
        results = runner.run([cells[i][j] for i, j in order], draw_blocks.evaluate)
        by_block = dict(zip(order, results, strict=True))
        return {
            configuration: draw_blocks.Blocks([by_block[i, j] for j in range(len(cells[i]))])
            for i, configuration in enumerate(configurations)
        }

    def _predictions(self, runner: Runner) -> list[Prediction]:
        p, q = self.p, self.q
        fewer = tuple(r - 1 for r in self.ranks if r > 1)
        series = [Series(METHODS["R"], p, q, self.ranks, Sampler.REDUCED)]
        if fewer:
            series.append(Series(METHODS["R"], p - 1, q - 1, fewer, Sampler.REDUCED))
        settings = MonteCarlo(_LOSS_DRAWS, self.seed)
        losses, *rest = settings.run(series, replace(runner, progress=None))
        without = dict(zip(fewer, rest[0], strict=True)) if fewer else {}
        return [
            Prediction(
                budget,
                loss.error,
                without[budget.r - 1].error if budget.r > 1 else 1.0,
                {name: self.option(name) for name in self.structures},
            )
            for budget, loss in zip(self.budgets, losses, strict=True)
        ]

    def _null(self, runner: Runner, is_centred: bool) -> dict[str, NDArray[np.float64]]:
        cells = null_cells(self.p - is_centred, self.q, self.null_draws, self.seed)
        blocks = runner.run(cells, evaluate_null)
        return {name: np.concatenate([one[name] for one in blocks]) for name in blocks[0]}
