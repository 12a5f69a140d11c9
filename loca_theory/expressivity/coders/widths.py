r"""Reverse water-filling: bits of several components that share a total, whole or not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loca_theory.expressivity.coders.laws import Array


def best_widths(energies: Array, retained: Array, costs: Array, total: float) -> NDArray[np.int64]:
    """The widths that retain the most energy within a total.

    A component of energy e retains ``e · retained[v]`` at width v and costs ``costs[v]``. Bits are
    bought in the order of energy per bit, along the concave envelope of what the widths retain,
    until the next do not fit: no split of what is spent retains more.

    Args:
        energies: Energies of the components.
        retained: Fraction of a component's energy that is retained, by width from 0.
        costs: Bits of a component, by width.
        total: Bits for all.

    Returns:
        The width of each component; none retains anything if the total does not pay for width 0.
    """
    hull = _concave(costs, retained)
    prices = np.diff(costs[hull])
    worth = np.outer(energies, np.diff(retained[hull]) / prices)
    order = np.argsort(-worth, axis=None, kind="stable")
    spent = len(energies) * costs[0] + np.cumsum(prices[order % len(prices)])
    bought = order[spent <= total]
    return np.asarray(hull)[np.bincount(bought // len(prices), minlength=len(energies))]


def _concave(costs: Array, values: Array) -> list[int]:
    """The widths, from the first, on the upper concave envelope of their values."""
    hull = [0]
    while hull[-1] < len(costs) - 1:
        at = hull[-1]
        slopes = (values[at + 1 :] - values[at]) / (costs[at + 1 :] - costs[at])
        hull.append(at + 1 + int(np.argmax(slopes)))
    return hull


def water_filling(variances: Array, bits: float) -> float:
    r"""The least relative error of independent normal numbers with these variances.

    .. math:: \frac{\sum_i \min(θ, σ_i^2)}{\sum_i σ_i^2}
        \quad\text{with}\quad \frac1n \sum_i \max(0, \tfrac12 \log_2 σ_i^2/θ) = b

    Args:
        variances: The variances σᵢ², not all 0.
        bits: Bits b per number.

    Source: T. M. Cover, J. A. Thomas, Elements of Information Theory, 2006, theorem 10.3.3.
    """
    ordered = np.sort(variances[variances > 0])[::-1]
    # If the k largest get bits, their logarithms less 2bn/k in the mean are that of θ.
    count = np.arange(1, len(ordered) + 1)
    levels = (np.cumsum(np.log2(ordered)) - 2 * bits * len(variances)) / count
    theta = 2.0 ** levels.max()
    return float(np.minimum(theta, ordered).sum() / ordered.sum())
