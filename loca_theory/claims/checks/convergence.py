"""Success rates of the toy experiment, under several interpretations of its description."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot

import numpy as np
import torch
from numpy.typing import NDArray

from loca_theory.claims.measurement import Estimate, Measurement, Setting
from loca_theory.convergence import (
    ConvergenceStudy,
    Family,
    Interpretation,
    Problems,
    RecoveryRow,
    draw,
    toy,
)
from loca_theory.convergence.simulation import compute, point
from loca_theory.sweeps import Runner


def recovery(
    setting: Setting, *, search: str, interpretations: Sequence[str] = ("default",)
) -> Measurement:
    """Fraction of random problems in which a search finds all true locations.

    There is one estimate per interpretation.

    Args:
        setting: Tier (1000, 4000 or 20000 problems, divided among the interpretations) and random
            generator.
        search: Name of the search; ``central`` is the paper's.
        interpretations: Interpretations of the paper's description
            (:data:`~loca_theory.convergence.INTERPRETATIONS`).

    Source: appendix "Toy Experiment of the Convergence".
    """
    problems = setting.scaled(1000, 4000, 20_000) // len(interpretations)
    rows = {name: _rows(setting, (search,), name, problems)[search] for name in interpretations}
    diverged = ", ".join(f"{name}: {row.diverged}" for name, row in rows.items())
    return Measurement.of(
        (Estimate.fraction(_recovered(row), problems, name) for name, row in rows.items()),
        f"{problems} problems per interpretation; diverged: {diverged}.",
    )


def final_loss(setting: Setting, *, search: str, over: str) -> Measurement:
    """Fraction of random problems in which one search ends at a lower loss than another.

    A problem in which the first search diverges counts as a failure.

    Args:
        setting: Tier and random generator.
        search: The search that should end at the lower loss.
        over: The search to compare with, on the same problems.

    Source: the figure toy_experiment_loss.
    """
    problems, seed = setting.scaled(1000, 4000, 20_000), setting.seed()
    study = ConvergenceStudy(problems=problems, seed=seed)
    losses = []
    for name in (search, over):
        given = point(Family(), "default", name, study.rates, study.steps, seed, (0, problems))
        found = compute(given)["loss"]
        losses.append([np.inf if value is None else value for value in found])
    lower = sum(mine < other for mine, other in zip(*losses, strict=True))
    return Measurement.of(Estimate.fraction(lower, problems))


def uniqueness(setting: Setting) -> Measurement:
    """Smallest rank, over random problems, of the map from F₂ to the outputs; full rank is 36.

    As a function of vec F₂ the loss is quadratic. The rank of its matrix Γ ⊗ Σ is the rank of Γ
    times the rank of Σ.

    Args:
        setting: Tier and random generator.

    Source: the footnote that the solution is unique.
    """
    problems = draw(
        Family(), Interpretation(), setting.seed(), range(setting.scaled(1000, 4000, 20_000))
    )
    ranks = [
        np.linalg.matrix_rank(factor.double().numpy(), hermitian=True)
        for factor in (problems.rows, problems.columns)
    ]
    return Measurement.exact(float((ranks[0] * ranks[1]).min()), f"{len(ranks[0])} problems.")


def advantage(setting: Setting, *, search: str, over: str) -> Measurement:
    """Fraction of problems recovered by one search, less that of another on the same problems.

    Source: the remark that closes the appendix on the toy experiment.
    """
    problems = setting.scaled(200, 8000, 40_000)
    rows = _rows(setting, (search, over), "default", problems)
    better, worse = (Estimate.fraction(_recovered(rows[name]), problems) for name in (search, over))
    # The error for independent problems is on the safe side: both searches solve the same ones.
    error = hypot(better.standard_error, worse.standard_error)
    note = f"{search}: {better.value:.4f}; {over}: {worse.value:.4f}."
    return Measurement.of(Estimate("", better.value - worse.value, error, problems), note)


def descent(setting: Setting, *, refitted: bool = False, over: str = "start") -> Measurement:
    """Fraction of toy problems in which a step along the location gradient lowers the loss.

    The locations are random, and the coefficients have their least-squares values. One component
    that is not at the border moves by one location along one axis, against the sign of the central
    difference.

    Args:
        setting: Tier and random generator.
        refitted: Refit all coefficients after the step; otherwise they stay as they are.
        over: The loss to compare with: the one at the ``start``, or after the ``opposite`` step.

    Source: "the difference approximation generally works well"; the quadratic loss is that of the
    toy experiment (:mod:`loca_theory.convergence.problems`).
    """
    wanted = setting.scaled(1000, 4000, 20_000)
    problems = draw(Family(), Interpretation(), setting.seed(), range(wanted))
    outcomes = [
        _is_lowered(setting, problems, i, refitted=refitted, over=over) for i in range(wanted)
    ]
    counted = [outcome for outcome in outcomes if outcome is not None]
    note = f"{wanted - len(counted)} problems without a component that can move are excluded."
    return Measurement.of(Estimate.fraction(sum(counted), len(counted)), note)


def _is_lowered(
    setting: Setting, problems: Problems, i: int, *, refitted: bool, over: str
) -> bool | None:
    """Whether the loss of one problem is lowered; None if no component can move."""
    size = problems.size
    # vec(Γ F Σ) = (Γ ⊗ Σ) vec F, where vec stacks the rows of F.
    curvature = torch.kron(problems.rows[i], problems.columns[i]).double().numpy()
    truth = np.zeros(size**2)
    np.add.at(truth, problems.indices[i].numpy(), problems.coefficients[i].numpy())
    start = problems.start[i].numpy()
    spectrum = _fitted(curvature, truth, start)
    indices = np.stack(np.divmod(start, size), axis=1)
    axis = int(setting.rng.integers(2))
    inner = np.flatnonzero((indices[:, axis] > 0) & (indices[:, axis] < size - 1))
    if len(set(start.tolist())) < len(start) or not len(inner):
        return None
    n = int(setting.rng.choice(inner))
    step = size if axis == 0 else 1
    z = curvature @ (spectrum - truth)
    gradient = spectrum[start[n]] * (z[start[n] + step] - z[start[n] - step]) / 2
    step *= -int(np.sign(gradient))

    def loss(by: int) -> float:
        indices = start.copy()
        indices[n] += by
        after = spectrum.copy()
        after[start[n]] = 0.0
        after[indices[n]] += spectrum[start[n]]
        gap = (_fitted(curvature, truth, indices) if refitted else after) - truth
        return float(gap @ curvature @ gap)

    return loss(step) < loss(0 if over == "start" else -step)


def _fitted(
    curvature: NDArray[np.float64], truth: NDArray[np.float64], indices: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The spectrum with the smallest loss whose coefficients all lie at these locations."""
    support = np.unique(indices)
    spectrum = np.zeros_like(truth)
    normal = curvature[np.ix_(support, support)]
    spectrum[support] = np.linalg.lstsq(normal, curvature[support] @ truth, rcond=None)[0]
    return spectrum


def _rows(
    setting: Setting, searches: tuple[str, ...], interpretation: str, problems: int
) -> dict[str, RecoveryRow]:
    found = toy(
        searches,
        interpretations=interpretation,
        problems=problems,
        seed=setting.seed(),
        runner=Runner(jobs=1),
    )
    return {row.search: row for row in found.rows}


def _recovered(row: RecoveryRow) -> int:
    return round(row.recovered * row.problems)
