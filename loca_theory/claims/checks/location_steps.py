"""Single steps of one component in the toy experiment: whether they lower the loss."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from loca_theory.claims.checks.convergence import search_of
from loca_theory.claims.estimates import Estimate, Returned, Rng, Tier, draw_seed
from loca_theory.convergence.interpretations import Interpretation
from loca_theory.convergence.problems import Family, Problems, draw
from loca_theory.convergence.simulation import advance

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

    Source: "the difference approximation generally works well"; "even if one parameter moves in a
    better direction".
    """
    # Of fractions as near one half as 0.46, 4000 problems would decide only seven in ten runs.
    wanted = tier.scaled(1000 if states == "fitted" else 400, 16_000, 64_000)
    problems = draw(Family(), Interpretation(), draw_seed(rng), range(wanted))
    starts = _visited(rng, problems) if states == "visited" else [None] * wanted
    signs = rng.choice([-1, 1], wanted) if direction == "random" else np.full(wanted, -1)
    counted = []
    for i, (start, sign) in enumerate(zip(starts, signs.tolist(), strict=True)):
        wanted_sign = None if direction == "towards" else sign
        losses = _losses(rng, problems, i, start, wanted_sign, refitted=refitted)
        if losses:
            here, along, opposite = losses
            counted.append(along < (here if over == "start" else opposite))
    note = f"{wanted - len(counted)} problems without a component that can move are excluded."
    return Estimate.fraction(sum(counted), len(counted)), note


def _visited(rng: Rng, problems: Problems) -> list[_Start]:
    """Locations and coefficients of each problem at a random step at which locations move."""
    search, end = search_of(problems, Interpretation())
    moves = [step for step in range(end) if search.moves_at(step)]
    chosen = rng.choice(moves, len(problems.start))
    found: list[_Start] = [(np.empty(0, np.int64), np.empty(0))] * len(chosen)
    for step in advance(search, end, end):
        for i in np.flatnonzero(chosen == step):
            both = search.state.indices[i], search.state.coefficients[i]
            indices, values = (one.numpy().copy() for one in both)
            found[i] = indices, values.astype(np.float64)
    return found


def _losses(
    rng: Rng, problems: Problems, i: int, given: _Start | None, sign: int | None, *, refitted: bool
) -> list[float]:
    """The losses of one problem at the start, after the step and after the opposite one, if any.

    Without a given start, it is the initial locations with the coefficients of least squares.
    Without a sign, the step goes towards the nearest true location.
    """
    size = problems.size
    # vec(Γ F Σ) = (Γ ⊗ Σ) vec F, where vec stacks the rows of F.
    curvature = torch.kron(problems.rows[i], problems.columns[i]).double().numpy()
    truth = np.zeros(size**2)
    np.add.at(truth, problems.indices[i].numpy(), problems.coefficients[i].numpy())
    if given is None:
        start = problems.start[i].numpy()
        spectrum = _fitted(curvature, truth, start)
    else:
        start, spectrum = given[0], np.zeros_like(truth)
        np.add.at(spectrum, start, given[1])
    axis = int(rng.integers(2))
    along = np.divmod(start, size)[axis]
    inner = np.flatnonzero((along > 0) & (along < size - 1))
    if len(set(start.tolist())) < len(start) or not len(inner):
        return []
    n = int(rng.choice(inner))
    step = size if axis == 0 else 1
    if sign is None:
        own, true = np.divmod(start[n], size), np.divmod(np.flatnonzero(truth), size)
        away = np.array(true) - np.array(own)[:, None]
        side = int(np.sign(away[axis, np.abs(away).sum(0).argmin()]))
    else:
        z = curvature @ (spectrum - truth)
        gradient = spectrum[start[n]] * (z[start[n] + step] - z[start[n] - step]) / 2
        side = sign * int(np.sign(gradient))
    if side == 0:
        return []
    step *= side

    def loss(by: int) -> float:
        indices = start.copy()
        indices[n] += by
        after = spectrum.copy()
        after[start[n]] = 0.0
        after[indices[n]] += spectrum[start[n]]
        gap = (_fitted(curvature, truth, indices) if refitted else after) - truth
        return float(gap @ curvature @ gap)

    return [loss(by) for by in (0, step, -step)]


def _fitted(curvature: _Array, truth: _Array, indices: NDArray[np.int64]) -> _Array:
    """The spectrum with the smallest loss whose coefficients all lie at these locations."""
    support = np.unique(indices)
    spectrum = np.zeros_like(truth)
    normal = curvature[np.ix_(support, support)]
    spectrum[support] = np.linalg.lstsq(normal, curvature[support] @ truth, rcond=None)[0]
    return spectrum
