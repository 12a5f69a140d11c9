"""Base class of the methods that retain coordinates of an orthonormal basis."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from loca_theory._types import Array
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.laws.first_step import StepSize, of_orthogonal_atoms
from loca_theory.expressivity.methods.coordinates.bases import Basis
from loca_theory.expressivity.methods.method import Budgets, NamedMethod, OptionalRng

if TYPE_CHECKING:
    from torch import Tensor

_PIECE = 2**10


class CoordinateMethod(NamedMethod, ABC):
    """A method that retains some coordinates of an orthonormal basis and drops the rest.

    Attributes:
        basis: The basis.
        scaling: Scaling of the coordinates in the adapter, by default; None if there is none.
        reorders: Whether :meth:`mean_sums` may reorder the energies in place.
    """

    basis: Basis
    scaling: float | None
    reorders: ClassVar[bool] = False

    @abstractmethod
    def count(self, budget: Budget) -> int:
        """Number of coordinates, or of groups of them, that the budget pays for."""

    @abstractmethod
    def chosen(self, coordinates: Tensor, budget: Budget, rng: OptionalRng) -> Tensor:
        """Indices of the retained coordinates."""

    @abstractmethod
    def mean_sums(self, energies: Tensor, budgets: Budgets) -> Array:
        """Mean retained energies, from the squared coordinates of :meth:`Basis.energies`."""

    def approximate(self, matrix: Tensor, budget: Budget, rng: OptionalRng = None) -> Tensor:
        """See :class:`Method`."""
        import torch  # not needed for exact values

        coordinates = self.basis.coordinates(matrix)
        mask = torch.zeros_like(coordinates, dtype=torch.bool)
        mask[self.chosen(coordinates, budget, rng)] = True
        return self.basis.matrix(coordinates * mask, budget.p, budget.q)

    def mean_retained_energies(
        self, matrix: Tensor, budgets: Budgets, rng: OptionalRng = None
    ) -> Array:
        """See :class:`Method`; the mean is exact, so ``rng`` is not used."""
        return self.mean_sums(self.basis.energies(matrix), budgets)

    def parameters(self, budget: Budget) -> int:
        """One number per coordinate."""
        return self.count(budget)

    def first_step(self, budget: Budget) -> StepSize | None:
        """Of orthonormal coordinates times the scaling."""
        scaling = self.scaling
        return None if scaling is None else of_orthogonal_atoms(self.count(budget), scaling)


def total(energies: Tensor) -> float:
    """Sum of energies: short pieces in their own precision, and these sums in double precision."""
    end = len(energies) - len(energies) % _PIECE
    pieces = energies[:end].view(-1, _PIECE).sum(dim=1)
    return float(pieces.double().sum()) + float(energies[end:].double().sum())


def prefix_sums(values: Array, counts: Sequence[int]) -> Array:
    """Sums of the first ``count`` values, for each count."""
    return np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])[list(counts)]
