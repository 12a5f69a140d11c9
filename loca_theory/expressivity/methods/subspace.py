r"""Subspaces: coordinates chosen at random, without knowledge of W.

If the entries are independent N(0, 1), every subspace of dimension d retains the fraction d/pq of
the energy on average. The paper's F1, and FourierFT as shipped, reach subspaces whose dimension
differs from the number of coefficients that they spend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.methods.bases import FOURIER, Basis
from loca_theory.expressivity.methods.coordinates import CoordinateMethod, prefix_sums, total
from loca_theory.expressivity.methods.method import Array
from loca_theory.expressivity.methods.selection import both_parts
from loca_theory.expressivity.random_choices import first_hits, random_indices, required

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Subspace(CoordinateMethod):
    """N random coordinates of a basis, with indices from a seed.

    The method draws items: here coordinates, in :class:`RandomLocations` locations, and in
    :class:`RandomCosines` indices of the full spectrum.

    Attributes:
        basis: The basis.
    """

    _: KW_ONLY
    basis: Basis

    def count(self, budget: Budget) -> int:
        """One number per coefficient."""
        return budget.random_coefficients

    def items(self, budget: Budget) -> int:
        """Number of items to draw from."""
        return budget.p * budget.q

    def item_energies(self, coordinates: torch.Tensor, budget: Budget) -> torch.Tensor:
        """Energy that each item retains."""
        del budget
        return coordinates.square()

    def draw(
        self, budget: Budget, count: int, rng: np.random.Generator | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Drawn items in order, and whether each retains energy that no earlier one does."""
        drawn = random_indices(self.items(budget), count, required(rng))
        return drawn, np.ones(count, dtype=bool)

    def chosen(
        self, coordinates: torch.Tensor, budget: Budget, rng: np.random.Generator | None
    ) -> torch.Tensor:
        """Indices of random coordinates."""
        import torch

        drawn, _ = self.draw(budget, self.count(budget), rng)
        return torch.from_numpy(drawn).to(coordinates.device)

    def retained_energies(
        self,
        matrix: torch.Tensor,
        budgets: Sequence[Budget],
        rng: np.random.Generator | None = None,
    ) -> Array:
        """See :class:`~loca_theory.expressivity.Method`; smaller budgets use the first items."""
        counts = [self.count(budget) for budget in budgets]
        drawn, is_new = self.draw(budgets[0], max(counts), rng)
        energies = self.item_energies(self.basis.coordinates(matrix.detach()), budgets[0])
        found = energies[drawn].cpu().numpy()
        return prefix_sums(np.where(is_new, found, 0.0), counts)

    def mean_sums(self, energies: torch.Tensor, budgets: Sequence[Budget]) -> Array:
        """The whole energy times the fraction of the items that is drawn."""
        counts = np.array([self.count(budget) for budget in budgets], dtype=np.float64)
        return total(energies) / self.items(budgets[0]) * counts

    def expected_errors(self, budgets: Sequence[Budget]) -> Array:
        """1 − N/n, where n is the number of items."""
        counts = np.array([self.count(budget) for budget in budgets])
        return 1 - counts / self.items(budgets[0])

    def limit(self, budget: Budget) -> float:
        """The same as the expected error."""
        return 1 - self.count(budget) / (budget.p * budget.q)

    def sample(self, budgets: Sequence[Budget], rng: np.random.Generator) -> Array:
        """Sums of the energies of the drawn items."""
        counts = [self.count(budget) for budget in budgets]
        energies = self._drawn_energies(budgets[0], max(counts), rng)
        return 1 - prefix_sums(energies, counts) / (budgets[0].p * budgets[0].q)

    def _drawn_energies(self, budget: Budget, count: int, rng: np.random.Generator) -> Array:
        del budget  # all coordinates have the same law
        return rng.standard_normal(count) ** 2


