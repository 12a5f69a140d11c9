"""Monte Carlo estimates of errors, which the sweep engine computes and stores in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.method_numbers import checked_numbers
from loca_theory.expressivity.methods import Method
from loca_theory.expressivity.methods.names import seed_name
from loca_theory.expressivity.methods.registry import identity, is_recognisable
from loca_theory.sweeps import Cell, Runner, generator
from loca_theory.sweeps.random import Moments, draw_blocks
from loca_theory.sweeps.runner import DEFAULT_RUNNER

_EXPERIMENT = "expressivity.monte-carlo"
ERROR_PACKAGES = (
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
class ErrorCell(Cell):
    """Draws of the errors of one method at budgets of one shape, which share their draws.

    ``draws`` holds the first draw, and one past the last; ``device`` is that of the dense sampler.

    Raises:
        InvalidArgumentError: the method does not support the sampler.
    """

    experiment = _EXPERIMENT
    packages = ERROR_PACKAGES
    result = Moments

    method: Method = field(metadata={"describe": identity})
    budgets: tuple[Budget, ...]
    sampler: Sampler
    draws: tuple[int, int]
    seed: int = 0
    device: str | None = None

    def __post_init__(self) -> None:
        method = self.method
        has = {Sampler.REDUCED: method.defines("sample"), Sampler.DENSE: method.can_approximate}
        if not has[self.sampler]:
            ways_out = (f'sampler="{sampler}"' for sampler in Sampler if has[sampler])
            way_out = next(ways_out, "the exact engine")
            raise InvalidArgumentError(
                f"{method.name} has no {self.sampler} sampler; use {way_out}"
            )

    @property
    def is_storable(self) -> bool:
        """Whether the method can be distinguished from another of the same name."""
        return is_recognisable(self.method)

    @property
    def blocks(self) -> list[ErrorCell]:
        """The same draws in blocks, which a sweep computes and stores one by one."""
        return [replace(self, draws=draws) for draws in draw_blocks(*self.draws, _BLOCK)]


def estimate(cells: Sequence[ErrorCell], runner: Runner = DEFAULT_RUNNER) -> list[Moments]:
    """Estimate the mean errors of each cell's draws, one per budget."""
    if any(cell.device not in (None, "cpu") for cell in cells):
        runner = replace(runner, jobs=1)
    parts = [cell.blocks for cell in cells]
    results = iter(runner.run([block for part in parts for block in part], evaluate))
    return [Moments.merge([next(results) for _ in part]) for part in parts]


def evaluate(cell: ErrorCell) -> Moments:
    """Moments of the errors in one block of draws: the work that a sweep distributes."""
    method, budgets = cell.method, cell.budgets
    path = _EXPERIMENT, budgets[0].p, budgets[0].q, cell.sampler.value

    def one_draw(draw: int) -> np.ndarray:
        rng = generator(cell.seed, *path, seed_name(method.name), draw)
        if cell.sampler is Sampler.REDUCED:
            return checked_numbers(method, "sample", budgets, rng)
        from loca_theory.expressivity.matrices import dense_errors  # imports torch

        # All methods get the same matrices, so that the differences between methods are precise.
        matrix_rng = generator(cell.seed, *path, draw)
        return dense_errors(method, budgets, matrix_rng, rng, cell.device or "cpu")

    return Moments.of([one_draw(draw) for draw in range(*cell.draws)])
