r"""Monte Carlo by distributional identity: the law of each error, without the matrix.

Under i.i.d. N(0, 1) entries every orthonormal coordinate vector is again i.i.d. N(0, 1), so an
error is a function of a few independent variables:

- largest first (D, F3, S, F2): by Rényi's representation the k-th smallest upper tail probability
  of n variables is :math:`1 - \exp(-\sum_{j\le k} E_j/(n-j+1))` with independent exponentials E_j,
  so only the kept variables are drawn;
- random order (F1, V1, FourierFT): the energies met one after another;
- R: the bidiagonal model (:mod:`loca_theory.expressivity.bidiagonal`).

Draws are sequential: a smaller budget reads a prefix of what a larger one reads.

Source: A. Rényi, Acta Math. Acad. Sci. Hungar. 4 (1953); the laws are those of the paper's
equation (reformulate).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.bidiagonal import sample_leading_eigenvalues
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.curves import CURVES, Selection, find_curve
from loca_theory.expressivity.order_statistics import upper_quantile
from loca_theory.expressivity.random_choices import first_hits, random_places

_Array = NDArray[np.float64]


def reduced_errors(curve: str, budgets: Sequence[Budget], rng: np.random.Generator) -> _Array:
    """One draw of a curve's relative error, for every budget at once.

    Args:
        curve: A curve with a reduced form.
        budgets: Budgets of one shape.
        rng: Source of randomness.

    Returns:
        One error a budget. For R it is relative to the draw's own ‖W‖², which has the same mean
        (the ratio is independent of ‖W‖²) and the smaller variance.

    Raises:
        InvalidArgumentError: the curve is unknown or has no reduced form.
    """
    entry = find_curve(curve)
    n = budgets[0].p * budgets[0].q
    if curve == "R":
        p, q, top = budgets[0].p, budgets[0].q, max(budget.r for budget in budgets)
        values, total = sample_leading_eigenvalues(p, q, top, rng)
        return 1.0 - _prefix_sums(values, [budget.r for budget in budgets]) / total
    if entry.selection is None:
        names = ", ".join(c.name for c in CURVES.values() if c.reduced and c.selection) + ", R"
        msg = f"{curve} has no reduced form (those that have: {names}); use the dense sampler"
        raise InvalidArgumentError(msg)
    counts = [entry.selection.count(budget) for budget in budgets]
    energies = _law(entry.selection)(budgets[0], max(counts), rng)
    return 1.0 - _prefix_sums(energies, counts) / n


def _prefix_sums(values: _Array, counts: Sequence[int]) -> _Array:
    return np.concatenate([[0.0], np.cumsum(values)])[np.asarray(counts)]


def _law(selection: Selection) -> Callable[[Budget, int, np.random.Generator], _Array]:
    """What yields the energies of the first ``count`` kept items, in the order of keeping."""
    if not selection.random:
        return _largest_locations if selection.items == "locations" else _largest_coefficients
    return {
        "locations": _random_locations,
        "cosines": _random_cosines,
        "coefficients": _random_coefficients,
    }[selection.items]


def _largest(n: int, count: int, df: int, rng: np.random.Generator) -> _Array:
    """The ``count`` largest of n independent χ²_df variables, in decreasing order."""
    steps = rng.standard_exponential(count) / (n - np.arange(count))
    return upper_quantile(-np.expm1(-np.cumsum(steps)), df)


def _largest_coefficients(budget: Budget, count: int, rng: np.random.Generator) -> _Array:
    return _largest(budget.p * budget.q, count, 1, rng)


def _largest_locations(budget: Budget, count: int, rng: np.random.Generator) -> _Array:
    half = budget.half
    own = rng.chisquare(1, half.self_conjugate_count)
    pairs = _largest(half.pair_count, min(count, half.pair_count), 2, rng)
    return np.sort(np.concatenate([own, pairs]))[::-1][:count]


def _random_locations(budget: Budget, count: int, rng: np.random.Generator) -> _Array:
    half = budget.half
    s = half.self_conjugate_count
    own = rng.chisquare(1, s)
    places = rng.choice(half.location_count, s, replace=False)
    energies = 2.0 * rng.standard_exponential(count)
    met = places < count
    energies[places[met]] = own[met]
    return energies


def _random_coefficients(budget: Budget, count: int, rng: np.random.Generator) -> _Array:
    del budget  # every place carries the same law
    return rng.standard_normal(count) ** 2


def _random_cosines(budget: Budget, count: int, rng: np.random.Generator) -> _Array:
    # From a stream of their own: how much of it they use up depends on how many there are.
    stream = np.random.default_rng(rng.integers(1 << 63, size=4))
    places = random_places(budget.p * budget.q, count, stream)
    energies = rng.standard_normal(count) ** 2
    energies[~first_hits(places, budget.p, budget.q)] = 0.0
    return energies