@dataclass(frozen=True)
class RandomLocations(Subspace):
    """Random locations of the half spectrum, with both numbers of each: the paper's F1."""

    basis: Basis = FOURIER

    def count(self, budget: Budget) -> int:
        """Two numbers per location."""
        return budget.random_locations

    def items(self, budget: Budget) -> int:
        """Number of independent locations."""
        return budget.half_spectrum.location_count

    def item_energies(self, coordinates: torch.Tensor, budget: Budget) -> torch.Tensor:
        """Energy of both parts of each location."""
        from loca_theory.transforms import RealSpectrum

        return RealSpectrum(budget.p, budget.q).location_energies(coordinates)

    def chosen(
        self, coordinates: torch.Tensor, budget: Budget, rng: np.random.Generator | None
    ) -> torch.Tensor:
        """Indices of both coordinates of random locations."""
        return both_parts(super().chosen(coordinates, budget, rng), budget)

    def limit(self, budget: Budget) -> float:
        """The limit, without the self-conjugate locations, of which there are at most four."""
        return 1 - 2 * self.count(budget) / (budget.p * budget.q)

    def _drawn_energies(self, budget: Budget, count: int, rng: np.random.Generator) -> Array:
        half = budget.half_spectrum
        s = half.self_conjugate_count
        own = rng.chisquare(1, s)
        positions = rng.choice(half.location_count, s, replace=False)
        energies = 2.0 * rng.standard_exponential(count)
        is_drawn = positions < count
        energies[positions[is_drawn]] = own[is_drawn]
        return energies


@dataclass(frozen=True)
class RandomCosines(Subspace):
    """Real coefficients at random indices of the full spectrum: FourierFT as shipped.

    Either index of a conjugate pair selects the cosine of the pair; the sine is never retained.
    With s self-conjugate entries and m pairs, N random indices of n = pq retain on average
    :math:`s N/n + m\\,(1 - \\tfrac{(n-N)(n-N-1)}{n(n-1)})`.
    """

    basis: Basis = FOURIER

    def item_energies(self, coordinates: torch.Tensor, budget: Budget) -> torch.Tensor:
        """Energy of the cosine that each index of the full spectrum selects."""
        return coordinates[self._cosine_of(budget)].square()

    def draw(
        self, budget: Budget, count: int, rng: np.random.Generator | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Indices of the full spectrum, and which of them are the first of their pair."""
        drawn, _ = super().draw(budget, count, rng)
        return drawn, first_hits(drawn, budget.p, budget.q)

    def chosen(
        self, coordinates: torch.Tensor, budget: Budget, rng: np.random.Generator | None
    ) -> torch.Tensor:
        """Indices of the cosines that random indices of the full spectrum select."""
        return self._cosine_of(budget).to(coordinates.device)[
            super().chosen(coordinates, budget, rng)
        ]

    def mean_sums(self, energies: torch.Tensor, budgets: Sequence[Budget]) -> Array:
        """From the energies of the self-conjugate entries and of the real parts of the pairs."""
        s, m = budgets[0].half_spectrum.self_conjugate_count, budgets[0].half_spectrum.pair_count
        own, paired = total(energies[:s]), total(energies[s : s + m])
        return np.array([self._retained(budget, own, paired) for budget in budgets])

    def expected_errors(self, budgets: Sequence[Budget]) -> Array:
        """See the formula of the class."""
        half = budgets[0].half_spectrum
        s, m = float(half.self_conjugate_count), float(half.pair_count)
        sums = [self._retained(budget, s, m) for budget in budgets]
        return 1 - np.array(sums) / (budgets[0].p * budgets[0].q)

    def limit(self, budget: Budget) -> float:
        """The limit, in which a pair retains half its energy if either of its indices is drawn."""
        missed = 1 - self.count(budget) / (budget.p * budget.q)
        return 1 - (1 - missed**2) / 2

    def _retained(self, budget: Budget, own: float, paired: float) -> float:
        n, count = budget.p * budget.q, self.count(budget)
        is_hit = 1 - (n - count) * (n - count - 1) / (n * (n - 1)) if n > 1 else 1.0
        return own * count / n + paired * is_hit

    def _drawn_energies(self, budget: Budget, count: int, rng: np.random.Generator) -> Array:
        # The indices use a stream of their own, because their number decides how much they consume.
        stream = np.random.default_rng(rng.integers(1 << 63, size=4))
        _, is_new = self.draw(budget, count, stream)
        energies = rng.standard_normal(count) ** 2
        energies[~is_new] = 0.0
        return energies

    def _cosine_of(self, budget: Budget) -> torch.Tensor:
        """The coordinate that each index of the full spectrum selects, shape (p·q,)."""
        import torch

        p, q, half = budget.p, budget.q, budget.half_spectrum
        found = np.empty(p * q, dtype=np.int64)
        members = np.concatenate([half.self_conjugate, half.representatives])
        found[members[:, 0] * q + members[:, 1]] = np.arange(half.location_count)
        found[(-members[:, 0] % p) * q + (-members[:, 1] % q)] = np.arange(half.location_count)
        return torch.from_numpy(found)
