"""The toy experiment under several interpretations: success rates, and steps of one component."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from loca_theory.claims.estimates import Estimate, Returned, Rng, Tier, draw_seed, listed
from loca_theory.convergence.descent import Gradient
from loca_theory.convergence.interpretations import Interpretation, find_interpretation
from loca_theory.convergence.problems import SAMPLES, ProblemFamily, Problems, draw
from loca_theory.convergence.search import Search
from loca_theory.convergence.searches import find_search
from loca_theory.convergence.simulation import ToyCell, advance, evaluate
from loca_theory.convergence.state import Rates, State
from loca_theory.convergence.study import DEFAULT_STEPS

# Coefficients within this distance of the true ones, relative to their norm, have converged.
_CLOSE = 0.01


def recovery(
    *, tier: Tier, rng: Rng, search: str, interpretations: Sequence[str] = ("default",)
) -> Returned:
    """Fraction of random problems in which a search finds all true locations, by interpretation.

    Args:
        search: Name of the search; ``central`` is the paper's.
        interpretations: Interpretations of the paper's description.
    """
    problems = tier.scaled(1000, 4000, 20_000) // len(interpretations)
    outcomes = {name: _outcomes(search, name, draw_seed(rng), problems) for name in interpretations}
    diverged = listed({name: np.isinf(loss).sum() for name, (_, loss) in outcomes.items()})
    note = f"{problems} problems per interpretation; diverged: {diverged}"
    return {name: Estimate.exceeding(exact, 0) for name, (exact, _) in outcomes.items()}, note


def final_loss(
    *, tier: Tier, rng: Rng, search: str, over: str, interpretation: str = "default"
) -> Returned:
    """Fraction of the problems with different losses in which one search ends at the lower one.

    Ties, such as where no component moves, are excluded. A problem in which the first search
    diverges counts as a failure.

    Args:
        search: The search that should end at the lower loss.
        over: The search to compare with, on the same problems.
        interpretation: Interpretation of the paper's description.
    """
    # Fractions near one half are not decided by 1000 problems either.
    problems, seed = tier.scaled(250, 16_000, 64_000), draw_seed(rng)
    first, second = (_outcomes(name, interpretation, seed, problems)[1] for name in (search, over))
    lower, ties = int((first < second).sum()), int((first == second).sum())
    note = f"Of {problems} problems, {ties} have the same loss in both."
    return Estimate.fraction(lower, problems - ties), note


def uniqueness(*, tier: Tier, rng: Rng, samples: int = SAMPLES) -> Returned:
    """Smallest rank, over random problems, of the map from F₂ to the outputs; full rank is 36.

    As a function of vec F₂ the loss is quadratic. The rank of its matrix Γ ⊗ Σ is the rank of Γ
    times the rank of Σ.

    Args:
        samples: Number of samples of the data, 5000 as printed.
    """
    numbers = range(tier.scaled(1000, 4000, 20_000))
    problems = draw(ProblemFamily(), Interpretation(), draw_seed(rng), numbers, samples=samples)
    factors = (factor.double().numpy() for factor in (problems.rows, problems.columns))
    gamma, sigma = (np.linalg.matrix_rank(factor, hermitian=True) for factor in factors)
    return (gamma * sigma).min(), f"{len(numbers)} problems."


def advantage(*, tier: Tier, rng: Rng, search: str, over: str, times: float) -> Returned:
    """Fraction of problems recovered by one search, less a multiple of another's on the same ones.

    Args:
        search: The search that should recover more.
        over: The search to compare with.
        times: The multiple.
    """
    problems, seed = tier.scaled(200, 16_000, 64_000), draw_seed(rng)
    exact = (_outcomes(name, "default", seed, problems)[0] for name in (search, over))
    better, worse = (Estimate.exceeding(mask, 0) for mask in exact)
    note = f"{search}: {better.value:.4f}; {over}: {worse.value:.4f}."
    # The error for independent problems is on the safe side: both searches solve the same ones.
    return better.less(worse, times), note


def first_move(*, tier: Tier, rng: Rng, interpretation: str, after: int) -> Returned:
    """Fraction of problems in which the paper's search moves no component in the first steps.

    Args:
        interpretation: Interpretation of the paper's description.
        after: Number of steps.
    """
    count, chosen = tier.scaled(250, 4000, 20_000), find_interpretation(interpretation)
    problems = draw(ProblemFamily(), chosen, draw_seed(rng), range(count))
    search, end = search_of(problems, chosen)
    first = np.full(count, end)
    for step in advance(search, end, end):
        # The state before this step, and so after as many steps.
        has_moved = (search.state.indices != problems.start).any(1).numpy()
        first = np.minimum(first, np.where(has_moved, step, end))
    note = f"The first component moves at step {np.median(first):g} in the median."
    return Estimate.fraction(int((first > after).sum()), count), note


def fixed_locations(*, tier: Tier, rng: Rng, start: str = "true") -> Returned:
    """Fraction of problems in which coefficients alone converge to F₂ to within 1 %.

    The distance is that of the coefficients at the end of all steps, relative to the true ones.

    Args:
        start: The fixed locations: ``true`` or ``random``.
    """
    count = tier.scaled(250, 1000, 4000)
    problems = draw(ProblemFamily(), Interpretation(), draw_seed(rng), range(count))
    if start == "true":
        problems = replace(problems, start=problems.indices)
    search, end = search_of(problems, Interpretation(), "coefficients-only")
    for _ in advance(search, DEFAULT_STEPS, end):
        pass
    state, true = search.state, problems.coefficients
    gap = (state.coefficients - true).norm(dim=1) / true.norm(dim=1)
    has_converged = (gap < _CLOSE) & (state.indices == problems.indices).all(1)
    note = f"{int(state.is_diverged.sum())} diverged; the median distance is {gap.median():.2g}."
    return Estimate.fraction(int(has_converged.sum()), count), note


def search_of(
    problems: Problems, interpretation: Interpretation, name: str = "central"
) -> tuple[Search, int]:
    """A search, by default the paper's, and the step from which the locations are frozen."""
    state = State(problems, interpretation, Rates())
    search = find_search(name).make(state, lambda count: torch.empty(0))
    return search, interpretation.moving_steps(DEFAULT_STEPS)


