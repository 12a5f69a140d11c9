r"""Columns of a DCT basis, chosen by their alignment with W: the frame of Trion and DCT-AdamW.

:math:`\hat W = W D_S D_S^\top`, where D_S has the N columns d of the q×q DCT basis with the largest
:math:`\lVert W d\rVert^2`; the p×N product and N indices are stored. If the entries of W are
independent N(0, 1), these are independent :math:`\chi^2_p` variables, so that the expected error is
one minus an expected sum of their order statistics, divided by pq.

Source: I.-V. Modoranu et al., arXiv:2505.17967.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loca_theory._types import Array
from loca_theory.expressivity.bits import location_bits
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.laws.order_statistics import expected_top_sum
from loca_theory.expressivity.methods.coordinates.coordinate_method import prefix_sums
from loca_theory.expressivity.methods.method import Budgets, NamedMethod, OptionalRng

if TYPE_CHECKING:
    from torch import Tensor


class AlignedColumns(NamedMethod):
    """The columns of the DCT basis that retain the most."""

    is_oracle = True

    def count(self, budget: Budget) -> int:
        """Number of columns; each costs p numbers and an index."""
        return min(budget.chosen(budget.p, budget.q), budget.q)

    def parameters(self, budget: Budget) -> int:
        """Each column has p numbers."""
        return self.count(budget) * budget.p

    def indices(self, budget: Budget) -> int:
        """One per column."""
        return self.count(budget)

    def stored_bits(self, budget: Budget) -> float:
        """The numbers, and the index of each column."""
        bits_of_column = budget.p * budget.value_bits + location_bits(budget.q)
        return self.count(budget) * bits_of_column

    def approximate(self, matrix: Tensor, budget: Budget, rng: OptionalRng = None) -> Tensor:
        """See :class:`~loca_theory.expressivity.Method`."""
        import torch

        from loca_theory.transforms import dct, idct

        coordinates = dct(matrix)
        chosen = coordinates.square().sum(dim=0).topk(self.count(budget)).indices
        retained = torch.zeros_like(coordinates)
        retained[:, chosen] = coordinates[:, chosen]
        return idct(retained)

    def retained_energies(self, matrix: Tensor, budgets: Budgets, rng: OptionalRng = None) -> Array:
        """Sums of the largest energies of the columns."""
        from loca_theory.transforms import dct

        energies = dct(matrix).double().square().sum(dim=0).sort(descending=True).values
        return prefix_sums(energies.cpu().numpy(), [self.count(budget) for budget in budgets])

    def expected_errors(self, budgets: Budgets) -> Array:
        """From the expected sums of the largest of q independent χ²_p variables."""
        p, q = budgets[0].p, budgets[0].q
        sums = [expected_top_sum(q, self.count(budget), p) for budget in budgets]
        return 1 - np.array(sums) / (p * q)

    def limit(self, budget: Budget) -> float:
        """The columns become alike: 1 − N0/pq, and no index is noticed."""
        return 1 - budget.numbers / (budget.p * budget.q)

    def sample(self, budgets: Budgets, rng: np.random.Generator) -> Array:
        """From the largest of q draws of χ²_p."""
        p, q = budgets[0].p, budgets[0].q
        energies = np.sort(rng.chisquare(p, q))[::-1]
        return 1 - prefix_sums(energies, [self.count(budget) for budget in budgets]) / (p * q)
