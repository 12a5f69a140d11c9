"""The experiment on a block of problems, as a point of a sweep."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import torch

from loca_theory.convergence.interpretations import find_interpretation
from loca_theory.convergence.problems import SAMPLES, Family, Problems, draw
from loca_theory.convergence.searches import Noise, Search, find_search
from loca_theory.convergence.state import Rates, State
from loca_theory.sweeps import Point, code_version, generator

EXPERIMENT, TRACE = "toy", "toy trace"
# Steps between looks at whether a problem has diverged.
_LOOK_EVERY = 50
# Entries of the spectra of a block, enough for the overhead of a step to be small beside it; at
# larger sizes so many problems, or what fits into memory.
_BLOCK_ENTRIES, _FEWEST, _MOST_ENTRIES = 18_000, 20, 2**20
# So many steps of a trace are kept.
_TRACED = 200


def block(size: int) -> int:
    """Problems of one point; fixed, so that asking for more extends a run."""
    return max(_BLOCK_ENTRIES // size**2, min(_FEWEST, _MOST_ENTRIES // size**2), 1)


def point(
    family: Family,
    interpretation: str,
    search: str,
    rates: Rates,
    steps: int,
    seed: int,
    numbers: tuple[int, int],
) -> Point:
    """The sweep's point for a block of problems, or for the trace of one.

    Args:
        family: Which problems.
        interpretation: Name of an interpretation.
        search: Name of a search.
        rates: Learning rates.
        steps: Evaluations of the gradient.
        seed: Root seed.
        numbers: First problem, and the one after the last.
    """
    parameters = {
        "size": family.size,
        "components": family.components,
        "condition": family.condition,
        "samples": SAMPLES,
        "interpretation": interpretation,
        "search": search,
        "rates": [rates.lr, rates.location_lr],
        "steps": steps,
        "seed": seed,
        "problems": list(numbers),
    }
    return Point(EXPERIMENT, parameters)


def version() -> str:
    """Version of the code and libraries that the outcomes depend on."""
    return code_version(compute, compute_trace)


def compute(given: Point) -> dict[str, Any]:
    """Outcomes of every problem of a block.

    Returns:
        ``found``, how many of the true locations are occupied in the end, none where the loss
        diverged; ``exact``, whether all are; ``loss``, the final loss in units
        of that at ΔW = 0, or None where it diverged.
    """
    state, _ = _run(given)
    return outcomes(state)


def outcomes(state: State) -> dict[str, list[Any]]:
    """What has become of the problems; see :func:`compute`."""
    state.stop_diverged()
    indices, true = state.indices, state.problems.indices
    found = (true[:, :, None] == indices[:, None, :]).any(2).sum(1)
    found = torch.where(state.is_diverged, 0, found)
    exact = found == true.shape[1]
    loss = state.relative_loss()
    return {
        "found": found.tolist(),
        "exact": exact.tolist(),
        "loss": [_finite(value) for value in loss.tolist()],
    }


def compute_trace(given: Point) -> dict[str, Any]:
    """One problem's way.

    Returns:
        ``truth``, true components as [row, column, coefficient]; ``steps``, the steps that are
        saved (0 is the start); ``losses`` after each, in units of that at ΔW = 0; ``components``,
        for each, rows, columns and coefficients. Losses and coefficients that diverged are None.
    """
    state, trace = _run(given, traced=True)
    size, problems = state.problems.size, state.problems
    truth = zip(problems.indices[0].tolist(), problems.coefficients[0].tolist(), strict=True)
    return {"truth": [[*divmod(set_indices, size), a] for set_indices, a in truth], **trace}


def _run(given: Point, *, traced: bool = False) -> tuple[State, dict[str, list[Any]]]:
    p = given.parameters
    family = Family(p["size"], p["components"], p["condition"])
    problems = _problems(family, p["interpretation"], p["seed"], *p["problems"])
    interpretation = find_interpretation(p["interpretation"])
    state = State(problems, interpretation, Rates(*p["rates"]))
    search = find_search(p["search"]).make(state, _noise(given))
    steps, end = p["steps"], interpretation.moving_steps(p["steps"])
    every = max(1, steps // _TRACED)
    trace: dict[str, list[Any]] = {"steps": [], "losses": [], "components": []}
    for step in range(steps):
        if traced and step % every == 0:
            _record(state, trace, step)
        _advance(search, step, end)
        if step % _LOOK_EVERY == _LOOK_EVERY - 1:
            state.stop_diverged()
    if traced:
        _record(state, trace, steps)
    return state, trace


def _advance(search: Search, step: int, end: int) -> None:
    """One evaluation of the gradient."""
    if step < end and search.moves_at(step):
        search.move(step / end)
    elif search.descends:
        search.state.descend()


def _record(state: State, trace: dict[str, list[Any]], step: int) -> None:
    size = state.problems.size
    loss = float(state.relative_loss()[0])
    pairs = zip(state.indices[0].tolist(), state.coefficients[0].tolist(), strict=True)
    trace["steps"].append(step)
    trace["losses"].append(_finite(loss))
    trace["components"].append(
        [[*divmod(set_indices, size), _finite(a)] for set_indices, a in pairs]
    )


def _finite(value: float) -> float | None:
    """None for what JSON has no number for."""
    return value if math.isfinite(value) else None


@lru_cache(maxsize=4)
def _problems(family: Family, interpretation: str, seed: int, first: int, end: int) -> Problems:
    return draw(family, find_interpretation(interpretation), seed, range(first, end))


def _noise(given: Point) -> Noise:
    p = given.parameters
    first, end = p["problems"]
    rows = block(p["size"])
    number, within = divmod(first, rows)
    set_indices = (p["seed"], "toy search", p["search"], p["size"], p["components"], number)
    source = generator(*set_indices)

    def draw_noise(count: int) -> torch.Tensor:
        # Of a whole block, so that a problem's noise does not depend on how many are asked for.
        drawn = source.standard_exponential((rows, count))
        return torch.from_numpy(drawn[within : within + end - first])

    return draw_noise
