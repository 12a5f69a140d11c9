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
        matrix, exponent = change.increment
        values = self.coordinates(matrix).flatten()
        count = size * self.unit(change.layer)
        flat = values.abs().topk(count, sorted=False).indices.sort().values
        best = values[flat].double()
        stored = times_power_of_two(best, exponent).to(dtype)
        # Rounding loses energy as well, much of it near the smallest numbers of a type.
        lost = best - times_power_of_two(stored.double(), -exponent)
        retained, energy = float(best.square().sum() - lost.square().sum()), energy_of(matrix)
        flat = flat.cpu()
        rows, columns = flat // matrix.shape[1], flat % matrix.shape[1]
        tensors = self.tensors(stored.cpu(), rows, columns, change.layer)
        error = float(np.clip(1 - retained / energy, 0, 1))
        return Fit(self.key, size, tensors, error, 0.0, math.ldexp(energy, 2 * exponent))