def location_gradient_of(state: State) -> torch.Tensor:
    """Gradient of the loss in the locations by central differences, (P, B, 2)."""
    return Gradient(state, lambda count: torch.empty(0)).gradient()


def _outcomes(
    search: str, interpretation: str, seed: int, problems: int
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Whether each problem is recovered, and its final loss, infinite if it diverged."""
    settings = ProblemFamily(), find_interpretation(interpretation), find_search(search)
    outcome = evaluate(ToyCell(*settings, Rates(), DEFAULT_STEPS, seed, (0, problems)))
    losses = [np.inf if value is None else value for value in outcome["loss"]]
    return np.array(outcome["exact"]), np.array(losses)


_Array = NDArray[np.float64]
_Start = tuple[NDArray[np.int64], _Array]


def descent(
    *,
    tier: Tier,
    rng: Rng,
    refitted: bool = False,
    over: str = "start",
    states: str = "fitted",
    direction: str = "against",
) -> Returned:
    """Fraction of toy problems in which a step of one component lowers the loss.

    One component that is not at the border moves by one location along one axis.

    Args:
        refitted: Refit all coefficients before and after the step; otherwise they stay as they are.
        over: The loss to compare with: the one at the ``start``, or after the ``opposite`` step.
        states: ``fitted``, random locations with the coefficients of least squares, or ``visited``,
            at a random step in which locations may move in a run of the paper's search.
        direction: ``against`` the sign of the central difference, ``random``, or ``towards`` the
            nearest true location.
    """
    # Of fractions as near one half as 0.46, 4000 problems would decide only seven in ten runs.
    count = tier.scaled(1000 if states == "fitted" else 400, 16_000, 64_000)
    problems = draw(ProblemFamily(), Interpretation(), draw_seed(rng), range(count))
    starts = _visited(rng, problems) if states == "visited" else [None] * count
    sign = None if direction == "towards" else -1
    signs = rng.choice([-1, 1], count).tolist() if direction == "random" else [sign] * count
    counted = []
    for i, (start, sign) in enumerate(zip(starts, signs, strict=True)):
        if losses := _losses(rng, problems, i, start, sign, refitted=refitted):
            at_start, along, opposite = losses
            counted.append(along < (at_start if over == "start" else opposite))
    note = f"{count - len(counted)} problems without a component that can move are excluded."
    return Estimate.fraction(sum(counted), len(counted)), note


def _visited(rng: Rng, problems: Problems) -> list[_Start]:
    """Locations and coefficients of each problem at a random step at which locations move."""
    search, end = search_of(problems, Interpretation())
    moves = [step for step in range(end) if search.moves_at(step)]
    chosen = rng.choice(moves, len(problems.start))
    starts: dict[int, _Start] = {}
    for step in advance(search, end, end):
        for i in np.flatnonzero(chosen == step).tolist():
            values = search.state.coefficients[i].numpy().astype(np.float64)
            starts[i] = search.state.indices[i].numpy().copy(), values
    return [starts[i] for i in range(len(chosen))]


def _losses(
    rng: Rng, problems: Problems, i: int, state: _Start | None, sign: int | None, *, refitted: bool
) -> list[float]:
    """The losses of one problem at the start, after the step and after the opposite one, if any.

    Without a given start, it is the initial locations with the coefficients of least squares.
    Without a sign, the step goes towards the nearest true location.
    """
    size = problems.size
    # vec(Γ F Σ) = (Γ ⊗ Σ) vec F, where vec stacks the rows of F.
    curvature = torch.kron(problems.rows[i], problems.columns[i]).double().numpy()
    indices, values = problems.indices[i].numpy(), problems.coefficients[i].numpy()
    truth = np.bincount(indices, values, size**2).astype(np.float64)
    start = problems.start[i].numpy() if state is None else state[0]
    if state is None:
        spectrum = _fitted(curvature, truth, start)
    else:
        spectrum = np.bincount(start, state[1], size**2)
    axis = int(rng.integers(2))
    along = np.divmod(start, size)[axis]
    inner = np.flatnonzero((along > 0) & (along < size - 1))
    if len(set(start.tolist())) < len(start) or not len(inner):
        return []
    n = int(rng.choice(inner))
    step = size if axis == 0 else 1
    if sign is None:
        location, true = np.divmod(start[n], size), np.divmod(np.flatnonzero(truth), size)
        away = np.array(true) - np.array(location)[:, None]
        side = int(np.sign(away[axis, np.abs(away).sum(0).argmin()]))
    else:
        z = curvature @ (spectrum - truth)
        gradient = spectrum[start[n]] * (z[start[n] + step] - z[start[n] - step]) / 2
        side = sign * int(np.sign(gradient))

    def loss(by: int) -> float:
        indices = start.copy()
        indices[n] += by
        after = np.bincount(indices, spectrum[start], size**2)
        gap = (_fitted(curvature, truth, indices) if refitted else after) - truth
        return float(gap @ curvature @ gap)

    return [loss(by) for by in (0, side * step, -side * step)] if side else []


def _fitted(curvature: _Array, truth: _Array, indices: NDArray[np.int64]) -> _Array:
    """The spectrum with the smallest loss whose coefficients all lie at these locations."""
    support = np.unique(indices)
    spectrum = np.zeros_like(truth)
    normal = curvature[np.ix_(support, support)]
    spectrum[support] = np.linalg.lstsq(normal, curvature[support] @ truth, rcond=None)[0]
    return spectrum
