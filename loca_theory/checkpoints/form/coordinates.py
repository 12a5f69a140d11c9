"""Forms that store the largest coordinates of ΔW in a basis, and their locations."""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np
import torch

from loca_theory.checkpoints.form.change import Change
from loca_theory.checkpoints.form.form import Fit, Form
from loca_theory.checkpoints.form.layer import Layer
from loca_theory.checkpoints.form.profile import largest_energies, unit_counts
from loca_theory.increments.truncated_svd import energy_of
from loca_theory.rounding import Point
from loca_theory.transforms.inputs import times_power_of_two


class LargestCoordinates(Form):
    """The largest coordinates of ΔW in an orthonormal basis, and their locations."""

    @abstractmethod
    def coordinates(self, matrix: torch.Tensor) -> torch.Tensor:
        """The coordinates of a matrix, in its shape."""

    @abstractmethod
    def tensors(
        self, values: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor, layer: Layer
    ) -> dict[str, torch.Tensor]:
        """PEFT's parameters with these values at these rows and columns."""

    def profile(self, change: Change) -> tuple[list[int], list[float]]:
        """The energy of the largest coordinates."""
        matrix, exponent = change.increment
        energies = largest_energies(self.coordinates(matrix).square())
        return unit_counts(matrix.numel()).tolist(), np.ldexp(energies, 2 * exponent).tolist()

    def fit(self, change: Change, size: int, usual: int, dtype: torch.dtype) -> Fit:  # noqa: ARG002
        """The largest coordinates, rounded to a type."""
        coordinates = self.coordinates(change.increment[0]).flatten()
        count = size * self.unit(change.layer)
        flat = coordinates.abs().topk(count, sorted=False).indices.sort().values
        return self.stored(change, size, (coordinates[flat], flat), coordinates, dtype)

    def stored(
        self,
        change: Change,
        size: int,
        point: Point,
        coordinates: torch.Tensor,
        dtype: torch.dtype,
    ) -> Fit:
        """Coordinates as a type stores them, and what they miss of those of the increment.

        Args:
            change: The increment.
            size: Size of the adapter.
            point: Values in the units of x, and their flat indices.
            coordinates: All coordinates of x.
            dtype: The type.
        """
        matrix, exponent = change.increment
        values, flat = point
        stored = times_power_of_two(values.double(), exponent).to(dtype)
        wanted = coordinates[flat].double()
        # Rounding loses energy as well, much of it near the smallest numbers of a type.
        lost = wanted - times_power_of_two(stored.double(), -exponent)
        retained, energy = float(wanted.square().sum() - lost.square().sum()), energy_of(matrix)
        flat = flat.cpu()
        rows, columns = flat // matrix.shape[1], flat % matrix.shape[1]
        tensors = self.tensors(stored.cpu(), rows, columns, change.layer)
        error = float(np.clip(1 - retained / energy, 0, 1))
        return Fit(self.key, size, tensors, error, 0.0, math.ldexp(energy, 2 * exponent))
