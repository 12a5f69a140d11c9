"""Theory beyond the paper: any basis on random singular vectors, and spikes in a spectrum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize

from loca_theory.claims.checks.empirical import load
from loca_theory.claims.measurement import Estimate, Measurement, Setting
from loca_theory.expressivity import Budget, retained_energies
from loca_theory.expressivity.energy_bounds import (
    KAPPA,
    selection_bound,
    spiked_low_rank_bound,
    spiked_selection_bound,
)

_Array = NDArray[np.float64]
_ATOMS = {"D": (1.0,), "S": (1.0,), "F3": (0.5**0.5, 0.5**0.5)}


def _spectrum(name: str, size: int) -> _Array:
    """Singular values by name: ``rank-N`` (N equal ones) or ``power-A`` (i^−A)."""
    kind, _, number = name.partition("-")
    i = np.arange(1, size + 1)
    values = i <= int(number) if kind == "rank" else i ** -float(number)
    return values.astype(np.float64)


def _random_matrices(rng: np.random.Generator, singular_values: _Array, count: int) -> _Array:
    """Matrices with these singular values and uniformly random singular vectors, (count, K, K)."""
    size = len(singular_values)
    left, right = (_haar(rng.standard_normal((count, size, size))) for _ in range(2))
    return (left * singular_values) @ right.mT


def _haar(gaussian: _Array) -> _Array:
    q, r = np.linalg.qr(gaussian)
    return q * np.sign(np.diagonal(r, axis1=-2, axis2=-1))[..., None, :]


def _fractions(matrices: _Array, method: str, budget: Budget) -> _Array:
    """Retained energies as fractions of the energies of the matrices."""
    batch = torch.from_numpy(matrices)
    energies = [retained_energies(one, method, [budget])[0] for one in batch]
    return np.array(energies) / np.square(matrices).sum(axis=(1, 2))


def difference(
    setting: Setting, *, first: str, second: str, spectrum: str, size: int, r: int
) -> Measurement:
    """Mean difference of the energy fractions that two bases retain of the same random matrices.

    The singular values are given, the singular vectors uniformly random.

    Args:
        setting: Tier (200, 400 or 4000 matrices) and random generator.
        first: ``D``, ``S`` or ``F3``.
        second: The other basis.
        spectrum: ``rank-N`` or ``power-A``.
        size: K.
        r: LoRA's rank, which sets the budget.
    """
    values, budget = _spectrum(spectrum, size), Budget(size, size, r)
    matrices = _random_matrices(setting.rng, values, setting.scaled(200, 400, 4000))
    gaps = _fractions(matrices, first, budget) - _fractions(matrices, second, budget)
    return Measurement.of(Estimate.mean(gaps, f"{first} less {second}"))


def selection(
    setting: Setting,
    *,
    methods: Sequence[str],
    spectra: Sequence[str],
    size: int,
    r: int,
    kappa: float = KAPPA,
) -> Measurement:
    """The proven bound on the retained energy less the mean that is retained.

    There is one estimate per method and spectrum; the singular vectors are uniformly random.

    Args:
        setting: Tier (30, 60 or 1000 matrices) and random generator.
        methods: From ``D``, ``S`` and ``F3``.
        spectra: Names as for :func:`difference`.
        size: K.
        r: LoRA's rank, which sets the budget.
        kappa: The constant of the bound.
    """
    budget, found = Budget(size, size, r), []
    draws = setting.scaled(30, 60, 1000)
    for name in spectra:
        values = _spectrum(name, size)
        matrices = _random_matrices(setting.rng, values, draws)
        for method in methods:
            bound = selection_bound(values**2, budget, _ATOMS[method], kappa=kappa)
            gaps = bound - _fractions(matrices, method, budget)
            found.append(Estimate.mean(gaps, f"{method}, {name}"))
    return Measurement.of(found)


def spikes(setting: Setting, *, size: int, r: int, count: int, weaker: float = 0.0) -> Measurement:
    """Effect of spikes on the eigenvalue distribution, and on low rank against coefficients.

    The spikes have equal strength, random directions, and the smallest energy for which the bounds
    prove that low rank retains more.

    Args:
        setting: Tier (10, 12 or 100 matrices) and random generator.
        size: K.
        r: LoRA's rank.
        count: Number s of the spikes, at most r.
        weaker: The energy fraction that the spikes have less.

    Returns:
        The largest Kolmogorov distance between the eigenvalue distributions with and without the
        spikes, over s/K; and the mean of what low rank retains less what D retains.
    """
    budget = Budget(size, size, r)
    fraction = optimize.brentq(
        lambda one: (
            spiked_low_rank_bound(one, count, budget)
            - spiked_selection_bound(one, np.ones(count), budget)
        ),
        1e-3,
        0.25,
    )
    fraction -= weaker
    strength = size * np.sqrt(fraction / (1 - fraction) / count)
    distances, gaps = [], []
    for _ in range(setting.scaled(10, 12, 100)):
        noise = setting.rng.standard_normal((size, size))
        left, right = (
            np.linalg.qr(setting.rng.standard_normal((size, count)))[0] for _ in range(2)
        )
        matrix = noise + strength * left @ right.T
        with_spikes = np.linalg.svd(matrix, compute_uv=False)
        distances.append(kolmogorov(with_spikes, np.linalg.svd(noise, compute_uv=False)))
        low_rank = np.square(with_spikes[:r]).sum() / np.square(with_spikes).sum()
        gaps.append(low_rank - _fractions(matrix[None], "D", budget)[0])
    return Measurement.of(
        [
            Estimate("distance over s/K", max(distances) * size / count),
            Estimate.mean(gaps, "R less D"),
        ],
        f"The spikes have {fraction:.4f} of the energy.",
    )


def kolmogorov(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Kolmogorov distance between two empirical distributions."""
    points = np.concatenate([first, second])
    ranks = [np.searchsorted(np.sort(one), points, side="right") for one in (first, second)]
    return float(np.abs(ranks[0] / len(first) - ranks[1] / len(second)).max())


def criterion(setting: Setting, *, matrices: str, errors: str, r: int) -> Measurement:
    """Retained energy of low rank less the bound for any basis of rank-one atoms, the smallest.

    The bound needs Σ w², which is at most the largest w, the reciprocal of the stable rank.

    Args:
        setting: Has the folder of the tables.
        matrices: Pattern of the names of the tables of statistics.
        errors: Pattern of the names of the tables of errors.
        r: LoRA's rank.
    """
    rows = load(setting.results, matrices, ("name", "kind", "shape", "stable_rank"), ("name",))
    found = load(setting.results, errors, ("name", "r", "method", "error"), ("name", "r", "method"))
    if rows is None or found is None:
        return Measurement.missing(f"There are no tables {matrices}.parquet, {errors}.parquet.")
    mine = found[(found["r"] == r) & (found["method"] == "R")]
    low_rank = dict(zip(mine["name"], mine["error"], strict=True))
    gaps = {}
    for name, kind, shape, stable_rank in rows.itertuples(index=False):
        if kind != "embedding" and name in low_rank:
            p, q = (int(one) for one in shape)
            # Weights with this largest one and the largest possible sum of squares.
            whole = int(stable_rank)
            weights = [1.0] * whole + [stable_rank - whole]
            gaps[name] = 1 - low_rank[name] - selection_bound(weights, Budget(p, q, r))
    if not gaps:
        return Measurement.missing(f"{errors}.parquet has no error of R at r = {r}.")
    least = min(gaps, key=lambda name: gaps[name])
    return Measurement.exact(gaps[least], f"{len(gaps)} matrices; the smallest at {least}.")
