r"""Quotas: coordinates chosen within groups, each of which gets its own part of the budget.

The groups share the N coordinates equally; a group that has fewer retains them all. Among
independent N(0, 1) coordinates the best choice retains the sum, over the groups, of the largest
order statistics of each. A random choice retains N/pq of the energy, whatever the groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from loca_theory._types import Array
from loca_theory.expressivity.bits import location_bits
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.laws.order_statistics import expected_top_sum, upper_quantile
from loca_theory.expressivity.limits import coefficient_fraction
from loca_theory.expressivity.methods.coordinates.coordinate_method import total
from loca_theory.expressivity.methods.coordinates.selection import Selection
from loca_theory.expressivity.methods.coordinates.subspace import Indices, Subspace
from loca_theory.expressivity.methods.method import Budgets, OptionalRng
from loca_theory.expressivity.random_choices import require_rng

if TYPE_CHECKING:
    from torch import Tensor


_BANDS = 3

Groups: TypeAlias = Callable[[int, int], Indices]
"""A function of (p, q) that returns the group of each coordinate, shape (p·q,), from 0 on."""


def rows(p: int, q: int) -> Indices:
    """The rows of the coordinates, one group for each."""
    return np.repeat(np.arange(p), q)


def sizes_of(groups: Groups, p: int, q: int) -> Indices:
    """The number of coordinates of each group; the usual groups need no list of all coordinates."""
    if groups is rows:
        return np.full(p, q)
    return _sizes_of_bands(p, q) if groups is bands else np.bincount(groups(p, q))


def bands(p: int, q: int, count: int = _BANDS) -> Indices:
    """Bands of frequencies (u, v), of equal width in the distance of (u/p, v/q) from zero."""
    return _band(np.arange(p)[:, None], np.arange(q), (p, q), count).ravel()


def _band(u: Indices, v: Indices, shape: tuple[int, int], count: int) -> Indices:
    p, q = shape
    widest = np.hypot((p - 1) / p, (q - 1) / q) or 1.0
    distance = np.hypot(u / p, v / q)
    return np.minimum((count * distance / widest).astype(np.int64), count - 1)


def _sizes_of_bands(p: int, q: int) -> Indices:
    """From the number of frequencies of each row below each band, by bisection."""
    u, below = np.arange(p), [0]
    for band in range(1, _BANDS):
        low, high = np.zeros(p, dtype=np.int64), np.full(p, q)
        while np.any(low < high):
            middle = (low + high) // 2
            is_below = _band(u, middle, (p, q), _BANDS) < band
            low = np.where((low < high) & is_below, middle + 1, low)
            high = np.where((low < high) & ~is_below, middle, high)
        below.append(int(low.sum()))
    return np.diff([*below, p * q])


def quotas(sizes: Indices, count: int) -> Indices:
    """Number of coordinates of each group, from the numbers that it has."""
    counts, left = np.zeros_like(sizes), count
    for position, group in enumerate(np.argsort(sizes, kind="stable")):
        counts[group] = min(sizes[group], left // (len(sizes) - position))
        left -= counts[group]
    return counts


@dataclass(frozen=True)
class GroupedSelection(Selection):
    """The largest coordinates of every group."""

    _: KW_ONLY
    groups: Groups
    reorders = False

    def stored_bits(self, budget: Budget) -> float:
        """A number per coefficient, and its index within its group."""
        sizes, (chosen,) = self._quotas([budget])
        indices = sum(c * location_bits(n) for n, c in zip(sizes, chosen, strict=True) if c)
        return float(self.count(budget) * budget.value_bits + indices)

    def chosen(self, coordinates: Tensor, budget: Budget, rng: OptionalRng) -> Tensor:
        """Indices of the largest coordinates of every group."""
        import torch

        order = self._by_group(coordinates.square(), budget)
        sizes, (chosen,) = self._quotas([budget])
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        is_chosen = torch.from_numpy(within < np.repeat(chosen, sizes))
        return order[is_chosen.to(order.device)]

    def mean_sums(self, energies: Tensor, budgets: Budgets) -> Array:
        """Sums of the largest energies of every group."""
        ordered = energies[self._by_group(energies, budgets[0])].double().cpu().numpy()
        sizes, counts_of_budgets = self._quotas(budgets)
        sums = np.concatenate([[0.0], np.cumsum(ordered)])
        starts = np.cumsum(sizes) - sizes
        return np.array(
            [(sums[starts + counts] - sums[starts]).sum() for counts in counts_of_budgets]
        )

    def expected_errors(self, budgets: Budgets) -> Array:
        """From the expected sums of the largest of χ²_1 variables in every group."""
        return self._errors(budgets, lambda size, count: expected_top_sum(size, count, 1))

    def limit(self, budget: Budget) -> float:
        """From the fraction of every group that is retained."""
        return float(self._errors([budget], lambda n, c: n * coefficient_fraction(c / n))[0])

    def _errors(self, budgets: Budgets, retained: Callable[[int, int], float]) -> Array:
        """From the energy that a group retains, by its size and number of chosen coordinates."""
        sizes, counts_of_budgets = self._quotas(budgets)
        sums = []
        for counts in counts_of_budgets:
            groups = Counter(zip(sizes.tolist(), counts.tolist(), strict=True))
            terms = (times * retained(*group) for group, times in groups.items() if group[0])
            sums.append(sum(terms))
        return 1 - np.array(sums) / (budgets[0].p * budgets[0].q)

    def sample(self, budgets: Budgets, rng: np.random.Generator) -> Array:
        """From the largest χ²_1 variables of every group."""
        n = budgets[0].p * budgets[0].q
        sizes, counts_of_budgets = self._quotas(budgets)
        largest = int(max(counts.max() for counts in counts_of_budgets))
        # A row per order statistic, so that a smaller budget uses the first rows.
        steps = rng.standard_exponential((largest, len(sizes)))
        steps /= np.maximum(sizes - np.arange(largest)[:, None], 1)
        values = upper_quantile(-np.expm1(-np.cumsum(steps, axis=0)), 1)
        sums = np.vstack([np.zeros(len(sizes)), np.cumsum(values, axis=0)])
        groups = np.arange(len(sizes))
        return np.array([1 - sums[counts, groups].sum() / n for counts in counts_of_budgets])

    def _quotas(self, budgets: Budgets) -> tuple[Indices, list[Indices]]:
        """Sizes of the groups, and the quotas at each budget."""
        sizes = sizes_of(self.groups, budgets[0].p, budgets[0].q)
        return sizes, [quotas(sizes, self.count(budget)) for budget in budgets]

    def _by_group(self, energies: Tensor, budget: Budget) -> Tensor:
        """Indices of the coordinates, by group and then by decreasing energy."""
        import torch

        labels = torch.from_numpy(self.groups(budget.p, budget.q)).to(energies.device)
        order = energies.argsort(descending=True)
        return order[labels[order].argsort(stable=True)]


@dataclass(frozen=True)
class GroupedSubspace(Subspace):
    """Random coordinates of every group, with indices from a seed."""

    _: KW_ONLY
    groups: Groups

    def draw(self, budget: Budget, count: int, rng: OptionalRng) -> Indices:
        """The groups in turn, so that the first N items fill the quotas of N."""
        labels = self.groups(budget.p, budget.q)
        shuffled = require_rng(rng).permutation(len(labels))
        order = shuffled[np.argsort(labels[shuffled], kind="stable")]
        sizes = np.bincount(labels)
        within = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        # The quotas give what remains to the larger groups first.
        turn = np.argsort(np.argsort(sizes, kind="stable"))
        return order[np.lexsort((-turn[labels[order]], within))][:count]

    def mean_sums(self, energies: Tensor, budgets: Budgets) -> Array:
        """The energy of every group times the fraction of it that is drawn."""
        import torch

        labels = self.groups(budgets[0].p, budgets[0].q)
        sizes = np.bincount(labels)
        where = torch.from_numpy(labels).to(energies.device)
        energy = np.array([total(energies[where == group]) for group in range(len(sizes))])
        density = energy / np.maximum(sizes, 1)
        counts = [self.count(budget) for budget in budgets]
        return np.array([density @ quotas(sizes, count) for count in counts])
