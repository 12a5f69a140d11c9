"""LoCA: the largest coefficients of the discrete cosine transform, and their locations."""

from __future__ import annotations

import math

import torch

from loca_theory.checkpoints.form.change import Change
from loca_theory.checkpoints.form.coordinates import LargestCoordinates
from loca_theory.checkpoints.form.form import Fit
from loca_theory.checkpoints.form.layer import Layer
from loca_theory.checkpoints.source.checkpoint import Reason
from loca_theory.expressivity import Budget
from loca_theory.increments.truncated_svd import energy_of
from loca_theory.rounding import CosineFamily, choose
from loca_theory.transforms import dct2, idct2
from loca_theory.transforms.inputs import times_power_of_two


class LoCA(LargestCoordinates):
    """LoCA of :mod:`loca_theory.adapters`; its size is a number of coefficients."""

    key = "loca"
    title = "LoCA"
    method = "LoCA"
    words = "LoCA (best DCT coefficients)"
    config_class = "loca_theory.adapters", "LoCAConfig"
    size_setting = "n_frequency"
    pattern_setting = "n_frequency_pattern"
    size_name = "components"
    unit_name = "coefficients"
    # Two integers of 64 bits for each coefficient, and two for the shape of the matrix.
    location_bytes = 16
    layer_bytes = 16
    constants = {"scaling": 1.0, "bias": "none", "alternating_steps": 0}  # noqa: RUF012

    def obstacle(self, layer: Layer, rank: int = 0) -> Reason | None:  # noqa: ARG002
        """A convolution is one."""
        is_kernel = Reason("convolution", "LoCA adapts linear layers only")
        return layer.obstacle or (is_kernel if layer.kernel else None)

    def unit(self, layer: Layer) -> int:  # noqa: ARG002
        """One coefficient."""
        return 1

    def size_of_rank(self, layer: Layer, rank: int) -> int:
        """(p + q) r / 2: a coefficient and its location count as one number each."""
        return sum(layer.sides) * rank // 2

    def largest(self, layer: Layer) -> int:
        """As many coefficients as entries."""
        return math.prod(layer.stack)

    def size_of_budget(self, budget: Budget) -> int:
        """The coefficients at chosen locations that a budget pays for."""
        return budget.chosen_coefficients

    def coordinates(self, matrix: torch.Tensor) -> torch.Tensor:
        """The coefficients of the discrete cosine transform."""
        return dct2(matrix)

    def tensors(
        self, values: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor, layer: Layer
    ) -> dict[str, torch.Tensor]:
        """Coefficients, pairs of indices, and the shape of the matrix."""
        return {
            "loca_spectrum.coefficients": values,
            "loca_spectrum.indices": torch.stack([rows, columns], dim=1),
            "loca_spectrum.shape": torch.tensor(layer.stack),
        }

    def fit(self, change: Change, size: int, usual: int, dtype: torch.dtype) -> Fit:
        """The largest coefficients, or others that lie nearer to the rounding cells."""
        nearest = super().fit(change, size, usual, dtype)
        if (cells := change.cells) is None:
            return nearest
        matrix, exponent = change.increment
        matrix = matrix.float()
        family = CosineFamily(size, (len(matrix), matrix.shape[1]))
        choice = choose(family, matrix, cells.cells, family.best(matrix))
        best = nearest
        if choice.steps:
            best = self.stored(change, size, choice.point, dct2(matrix).flatten(), dtype)

        def distance(fit: Fit) -> float:
            values, indices, _ = fit.tensors.values()
            rows, columns = indices.to(matrix.device).T
            stored = torch.zeros_like(matrix)
            stored[rows, columns] = times_power_of_two(values.to(stored), -exponent)
            increment = idct2(stored)
            return cells.distance(energy_of(matrix), lambda rows: increment[rows])

        return best.beside(nearest, cells.format, choice, distance)
