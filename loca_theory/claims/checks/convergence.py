"""The toy experiment as a rate, under several interpretations of its description."""

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
    """Fraction of random problems in which all true locations are found, a part an interpretation.

    Args:
        setting: How much work: 1000, 4000 or 20000 problems, divided among the interpretations.
        search: How locations move: ``central`` is the paper's.
        interpretations: What is assumed of the description
            (:data:`~loca_theory.convergence.INTERPRETATIONS`).

    Source: appendix "Toy Experiment of the Convergence".
    """
    problems = setting.scaled(1000, 4000, 20_000) // len(interpretations)
    rows = {name: _rows(setting, (search,), name, problems)[search] for name in interpretations}
    diverged = ", ".join(f"{name}: {row.diverged}" for name, row in rows.items())
    return Measurement.of(
        (Estimate.fraction(_recovered(row), problems, name) for name, row in rows.items()),
        f"{problems} problems an interpretation; diverged: {diverged}.",
    )


def final_loss(setting: Setting, *, search: str, over: str) -> Measurement:
    """Fraction of random problems in which one search ends at a lower loss than the other.

    Those in which the first diverges count as its failures.

    Args:
        setting: How much work.
        search: The one that is to end lower.
        over: The other; the problems are the same.

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
    """Smallest rank of the map from F₂ to the outputs, over random problems, 36 being all.

    In vec F₂ the loss is quadratic with the matrix Γ ⊗ Σ, whose rank is that of Γ times that of Σ.

    Args:
        setting: How much work.

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
    """Fraction recovered by one search less that of another; the problems are the same.

    Source: the remark that closes the appendix on the toy experiment.
    """
    problems = setting.scaled(200, 8000, 40_000)
    rows = _rows(setting, (search, over), "default", problems)
    better, worse = (Estimate.fraction(_recovered(rows[name]), problems) for name in (search, over))
    # As if on different problems, which is on the safe side.
    error = hypot(better.standard_error, worse.standard_error)
    note = f"{search}: {better.value:.4f}; {over}: {worse.value:.4f}."
    return Measurement.of(Estimate("", better.value - worse.value, error, problems), note)


def descent(setting: Setting, *, refitted: bool = False, over: str = "start") -> Measurement:
    """Fraction of toy problems in which a step along the location gradient lowers the loss.

    Coefficients are at their least-squares values for random locations. One component off the
    border moves by one location along one axis, against the sign of the central difference.

    Args:
        setting: How much work.
        refitted: Compare with all coefficients fitted anew at the new locations, not as they were.
        over: What the loss is lower than: that at the ``start``, or after the ``opposite`` step.

    Source: "the difference approximation generally works well"; the quadratic loss is that of the
    toy experiment (:mod:`loca_theory.convergence.problems`).
    """
    wanted = setting.scaled(1000, 4000, 20_000)
    problems = draw(Family(), Interpretation(), setting.seed(), range(wanted))
    outcomes = [
        _is_lowered(setting, problems, i, refitted=refitted, over=over) for i in range(wanted)
    ]
    counted = [outcome for outcome in outcomes if outcome is not None]
    note = f"{wanted - len(counted)} problems without a component that can move are left out."
    return Measurement.of(Estimate.fraction(sum(counted), len(counted)), note)


def _is_lowered(
    setting: Setting, problems: Problems, i: int, *, refitted: bool, over: str
) -> bool | None:
    """The outcome of one problem; None where no component can move."""
    size = problems.size
    # vec(Γ F Σ) = (Γ ⊗ Σ) vec F, rows of F one after the other.
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
    """The spectrum at these locations with the smallest loss."""
    retained = np.unique(indices)
    spectrum = np.zeros_like(truth)
    normal = curvature[np.ix_(retained, retained)]
    spectrum[retained] = np.linalg.lstsq(normal, curvature[retained] @ truth, rcond=None)[0]
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
