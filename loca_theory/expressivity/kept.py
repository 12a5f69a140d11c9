"""How much selections keep of a given matrix, for many curves at once.

One transform a basis for all its curves, and no index arrays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.curves import Selection, find_curve
from loca_theory.expressivity.exact import pair_hit_probability
from loca_theory.transforms import RealSpectrum, dct2
from loca_theory.transforms.inputs import TensorLike, balanced, squared_units

_PIECE = 2**22


def expected_kept_energies(
    matrix: TensorLike, curves: Sequence[str], budgets: Sequence[Budget]
) -> dict[str, NDArray[np.float64]]:
    """Energy that selections keep of one matrix; with random places, its mean over their choice.

    Args:
        matrix: W, as for :func:`~loca_theory.expressivity.approximate`.
        curves: Any of ``F1``, ``V1``, ``FourierFT``, ``F2``, ``F3``, ``D``, ``S``.
        budgets: Budgets for the shape (p, q).

    Returns:
        For each curve one energy a budget.

    Raises:
        InvalidArgumentError: a curve selects nothing, the shape is not the budgets', or the matrix
            is none that :func:`~loca_theory.expressivity.kept_energies` takes.
    """
    selections: dict[str, Selection] = {}
    for curve in curves:
        selection = find_curve(curve).selection
        if selection is None:
            msg = f"{curve} selects no coefficients"
            raise InvalidArgumentError(msg)
        selections[curve] = selection
    matrix, exponent = balanced(matrix, "matrix")
    if any(matrix.shape != (budget.p, budget.q) for budget in budgets):
        msg = f"matrix is of shape {tuple(matrix.shape)}, which the budgets are not for"
        raise InvalidArgumentError(msg)
    if not budgets:
        return {curve: np.zeros(0) for curve in curves}
    kept: dict[str, NDArray[np.float64]] = {}
    for basis in dict.fromkeys(selection.basis for selection in selections.values()):
        mine = {curve: one for curve, one in selections.items() if one.basis == basis}
        if basis == "fourier":
            kept |= _fourier(matrix.detach(), mine, budgets)
        else:
            kept |= _orthogonal(matrix.detach(), mine, budgets, is_cosine=basis == "cosine")
    return {curve: squared_units(kept[curve], exponent, "matrix") for curve in curves}


def _orthogonal(
    matrix: torch.Tensor,
    selections: dict[str, Selection],
    budgets: Sequence[Budget],
    *,
    is_cosine: bool,
) -> dict[str, NDArray[np.float64]]:
    energies = dct2(matrix).flatten().square_() if is_cosine else matrix.flatten().square()
    return {curve: _of_items(energies, one, budgets) for curve, one in selections.items()}


def _fourier(
    matrix: torch.Tensor, selections: dict[str, Selection], budgets: Sequence[Budget]
) -> dict[str, NDArray[np.float64]]:
    spectrum = RealSpectrum(*matrix.shape)
    energies = spectrum.coordinate_energies(matrix)
    kept = {}
    # Single coefficients last: taking the largest puts them into another order.
    for curve in sorted(selections, key=lambda name: selections[name].items == "coefficients"):
        one = selections[curve]
        match one.items:
            case "cosines":
                s, m = spectrum.half.self_conjugate_count, spectrum.half.pair_count
                kept[curve] = _of_cosines(energies[:s], energies[s : s + m], one, budgets)
            case "locations" if not one.random:
                kept[curve] = _of_items(spectrum.merge_pairs(energies), one, budgets)
            case "locations":
                kept[curve] = _of_random_locations(energies, one, budgets)
            case _:
                kept[curve] = _of_items(energies, one, budgets)
    return kept


def _of_random_locations(
    energies: torch.Tensor, selection: Selection, budgets: Sequence[Budget]
) -> NDArray[np.float64]:
    total = _total(energies)
    counts = [selection.count(one) / one.half.location_count for one in budgets]
    return total * np.array(counts)


def _of_items(
    energies: torch.Tensor, selection: Selection, budgets: Sequence[Budget]
) -> NDArray[np.float64]:
    counts = [selection.count(budget) for budget in budgets]
    if selection.random:
        return _total(energies) / len(energies) * np.array(counts, dtype=np.float64)
    return largest_sums(energies, counts)


def _of_cosines(
    own: torch.Tensor, real: torch.Tensor, selection: Selection, budgets: Sequence[Budget]
) -> NDArray[np.float64]:
    """Random places of the full spectrum: either place of a pair finds the pair's one cosine."""
    alone, paired = _total(own), _total(real)
    kept = []
    for budget in budgets:
        n, count = budget.p * budget.q, selection.count(budget)
        kept.append(alone * count / n + paired * pair_hit_probability(n, count))
    return np.array(kept)


def _total(energies: torch.Tensor) -> float:
    """The sum in double precision, by pieces: torch would widen a copy of the whole."""
    return sum(float(piece.sum(dtype=torch.float64)) for piece in energies.split(_PIECE))


def largest_sums(energies: torch.Tensor, counts: Sequence[int]) -> NDArray[np.float64]:
    """Sums of the largest values.

    Args:
        energies: A vector, which may be put into another order.
        counts: How many values each sum takes.

    Returns:
        One sum a count, accumulated in double precision.
    """
    count = max(counts)
    if energies.device.type == "cpu":
        # NumPy's partition and sort are vectorised, and several times faster than topk here.
        values = energies.numpy()
        if count:
            values.partition(len(values) - count)
        top = np.sort(values[len(values) - count :])[::-1]
    else:
        top = energies.topk(count).values.cpu().numpy()
    return np.concatenate([[0.0], np.cumsum(top, dtype=np.float64)])[list(counts)]
