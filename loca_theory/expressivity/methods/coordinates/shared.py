r"""Subspaces of random indices of which two can select the same coordinate.

FourierFT and WaveFT, as shipped, reach subspaces of fewer dimensions than the coefficients that
they spend.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from loca_theory._types import Array
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.laws.first_step import StepSize, of_random_cosines
from loca_theory.expressivity.methods.coordinates.bases import FOURIER, HAAR, Basis
from loca_theory.expressivity.methods.coordinates.coordinate_method import total
from loca_theory.expressivity.methods.coordinates.subspace import Indices, Subspace
from loca_theory.expressivity.methods.method import Budgets, OptionalRng

if TYPE_CHECKING:
    from torch import Tensor

# Whether a sub-band has the sums of rows, or their differences, and of columns.
_SUB_BANDS = tuple(product((True, False), repeat=2))


@dataclass(frozen=True)
class SharedCoordinates(Subspace):
    r"""Random indices, one or two of which select the same coordinate.

    If s coordinates are selected by one index and m by two, N random indices of n = pq retain on
    average :math:`s N/n + m\,(1 - \tfrac{(n-N)(n-N-1)}{n(n-1)})`.
    """

    @abstractmethod
    def targets(self, budget: Budget) -> Indices:
        """The coordinate that each index selects, shape (p·q,)."""

    def selected(self, budget: Budget) -> tuple[int, int]:
        """Number of coordinates that one index selects, and that two do."""
        counts = np.bincount(np.bincount(self.targets(budget)), minlength=3)
        return int(counts[1]), int(counts[2])

    def selected_energies(self, energies: Tensor, budget: Budget) -> tuple[float, float]:
        """Energy of the coordinates that one index selects, and of those that two do."""
        import torch

        counts = torch.from_numpy(np.bincount(self.targets(budget), minlength=len(energies)))
        counts = counts.to(energies.device)
        return total(energies[counts == 1]), total(energies[counts == 2])

    def is_first(self, drawn: Indices, budget: Budget) -> NDArray[np.bool_]:
        """Mark every index that selects a coordinate that no earlier one selects."""
        is_first = np.zeros(len(drawn), dtype=bool)
        is_first[np.unique(self.labels(drawn, budget), return_index=True)[1]] = True
        return is_first

    def labels(self, drawn: Indices, budget: Budget) -> Indices:
        """A number for each index, the same for two that select the same coordinate."""
        return self.targets(budget)[drawn]

    def item_energies(self, coordinates: Tensor, drawn: Indices, budget: Budget) -> Array:
        """Energy of the coordinate that each index selects, unless an earlier one does."""
        selected = super().item_energies(coordinates, self.targets(budget)[drawn], budget)
        return np.where(self.is_first(drawn, budget), selected, 0.0)

    def chosen(self, coordinates: Tensor, budget: Budget, rng: OptionalRng) -> Tensor:
        """Indices of the coordinates that random indices select."""
        import torch

        drawn = super().chosen(coordinates, budget, rng)
        return torch.from_numpy(self.targets(budget)).to(drawn.device)[drawn]

    def mean_sums(self, energies: Tensor, budgets: Budgets) -> Array:
        """From the energies of the coordinates that one and two indices select."""
        single, paired = self.selected_energies(energies, budgets[0])
        return np.array([self._retained(budget, single, paired) for budget in budgets])

    def expected_errors(self, budgets: Budgets) -> Array:
        """See the formula of the class."""
        s, m = self.selected(budgets[0])
        sums = [self._retained(budget, float(s), float(m)) for budget in budgets]
        return 1 - np.array(sums) / (budgets[0].p * budgets[0].q)

    def _retained(self, budget: Budget, single: float, paired: float) -> float:
        n, count = budget.p * budget.q, self.count(budget)
        is_hit = 1 - (n - count) * (n - count - 1) / (n * (n - 1)) if n > 1 else 1.0
        return single * count / n + paired * is_hit

    def _drawn_energies(self, budget: Budget, count: int, rng: np.random.Generator) -> Array:
        # The indices use a stream of their own, because their number decides how much they consume.
        stream = np.random.default_rng(rng.integers(1 << 63, size=4))
        drawn = self.draw(budget, count, stream)
        return np.where(self.is_first(drawn, budget), rng.standard_normal(count) ** 2, 0.0)


@dataclass(frozen=True)
class RandomCosines(SharedCoordinates):
    r"""Real coefficients at random indices of the full spectrum: FourierFT as shipped.

    Either index of a conjugate pair selects the cosine of the pair; the sine is never retained.
    """

    basis: Basis = FOURIER

    def targets(self, budget: Budget) -> Indices:
        """The cosine that each index of the full spectrum selects."""
        p, q, half = budget.p, budget.q, budget.half_spectrum
        targets = np.empty(p * q, dtype=np.int64)
        members = np.concatenate([half.self_conjugate, half.representatives])
        targets[members[:, 0] * q + members[:, 1]] = np.arange(half.location_count)
        targets[(-members[:, 0] % p) * q + (-members[:, 1] % q)] = np.arange(half.location_count)
        return targets

    def selected(self, budget: Budget) -> tuple[int, int]:
        """The self-conjugate entries and the pairs."""
        half = budget.half_spectrum
        return half.self_conjugate_count, half.pair_count

    def selected_energies(self, energies: Tensor, budget: Budget) -> tuple[float, float]:
        """Energy of the self-conjugate entries and of the real parts of the pairs."""
        s, m = self.selected(budget)
        return total(energies[:s]), total(energies[s : s + m])

    def labels(self, drawn: Indices, budget: Budget) -> Indices:
        """The smaller index of each conjugate pair, which needs no table of the pairs."""
        i, j = np.divmod(drawn, budget.q)
        return np.minimum(drawn, (-i % budget.p) * budget.q + (-j % budget.q))

    def first_step(self, budget: Budget) -> StepSize | None:
        """Of cosines divided by pq, times the scaling."""
        if self.scaling is None:
            return None
        return of_random_cosines(budget.p, budget.q, self.count(budget), self.scaling)

    def limit(self, budget: Budget) -> float:
        """The limit, in which a pair retains half its energy if either of its indices is drawn."""
        unselected = 1 - self.count(budget) / (budget.p * budget.q)
        return 1 - (1 - unselected**2) / 2


@dataclass(frozen=True)
class PaddedWavelet(SharedCoordinates):
    """Random coefficients of a padded Haar transform: WaveFT as shipped, with its default wavelet.

    An odd side is padded by one and the matrix is cropped. The sum and the difference of the last
    pair then become the same entry, and the coefficient of the difference is not used. At even
    sides this is a random choice in the basis :class:`Haar`.
    """

    basis: Basis = HAAR

    def first_step(self, budget: Budget) -> StepSize | None:
        """Of orthonormal wavelets times the scaling; not known where a side is padded."""
        return None if budget.p % 2 or budget.q % 2 else super().first_step(budget)

    def targets(self, budget: Budget) -> Indices:
        """Coefficient (i, j) lies in one of four sub-bands of the padded p×q grid.

        The top right sub-band has the differences of rows and the sums of columns.
        """
        p, q = budget.p, budget.q
        i, j = np.divmod(np.arange(p * q), q)
        is_low, is_left = i < -(-p // 2), j < -(-q // 2)
        row = _cropped(np.where(is_low, i, i - -(-p // 2)), ~is_left, p)
        column = _cropped(np.where(is_left, j, j - -(-q // 2)), ~is_low, q)
        return row * q + column

    def selected(self, budget: Budget) -> tuple[int, int]:
        """From how often each sub-band selects a row and a column, without a list of all indices.

        An index of a sub-band selects its row and its column independently.
        """
        of_rows = [_hits(budget.p, low, not left) for low, left in _SUB_BANDS]
        of_columns = [_hits(budget.q, left, not low) for low, left in _SUB_BANDS]
        row_hits, rows = np.unique(of_rows, axis=1, return_counts=True)
        column_hits, columns = np.unique(of_columns, axis=1, return_counts=True)
        hits, coordinates = row_hits.T @ column_hits, np.outer(rows, columns)
        return int(coordinates[hits == 1].sum()), int(coordinates[hits == 2].sum())


def _hits(size: int, is_first: bool, is_difference: bool) -> Indices:
    """How often the first or the second half of the indices of a side selects each position."""
    half = -(-size // 2) if is_first else size // 2
    positions = _cropped(np.arange(half), np.full(half, is_difference), size)
    return np.bincount(positions, minlength=size)


def _cropped(index: Indices, is_difference: NDArray[np.bool_], size: int) -> Indices:
    """Position in :class:`Haar` of sums and differences; the padded pair has only a sum."""
    sums = -(-size // 2)
    difference = np.where(sums + index < size, sums + index, sums - 1)
    return np.where(is_difference, difference, index)
