r"""Selections: the largest coordinates of an orthonormal basis, chosen with knowledge of W.

If the entries are independent N(0, 1), so are the coordinates in every orthonormal basis, and a
selection retains a sum of the largest order statistics. Draws of this sum need no matrix: by
Rényi's representation the k-th smallest upper tail probability of n variables is
:math:`1 - \exp(-\sum_{j\le k} E_j/(n-j+1))` with independent exponentials :math:`E_j`, so only the
retained variables are drawn.

Source: A. Rényi, Acta Math. Acad. Sci. Hungar. 4 (1953); the laws are those of the paper's
equation (reformulate).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import numpy as np

from loca_theory._types import Array
from loca_theory.expressivity.bits import location_bits
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.laws.order_statistics import (
    expected_location_sum,
    expected_top_sum,
    upper_quantile,
)
from loca_theory.expressivity.limits import coefficient_fraction, location_fraction
from loca_theory.expressivity.methods.coordinates.bases import FOURIER, Basis
from loca_theory.expressivity.methods.coordinates.coordinate_method import (
    CoordinateMethod,
    prefix_sums,
)
from loca_theory.expressivity.methods.method import Budgets, OptionalRng

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Selection(CoordinateMethod):
    """The N largest coordinates of a basis: the best N-term approximation in it.

    Its energy is the sum of the N largest of pq independent χ²_1 variables, whatever the basis.

    Attributes:
        basis: The basis.
        scaling: Scaling of the coordinates in the adapter, by default; None if there is none.
    """

    _: KW_ONLY
    basis: Basis
    scaling: float | None = None
    is_oracle = True
    reorders = True

    def count(self, budget: Budget) -> int:
        """One number and an index per coefficient."""
        return budget.chosen_coefficients

    def indices(self, budget: Budget) -> int:
        """One per coefficient or location."""
        return self.count(budget)

    def stored_bits(self, budget: Budget) -> float:
        """A number and an index per coefficient."""
        index = location_bits(budget.p * budget.q)
        return self.count(budget) * (budget.value_bits + index)

    def chosen(self, coordinates: Tensor, budget: Budget, rng: OptionalRng) -> Tensor:
        """Indices of the largest coordinates."""
        return coordinates.square().topk(self.count(budget)).indices

    def mean_sums(self, energies: Tensor, budgets: Budgets) -> Array:
        """Sums of the largest energies in double precision; reorders ``energies`` in place."""
        counts = [self.count(budget) for budget in budgets]
        count = max(counts)
        if energies.device.type != "cpu":
            return prefix_sums(energies.topk(count).values.cpu().numpy(), counts)
        # NumPy's partition and sort are vectorised, and several times faster than topk here.
        values = energies.numpy()
        if count:
            values.partition(len(values) - count)
        return prefix_sums(np.sort(values[len(values) - count :])[::-1], counts)

    def retained_energies(self, matrix: Tensor, budgets: Budgets, rng: OptionalRng = None) -> Array:
        """See :class:`~loca_theory.expressivity.Method`; ``rng`` is not used."""
        return self.mean_retained_energies(matrix, budgets, rng)

    def expected_errors(self, budgets: Budgets) -> Array:
        """From the expected sum of the N largest of pq independent χ²_1 variables."""
        n = budgets[0].p * budgets[0].q
        return np.array([1 - expected_top_sum(n, self.count(budget), 1) / n for budget in budgets])

    def limit(self, budget: Budget) -> float:
        """See :func:`~loca_theory.expressivity.limits.coefficient_fraction`."""
        return 1 - coefficient_fraction(self.count(budget) / (budget.p * budget.q))

    def sample(self, budgets: Budgets, rng: np.random.Generator) -> Array:
        """From the N largest of pq χ²_1 variables."""
        n, counts = budgets[0].p * budgets[0].q, [self.count(budget) for budget in budgets]
        return 1 - prefix_sums(_largest(n, max(counts), 1, rng), counts) / n


@dataclass(frozen=True)
class LocationSelection(Selection):
    """The strongest locations of the DFT, with both numbers of each: the paper's F2.

    The energies of the s self-conjugate entries are χ²_1 variables, those of the m pairs χ²_2.
    """

    basis: Basis = FOURIER
    reorders = False

    def count(self, budget: Budget) -> int:
        """Two numbers and an index per location."""
        return budget.chosen_locations

    def parameters(self, budget: Budget) -> int:
        """Two numbers per location."""
        return 2 * self.count(budget)

    def stored_bits(self, budget: Budget) -> float:
        """Two numbers and an index per location."""
        index = location_bits(budget.half_spectrum.location_count)
        return self.count(budget) * (2 * budget.value_bits + index)

    def chosen(self, coordinates: Tensor, budget: Budget, rng: OptionalRng) -> Tensor:
        """Indices of both coordinates of the strongest locations."""
        energies = location_energies(coordinates.square(), budget)
        return both_parts(energies.topk(self.count(budget)).indices, budget)

    def mean_sums(self, energies: Tensor, budgets: Budgets) -> Array:
        """Sums of the energies of the strongest locations."""
        return super().mean_sums(location_energies(energies, budgets[0]), budgets)

    def expected_errors(self, budgets: Budgets) -> Array:
        """From the expected sum of the strongest of s χ²_1 and m χ²_2 variables."""
        n, half = budgets[0].p * budgets[0].q, budgets[0].half_spectrum
        sums = [expected_location_sum(half, self.count(budget)) for budget in budgets]
        return 1 - np.array(sums) / n

    def limit(self, budget: Budget) -> float:
        """See :func:`~loca_theory.expressivity.limits.location_fraction`."""
        return 1 - location_fraction(2 * self.count(budget) / (budget.p * budget.q))

    def sample(self, budgets: Budgets, rng: np.random.Generator) -> Array:
        """From s χ²_1 variables and the largest of m χ²_2 variables."""
        n, half = budgets[0].p * budgets[0].q, budgets[0].half_spectrum
        counts = [self.count(budget) for budget in budgets]
        self_conjugate = rng.chisquare(1, half.self_conjugate_count)
        pairs = _largest(half.pair_count, min(max(counts), half.pair_count), 2, rng)
        energies = np.sort(np.concatenate([self_conjugate, pairs]))[::-1][: max(counts)]
        return 1 - prefix_sums(energies, counts) / n


def _largest(n: int, count: int, df: int, rng: np.random.Generator) -> Array:
    """The ``count`` largest of n independent χ²_df variables, in decreasing order."""
    steps = rng.standard_exponential(count) / (n - np.arange(count))
    return upper_quantile(-np.expm1(-np.cumsum(steps)), df)


def both_parts(locations: Tensor, budget: Budget) -> Tensor:
    """Indices of all coordinates that belong to locations of the half spectrum."""
    import torch

    # The imaginary part of a pair comes pair_count entries after its real part.
    pairs = locations[locations >= budget.half_spectrum.self_conjugate_count]
    return torch.cat([locations, pairs + budget.half_spectrum.pair_count])


def location_energies(energies: Tensor, budget: Budget) -> Tensor:
    """Energies of the locations of the half spectrum, from those of the coordinates."""
    from loca_theory.transforms.real_spectrum import RealSpectrum

    return RealSpectrum(budget.p, budget.q).merge_pairs(energies)
