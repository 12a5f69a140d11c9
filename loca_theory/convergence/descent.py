"""Gradient descent on locations, by differences of the gradient's spectrum."""

from __future__ import annotations

import torch

from loca_theory.convergence.search import Noise, Search
from loca_theory.convergence.state import State
from loca_theory.locations.gradient import LocationGradient, location_gradient


class Gradient(Search):
    r"""Gradient descent on continuous locations and on the coefficients, in alternating phases."""

    def __init__(
        self,
        state: State,
        noise: Noise,
        rule: LocationGradient = "central",
        *,
        momentum: float = 0.0,
        jitter: float = 0.0,
        reach: float = 0.0,
    ) -> None:
        super().__init__(state, noise)
        self.rule: LocationGradient = rule
        self.momentum, self.jitter, self.reach = momentum, jitter, reach
        self._size = state.problems.size
        # Locations are stored in the unit that the learning rate applies to.
        self._unit = self._size - 1 if state.interpretation.units == "interval" else 1
        self._locations = self._pairs().to(state.coefficients) / self._unit
        self._velocity = torch.zeros_like(self._locations)

    def moves_at(self, step: int) -> bool:
        """Whether the step lies in a phase of the locations."""
        phase = self.state.interpretation.phase_steps
        return step % (2 * phase) >= phase

    def move(self, progress: float) -> None:
        """Take one step of gradient descent on the locations."""
        furthest = (self._size - 1) // 2
        distance = max(1, min(furthest, round(self.reach * self._size * (1 - progress))))
        gradient = self.gradient(distance) * self._unit
        self._velocity = self.momentum * self._velocity + gradient
        update = -self.state.rates.location_lr * self._velocity
        if self.jitter:
            pairs = self._noise(2 * update[0].numel()).view(-1, 2, *update.shape[1:])
            # The difference of two exponential variables has Laplace's law.
            laplace = pairs[:, 0] - pairs[:, 1]
            update += self.jitter * (1 - progress) / self._unit * laplace
        end = (self._size - 1) / self._unit
        # The gradient of a diverged coefficient is NaN.
        self._locations = (self._locations + update).nan_to_num(0.0).clamp(0.0, end)
        rounded = (self._locations * self._unit).round().long()
        self.state.set_indices(rounded[..., 0] * self._size + rounded[..., 1])

    def gradient(self, distance: int = 1) -> torch.Tensor:
        """Gradient of the loss in the locations, (P, B, 2), by differences over this distance."""
        state, size = self.state, self._size
        z, pairs, border = state.gradient(), self._pairs(), state.interpretation.border

        def nearest(to: torch.Tensor) -> torch.Tensor:
            inside = to.clamp(0, size - 1)
            return z.gather(1, inside[..., 0] * size + inside[..., 1])

        def entry(di: int, dj: int) -> torch.Tensor:
            by = distance * torch.tensor([di, dj])
            value = nearest(pairs + by)
            if border != "clamp":
                is_outside = ((pairs + by < 0) | (pairs + by >= size)).any(-1)
                is_linear = border == "one-sided"
                beyond = 2 * nearest(pairs) - nearest(pairs - by) if is_linear else 0.0
                value = torch.where(is_outside, beyond, value)
            return value.flatten()

        arguments = state.coefficients.flatten(), pairs.flatten(0, 1), (size, size)
        return location_gradient(self.rule, entry, *arguments).view(*pairs.shape) / distance

    def _pairs(self) -> torch.Tensor:
        """Rows and columns of the locations, (P, B, 2)."""
        indices = self.state.indices
        return torch.stack([indices // self._size, indices % self._size], dim=-1)
