r"""Subspaces: coordinates chosen at random, without knowledge of W.

If the entries are independent N(0, 1), every subspace of dimension d retains the fraction d/pq of
the energy on average. The paper's F1 reaches a subspace whose dimension differs from the number of
coefficients that it spends.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loca_theory._types import Array
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.methods.coordinates.bases import FOURIER, Basis
from loca_theory.expressivity.methods.coordinates.coordinate_method import (
    CoordinateMethod,
    prefix_sums,
    total,
)
from loca_theory.expressivity.methods.coordinates.selection import both_parts, location_energies
from loca_theory.expressivity.methods.linear_families import LinearFamily
from loca_theory.expressivity.methods.method import Budgets, OptionalRng
from loca_theory.expressivity.methods.pretrained.weights import UsesWeights
from loca_theory.expressivity.random_choices import random_indices, require_rng

if TYPE_CHECKING:
    from torch import Tensor


Indices: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Subspace(CoordinateMethod, LinearFamily):
    """N random coordinates of a basis, with indices from a seed.

    The method draws items: here coordinates, in :class:`RandomLocations` locations, and in
    :class:`RandomCosines` indices of the full spectrum.

    Attributes:
        basis: The basis.
        scaling: Scaling of the coordinates in the adapter, by default; None if there is none.
    """

    _: KW_ONLY
    basis: Basis
    scaling: float | None = None

    def count(self, budget: Budget) -> int:
        """One number per coefficient."""
        return budget.random_coefficients

    def items(self, budget: Budget) -> int:
        """Number of items to draw from."""
        return budget.p * budget.q

    def item_energies(self, coordinates: Tensor, drawn: Indices, budget: Budget) -> Array:
        """Energy that each drawn item retains, beyond those before it."""
        return coordinates[drawn].square().cpu().numpy()

    def draw(self, budget: Budget, count: int, rng: OptionalRng) -> Indices:
        """Drawn items in order."""
        return random_indices(self.items(budget), count, require_rng(rng))

    def chosen(self, coordinates: Tensor, budget: Budget, rng: OptionalRng) -> Tensor:
        """Indices of random coordinates."""
        import torch

        drawn = self.draw(budget, self.count(budget), rng)
        return torch.from_numpy(drawn).to(coordinates.device)

    def retained_energies(self, matrix: Tensor, budgets: Budgets, rng: OptionalRng = None) -> Array:
        """See :class:`~loca_theory.expressivity.Method`; smaller budgets use the first items."""
        counts = [self.count(budget) for budget in budgets]
        drawn = self.draw(budgets[0], max(counts), rng)
        coordinates = self.basis.coordinates(matrix.detach())
        return prefix_sums(self.item_energies(coordinates, drawn, budgets[0]), counts)

    def mean_sums(self, energies: Tensor, budgets: Budgets) -> Array:
        """The whole energy times the fraction of the items that is drawn."""
        counts = np.array([self.count(budget) for budget in budgets], dtype=np.float64)
        return total(energies) / self.items(budgets[0]) * counts

    def expected_errors(self, budgets: Budgets) -> Array:
        """1 − N/n, where n is the number of items."""
        counts = np.array([self.count(budget) for budget in budgets])
        return 1 - counts / self.items(budgets[0])

    def sample(self, budgets: Budgets, rng: np.random.Generator) -> Array:
        """Sums of the energies of the drawn items."""
        counts = [self.count(budget) for budget in budgets]
        energies = self._drawn_energies(budgets[0], max(counts), rng)
        return 1 - prefix_sums(energies, counts) / (budgets[0].p * budgets[0].q)

    def _drawn_energies(self, budget: Budget, count: int, rng: np.random.Generator) -> Array:
        return rng.standard_normal(count) ** 2


@dataclass(frozen=True)
class LargestWeights(UsesWeights, Subspace):
    """Super-Tuning: the entries of the largest |W₀|; random ones if W₀ is not known."""

    def draw(self, budget: Budget, count: int, rng: OptionalRng) -> Indices:
        """See :class:`Subspace`."""
        weights = self.known_weights((budget.p, budget.q))
        if weights is None:
            return super().draw(budget, count, rng)
        return weights.abs().flatten().topk(count).indices.cpu().numpy()

    def mean_sums(self, energies: Tensor, budgets: Budgets) -> Array:
        """See :class:`Subspace`."""
        if self.weights is None:
            return super().mean_sums(energies, budgets)
        counts = [self.count(budget) for budget in budgets]
        drawn = self.draw(budgets[0], max(counts), None)
        return prefix_sums(energies[drawn].cpu().numpy(), counts)


@dataclass(frozen=True)
class RandomLocations(Subspace):
    """Random locations of the half spectrum, with both numbers of each: the paper's F1."""

    basis: Basis = FOURIER

    def count(self, budget: Budget) -> int:
        """Two numbers per location."""
        return budget.random_locations

    def parameters(self, budget: Budget) -> int:
        """Two numbers per location."""
        return 2 * self.count(budget)

    def items(self, budget: Budget) -> int:
        """Number of independent locations."""
        return budget.half_spectrum.location_count

    def item_energies(self, coordinates: Tensor, drawn: Indices, budget: Budget) -> Array:
        """Energy of both parts of each location."""
        return location_energies(coordinates.square(), budget)[drawn].cpu().numpy()

    def chosen(self, coordinates: Tensor, budget: Budget, rng: OptionalRng) -> Tensor:
        """Indices of both coordinates of random locations."""
        return both_parts(super().chosen(coordinates, budget, rng), budget)

    def _drawn_energies(self, budget: Budget, count: int, rng: np.random.Generator) -> Array:
        half = budget.half_spectrum
        s = half.self_conjugate_count
        self_conjugate = rng.chisquare(1, s)
        positions = rng.choice(half.location_count, s, replace=False)
        energies = 2.0 * rng.standard_exponential(count)
        is_drawn = positions < count
        energies[positions[is_drawn]] = self_conjugate[is_drawn]
        return energies
