"""Monte Carlo estimates of errors, which the sweep engine computes and stores in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np

from loca_theory._arguments import fields_to_int
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Accounting, Budget
from loca_theory.expressivity.methods import Method
from loca_theory.expressivity.methods.method import Engine, checked_numbers
from loca_theory.expressivity.methods.registry import identity, is_recognisable
from loca_theory.sweeps import Cell, Runner, generator
from loca_theory.sweeps.random import Moments
from loca_theory.sweeps.runner import DEFAULT_RUNNER

_EXPERIMENT = "expressivity.monte-carlo"
PACKAGES = (
    "loca_theory.expressivity",
    "loca_theory.increments",
    "loca_theory.sweeps.random",
    "loca_theory.transforms",
)
"""The packages whose code computes errors."""
# Draws per cell. Fixed, so that a run with more draws reuses the stored blocks of a shorter run.
_BLOCK = 25


class Sampler(StrEnum):
    """How the draws of an error are made.

    - ``reduced``: from the law of the error, by a distributional identity; fast at any size.
    - ``dense``: by applying the method to a dense W. All methods get the same draws of W.
    """

    REDUCED = "reduced"
    DENSE = "dense"


@dataclass(frozen=True)
class Series:
    """One method at one shape, for several ranks that share their draws.

    Attributes:
        method: The method.
        p: Rows.
        q: Columns.
        ranks: The ranks r.
        sampler: How the draws are made.
    """

    method: Method
    p: int
    q: int
    ranks: tuple[int, ...]
    sampler: Sampler


@dataclass(frozen=True)
class Estimate:
    """A Monte Carlo mean.

    Attributes:
        error: Mean relative error.
        standard_error: Standard error of the mean; None if there is a single draw.
        draws: Number of draws.
    """

    error: float
    standard_error: float | None
    draws: int


@dataclass(frozen=True)
class MonteCarlo:
    """Settings of Monte Carlo estimates.

    Attributes:
        draws: Independent draws of W per method, at least 1.
        seed: Root seed, not negative.
        accounting: What is charged to a budget.
        value_bits: Bits of a stored number.
        device: ``cpu`` or a CUDA device, for the dense sampler.
    """

    draws: int
    seed: int = 0
    accounting: Accounting = Accounting.PAPER
    value_bits: int = 16
    device: str = "cpu"

    def __post_init__(self) -> None:
        fields_to_int(self, "draws", "seed", "value_bits")
        if self.draws < 1:
            msg = f"a simulation needs at least 1 draw (2 for a standard error), not {self.draws}"
            raise InvalidArgumentError(msg)
        if self.seed < 0:
            msg = f"the seed must not be negative, and is {self.seed}"
            raise InvalidArgumentError(msg)

    def run(
        self, series: Sequence[Series], runner: Runner = DEFAULT_RUNNER
    ) -> list[list[Estimate]]:
        """Estimate every series.

        Returns:
            For each series one :class:`Estimate` per rank.
        """
        self.check(series)
        if self.device != "cpu":
            runner = replace(runner, jobs=1)
        cells = [cell for one in series for cell in self._cells(one)]
        blocks = [Moments.from_json(one) for one in runner.run(cells, evaluate)]
        count = len(blocks) // max(len(series), 1)
        merged = [Moments.merge(blocks[i : i + count]) for i in range(0, len(blocks), count or 1)]
        return [_estimates(moments) for moments in merged]

    def check(self, series: Sequence[Series]) -> None:
        """Check that every method supports the sampler of its series."""
        for one in series:
            name = one.method.display_name
            first = Budget(one.p, one.q, one.ranks[0], self.accounting, self.value_bits)
            if Engine.MONTE_CARLO not in one.method.engines(first):
                msg = f"{name} is a formula and cannot be simulated; use the exact engine"
                raise InvalidArgumentError(msg)
            if one.sampler is Sampler.REDUCED and not one.method.defines("sample"):
                msg = f'{name} has no reduced sampler; use sampler="dense"'
                raise InvalidArgumentError(msg)
            if one.sampler is Sampler.DENSE and not one.method.can_approximate:
                msg = f'{name} does not approximate matrices; use sampler="reduced"'
                raise InvalidArgumentError(msg)

    def _cells(self, one: Series) -> list[ErrorCell]:
        return [
            ErrorCell(
                one.method,
                one.p,
                one.q,
                one.ranks,
                one.sampler,
                self.accounting,
                self.value_bits,
                self.seed,
                (start, min(start + _BLOCK, self.draws)),
                self.device if one.sampler is Sampler.DENSE else None,
            )
            for start in range(0, self.draws, _BLOCK)
        ]


@dataclass(frozen=True)
class ErrorCell(Cell):
    """One block of draws of the errors of one method, for several ranks that share their draws."""

    experiment = _EXPERIMENT
    packages = PACKAGES

    method: Method = field(metadata={"describe": identity})
    p: int
    q: int
    ranks: tuple[int, ...]
    sampler: Sampler
    accounting: Accounting
    value_bits: int
    seed: int
    draws: tuple[int, int]
    device: str | None

    @property
    def is_storable(self) -> bool:
        """Whether the method can be distinguished from another of the same name."""
        return is_recognisable(self.method)


def evaluate(cell: ErrorCell) -> dict[str, Any]:
    """Moments of the errors in one block of draws: the work that a sweep distributes."""
    method, path = cell.method, (_EXPERIMENT, cell.p, cell.q, cell.sampler.value)
    budgets = [Budget(cell.p, cell.q, r, cell.accounting, cell.value_bits) for r in cell.ranks]

    def one_draw(draw: int) -> np.ndarray:
        rng = generator(cell.seed, *path, method.name, draw)
        if cell.sampler is Sampler.REDUCED:
            return checked_numbers(method, "sample", budgets, rng)
        from loca_theory.expressivity.matrices import dense_errors  # imports torch

        # All methods get the same matrices, so that the differences between methods are precise.
        matrix_rng = generator(cell.seed, *path, draw)
        return dense_errors(method, budgets, matrix_rng, rng, cell.device or "cpu")

    return Moments.of([one_draw(draw) for draw in range(*cell.draws)]).to_json()


def _estimates(moments: Moments) -> list[Estimate]:
    errors = moments.standard_error
    return [
        Estimate(float(mean), None if errors is None else float(errors[i]), moments.count)
        for i, mean in enumerate(moments.mean)
    ]
