"""Theory beyond the paper: any basis on random singular vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from loca_theory.claims.checks.empirical import load
from loca_theory.claims.estimates import Estimate, Returned, Rng, Tier, least
from loca_theory.expressivity import Budget, retained_energies
from loca_theory.expressivity.energy_bounds import KAPPA, selection_bound
from loca_theory.expressivity.methods.names import display_name

_Array = NDArray[np.float64]
# Singular values of an atom of the largest rank.
_ATOMS = {"D": (1.0,), "S": (1.0,), "F3": (0.5**0.5, 0.5**0.5)}


def named_spectrum(name: str, size: int) -> _Array:
    """Singular values by name: ``rank-N`` (N equal ones) or ``power-A`` (i^−A)."""
    kind, _, number = name.partition("-")
    i = np.arange(1, size + 1)
    values = i <= int(number) if kind == "rank" else i ** -float(number)
    return values.astype(np.float64)


def random_matrices(rng: Rng, singular_values: _Array, count: int) -> _Array:
    """Matrices with these singular values and uniformly random singular vectors, (count, K, K)."""
    size = len(singular_values)
    left, right = (_haar(rng.standard_normal((count, size, size))) for _ in range(2))
    return (left * singular_values) @ right.mT


def _haar(gaussian: _Array) -> _Array:
    q, r = np.linalg.qr(gaussian)
    return q * np.sign(np.diagonal(r, axis1=-2, axis2=-1))[..., None, :]


def fractions(matrices: _Array, method: str, budget: Budget) -> _Array:
    """Retained energies as fractions of the energies of the matrices."""
    batch = torch.from_numpy(matrices)
    energies = [retained_energies(one, method, [budget])[0] for one in batch]
    return np.array(energies) / np.square(matrices).sum(axis=(1, 2))


def fourth_powers(method: str, size: int) -> float:
    """The mean over the atoms of a basis of Σ a_k⁴, a_k the singular values of an atom.

    Atoms of rank one have 1. Those of F3 have rank two and ½, except the atoms that have a
    frequency 0 or K/2, which have rank one.

    Args:
        method: ``D``, ``S`` or ``F3``.
        size: K.
    """
    if method != "F3":
        return 1.0
    lone = 1 if size % 2 else 2
    return 1 - (1 - lone / size) ** 2 / 2


def difference(
    *, tier: Tier, rng: Rng, first: str, second: str, spectrum: str, size: int, r: int
) -> Returned:
    """Mean difference of the energy fractions that two bases retain of the same random matrices.

    The singular values are given, the singular vectors uniformly random.

    Args:
        tier: 200, 400 or 4000 matrices.
        first: ``D``, ``S`` or ``F3``.
        second: The other basis.
        spectrum: ``rank-N`` or ``power-A``.
        size: K.
        r: LoRA's rank, which sets the budget.
    """
    values, budget = named_spectrum(spectrum, size), Budget(size, size, r)
    matrices = random_matrices(rng, values, tier.scaled(200, 400, 4000))
    gaps = fractions(matrices, first, budget) - fractions(matrices, second, budget)
    return {f"{display_name(first)} less {display_name(second)}": Estimate.mean(gaps)}


def selection(
    *,
    tier: Tier,
    rng: Rng,
    methods: Sequence[str],
    spectra: Sequence[str],
    size: int,
    r: int,
    kappa: float = KAPPA,
) -> Returned:
    """The proven bound on the retained energy less the mean that is retained.

    There is one estimate per method and spectrum; the singular vectors are uniformly random.

    Args:
        tier: 30, 60 or 1000 matrices.
        methods: From ``D``, ``S`` and ``F3``.
        spectra: Names as for :func:`difference`.
        size: K.
        r: LoRA's rank, which sets the budget.
        kappa: The constant of the bound.
    """
    budget, found = Budget(size, size, r), {}
    draws = tier.scaled(30, 60, 1000)
    for name in spectra:
        values = named_spectrum(name, size)
        matrices = random_matrices(rng, values, draws)
        for method in methods:
            given = {"fourth_powers": fourth_powers(method, size), "kappa": kappa}
            bound = selection_bound(values**2, budget, _ATOMS[method], **given)
            gaps = bound - fractions(matrices, method, budget)
            found[f"{display_name(method)}, {name}"] = Estimate.mean(gaps)
    return found


def criterion(*, results: Path | None, matrices: str, errors: str, r: int) -> Returned:
    """Retained energy of low rank less the bound for any basis of rank-one atoms, the smallest.

    The bound needs Σ w², which is at most the largest w, the reciprocal of the stable rank.

    Args:
        matrices: Pattern of the names of the tables of statistics.
        errors: Pattern of the names of the tables of errors.
        r: LoRA's rank.
    """
    rows = load(results, matrices, ("name", "kind", "shape", "stable_rank"), ("name",))
    found = load(results, errors, ("name", "r", "method", "error"), ("name", "r", "method"))
    mine = found[(found["r"] == r) & (found["method"] == "R")]
    low_rank = dict(zip(mine["name"], mine["error"], strict=True))
    rows = rows[rows["kind"] != "embedding"]
    if rows.empty:
        return {}, f"{matrices}.parquet has embeddings alone."
    if lacking := sorted(set(rows["name"]) - set(low_rank)):
        return {}, f"{errors}.parquet has no error of LoRA at r = {r} for {lacking[0]}."
    gaps = {}
    for name, shape, stable_rank in rows[["name", "shape", "stable_rank"]].itertuples(index=False):
        p, q = (int(one) for one in shape)
        # Weights with this largest one and the largest possible sum of squares.
        whole = int(stable_rank)
        weights = [1.0] * whole + [stable_rank - whole]
        gaps[name] = 1 - low_rank[name] - selection_bound(weights, Budget(p, q, r))
    return least(gaps, "{count} matrices; the smallest at {at}.")
