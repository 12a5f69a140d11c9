"""The approximations themselves: Ŵ for a given W, and the energy each keeps of it.

Everything here works on any real matrix, on any device; the Gaussian assumption enters nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import low_rank_variants
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.curves import Engine, Selection, find_curve
from loca_theory.expressivity.kept import largest_sums
from loca_theory.expressivity.random_choices import first_hits, random_places, required
from loca_theory.transforms import RealSpectrum, dct2, idct2
from loca_theory.transforms.dct_paths import float32_products
from loca_theory.transforms.inputs import (
    TensorLike,
    balanced,
    squared_units,
    times_power_of_two,
)


def approximate(
    matrix: TensorLike, curve: str, budget: Budget, rng: np.random.Generator | None = None
) -> torch.Tensor:
    """Best approximation Ŵ of one matrix within a curve's budget.

    "Best" is in Frobenius norm and, for curves with random places or frozen factors, given those;
    VeRA's is a local optimum (see :mod:`loca_theory.expressivity.low_rank_variants`).

    Args:
        matrix: W, shape (p, q), a real tensor or NumPy array with finite entries, on any device.
            float16 and bfloat16 are widened to float32, integers to float64.
        curve: ``R``, ``F1``, ``V1``, ``FourierFT``, ``F2``, ``F3``, ``D``, ``S``, ``DoRA`` or
            ``VeRA``.
        budget: Budget for the shape (p, q).
        rng: Source of the random places or factors; needed by the curves that have them.

    Returns:
        Ŵ, shape (p, q), a tensor of the type computed in.

    Raises:
        InvalidArgumentError: the curve is unknown or approximates nothing (U, M1, M2, RD), the
            shape is not the budget's, or a random curve got no ``rng``; the matrix is complex,
            sparse or of 8 bits, or has entries that are not finite.

    Source: Ŵ_R, Ŵ_F^(1), Ŵ_F^(2), Ŵ_F^(3) and Ŵ_D of the paper; DoRA and VeRA as in its appendix
    "Extended Analysis on other LoRA Variants".
    """
    matrix, exponent = _checked(matrix, curve, [budget])
    with float32_products(matrix.device):
        found = _approximate(matrix, curve, budget, rng)
    return times_power_of_two(found, exponent)


def _approximate(
    matrix: torch.Tensor, curve: str, budget: Budget, rng: np.random.Generator | None
) -> torch.Tensor:
    selection = find_curve(curve).selection
    if selection is None:
        return low_rank_variants.approximate(matrix, curve, budget, rng)
    coordinates = _coordinates(matrix, selection)
    energies = _item_energies(coordinates, selection, budget)
    order, _ = _kept_items(energies, selection, budget, selection.count(budget), rng)
    return _from_coordinates(_masked(coordinates, order, selection, budget), selection, budget)


def kept_energies(
    matrix: TensorLike,
    curve: str,
    budgets: Sequence[Budget],
    rng: np.random.Generator | None = None,
) -> NDArray[np.float64]:
    """Energy ‖W‖² − ‖W − Ŵ‖² that a curve keeps of one matrix, for several budgets at once.

    Random places for a smaller budget are the first of those for a larger one.

    Args:
        matrix: W, as for :func:`approximate`.
        curve: As for :func:`approximate`.
        budgets: Budgets for the shape (p, q).
        rng: As for :func:`approximate`.

    Returns:
        One energy a budget.

    Raises:
        InvalidArgumentError: as for :func:`approximate`, or the entries are so large or small that
            their squares do not fit float64.
    """
    matrix, exponent = _checked(matrix, curve, budgets)
    if not budgets:
        return np.zeros(0)
    with float32_products(matrix.device):
        kept = _kept_energies(matrix, curve, budgets, rng)
    return squared_units(kept, exponent, "matrix")


def _kept_energies(
    matrix: torch.Tensor, curve: str, budgets: Sequence[Budget], rng: np.random.Generator | None
) -> NDArray[np.float64]:
    selection = find_curve(curve).selection
    if selection is None:
        return low_rank_variants.kept_energies(matrix, curve, budgets, rng)
    counts = [selection.count(budget) for budget in budgets]
    energies = _item_energies(_coordinates(matrix.detach(), selection), selection, budgets[0])
    if not selection.random:
        return largest_sums(energies, counts)
    order, new = _kept_items(energies, selection, budgets[0], max(counts), rng)
    kept = (energies[order] * new).cpu().numpy()
    return np.concatenate([[0.0], np.cumsum(kept, dtype=np.float64)])[counts]


def _checked(value: TensorLike, curve: str, budgets: Sequence[Budget]) -> tuple[torch.Tensor, int]:
    """The matrix by a power of two, for which nothing overflows, and the power."""
    entry = find_curve(curve)
    if Engine.MONTE_CARLO not in entry.engines:
        msg = f"{curve} is a formula, not an approximation of a given matrix"
        raise InvalidArgumentError(msg)
    matrix, exponent = balanced(value, "matrix")
    for budget in budgets:
        if matrix.shape != (budget.p, budget.q):
            msg = f"matrix must be of shape ({budget.p}, {budget.q}), which the budget is for, not "
            msg += f"{tuple(matrix.shape)}"
            raise InvalidArgumentError(msg)
    return matrix, exponent


def _coordinates(matrix: torch.Tensor, selection: Selection) -> torch.Tensor:
    """The orthonormal coordinates, as one vector of length pq."""
    match selection.basis:
        case "entries":
            return matrix.flatten()
        case "cosine":
            return dct2(matrix).flatten()
        case _:
            return RealSpectrum(*matrix.shape).forward(matrix)


def _from_coordinates(
    coordinates: torch.Tensor, selection: Selection, budget: Budget
) -> torch.Tensor:
    match selection.basis:
        case "entries":
            return coordinates.unflatten(0, (budget.p, budget.q))
        case "cosine":
            return idct2(coordinates.unflatten(0, (budget.p, budget.q)))
        case _:
            return RealSpectrum(budget.p, budget.q).inverse(coordinates)


def _item_energies(coordinates: torch.Tensor, selection: Selection, budget: Budget) -> torch.Tensor:
    match selection.items:
        case "coefficients":
            return coordinates.square()
        case "locations":
            return RealSpectrum(budget.p, budget.q).location_energies(coordinates)
        case _:  # cosines: the real parts stand first, one a location
            return coordinates[: budget.half.location_count].square()


def _kept_items(
    energies: torch.Tensor,
    selection: Selection,
    budget: Budget,
    count: int,
    rng: np.random.Generator | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Indices of the kept items in the order of keeping, and 1 where one appears the first time."""
    if not selection.random:
        order = energies.topk(count).indices
        return order, torch.ones_like(order)
    places, new = _random_order(selection, budget, count, required(rng))
    return torch.from_numpy(places).to(energies.device), torch.from_numpy(new).to(energies.device)


