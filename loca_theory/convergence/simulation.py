"""The toy experiment on a block of problems, as a cell of a sweep."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any

import torch

from loca_theory.convergence.interpretations import Interpretation
from loca_theory.convergence.problems import ProblemFamily, draw
from loca_theory.convergence.search import Noise, Search
from loca_theory.convergence.searches import SearchKind
from loca_theory.convergence.state import Rates, State
from loca_theory.sweeps import Cell, generator

TOY_PACKAGES = (
    "loca_theory.convergence",
    "loca_theory.locations",
    "loca_theory.sweeps.random",
    "loca_theory.transforms",
)
"""The packages whose code solves the problems."""
# Steps between checks for divergence.
_LOOK_EVERY = 50
# A block has about this many spectrum entries, so that the overhead of a step is small. At larger
# sizes it has _FEWEST problems, or fewer if their entries exceed _MOST_ENTRIES.
_BLOCK_ENTRIES, _FEWEST, _MOST_ENTRIES = 18_000, 20, 2**20
# Approximate number of recorded steps of a trace.
_TRACED = 200


def block(size: int) -> int:
    """Number of problems per cell; fixed, so that a run with more problems extends this one."""
    return max(_BLOCK_ENTRIES // size**2, min(_FEWEST, _MOST_ENTRIES // size**2), 1)


@dataclass(frozen=True)
class ToyCell(Cell):
    """A block of problems that one search solves under one interpretation.

    ``problems`` holds the number of the first, and one past the last. Only the trace of a single
    problem is recorded, by :func:`evaluate_trace`.
    """

    experiment = "toy"
    packages = TOY_PACKAGES

    family: ProblemFamily
    interpretation: Interpretation
    search: SearchKind = field(metadata={"describe": attrgetter("name")})
    rates: Rates
    steps: int
    seed: int
    problems: tuple[int, int]
    is_traced: bool = False


def evaluate(cell: ToyCell) -> dict[str, Any]:
    """Compute the outcomes of every problem of a block.

    Returns:
        ``found``, the number of true locations that are occupied at the end, 0 if the loss
        diverged; ``exact``, whether all are; ``loss``, the final loss in units of the loss at
        ΔW = 0, or None if it diverged.
    """
    return outcomes(_run(cell)[0])


def outcomes(state: State) -> dict[str, list[Any]]:
    """Outcomes of the problems; see :func:`evaluate`."""
    state.stop_diverged()
    indices, true = state.indices, state.problems.indices
    count = (true[:, :, None] == indices[:, None, :]).any(2).sum(1)
    count = torch.where(state.is_diverged, 0, count)
    return {
        "found": count.tolist(),
        "exact": (count == true.shape[1]).tolist(),
        "loss": [_finite(value) for value in state.relative_loss().tolist()],
    }


def evaluate_trace(cell: ToyCell) -> dict[str, Any]:
    """Compute the trace of one problem.

    Returns:
        ``truth``, true components as [row, column, coefficient]; ``steps``, the recorded steps (0
        is the start); ``losses`` at each of them, in units of the loss at ΔW = 0; ``components`` at
        each of them, as [row, column, coefficient]. Losses and coefficients that diverged are None.
    """
    state, trace = _run(cell)
    problems = state.problems
    return {"truth": _components(problems.size, problems.indices, problems.coefficients), **trace}


def _run(cell: ToyCell) -> tuple[State, dict[str, list[Any]]]:
    problems = _problems(cell.family, cell.interpretation, cell.seed, range(*cell.problems))
    state = State(problems, cell.interpretation, cell.rates)
    search = cell.search.make(state, _noise(cell))
    steps, end = cell.steps, cell.interpretation.moving_steps(cell.steps)
    interval = max(1, steps // _TRACED)
    trace: dict[str, list[Any]] = {"steps": [], "losses": [], "components": []}
    for step in chain(advance(search, steps, end), [steps]):
        if cell.is_traced and (step % interval == 0 or step == steps):
            trace["steps"].append(step)
            trace["losses"].append(_finite(float(state.relative_loss()[0])))
            components = _components(state.problems.size, state.indices, state.coefficients)
            trace["components"].append(components)
    return state, trace


def advance(search: Search, steps: int, end: int) -> Iterator[int]:
    """Yield the number of each step, and then take it; each evaluates the gradient once."""
    for step in range(steps):
        yield step
        if step < end and search.moves_at(step):
            search.move(step / end)
        elif search.descends:
            search.state.descend()
        if step % _LOOK_EVERY == _LOOK_EVERY - 1:
            search.state.stop_diverged()


def _components(size: int, indices: torch.Tensor, coefficients: torch.Tensor) -> list[list[Any]]:
    """The components of the first problem, as [row, column, coefficient]."""
    pairs = zip(indices[0].tolist(), coefficients[0].tolist(), strict=True)
    return [[*divmod(index, size), _finite(a)] for index, a in pairs]


def _finite(value: float) -> float | None:
    """Return None for infinity and NaN, which JSON cannot hold."""
    return value if math.isfinite(value) else None


# The searches of a block share its problems.
_problems = lru_cache(maxsize=4)(draw)


def _noise(cell: ToyCell) -> Noise:
    first, end = cell.problems
    size, components = cell.family.size, cell.family.components
    rows = block(size)
    number, within = divmod(first, rows)
    source = generator(cell.seed, "toy search", cell.search.name, size, components, number)

    def draw_noise(count: int) -> torch.Tensor:
        # Draw for a whole block, so that a problem's noise does not depend on their number.
        drawn = source.standard_exponential((rows, count))
        return torch.from_numpy(drawn[within : within + end - first])

    return draw_noise