def _random_order(
    selection: Selection, budget: Budget, count: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Randomly ordered items, and which of them appear for the first time."""
    p, q, half = budget.p, budget.q, budget.half
    if selection.items == "cosines":
        places = random_places(p * q, count, rng)
        item = np.empty(p * q, dtype=np.int64)
        own, pairs = half.self_conjugate, half.representatives
        items = np.arange(half.location_count)
        members = np.concatenate([own, pairs])
        item[members[:, 0] * q + members[:, 1]] = items
        item[(-members[:, 0] % p) * q + (-members[:, 1] % q)] = items
        return item[places], first_hits(places, p, q)
    n = half.location_count if selection.items == "locations" else p * q
    return random_places(n, count, rng), np.ones(count, dtype=bool)


def _masked(
    coordinates: torch.Tensor, order: torch.Tensor, selection: Selection, budget: Budget
) -> torch.Tensor:
    """The coordinates of the kept items, zeros elsewhere."""
    kept = order
    if selection.items == "locations":
        # A pair's imaginary part stands m places behind its real part.
        pairs = order[order >= budget.half.self_conjugate_count]
        kept = torch.cat([order, pairs + budget.half.pair_count])
    mask = torch.zeros_like(coordinates, dtype=torch.bool)
    mask[kept] = True
    return coordinates * mask
