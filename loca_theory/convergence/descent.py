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
        size, indices = state.problems.size, state.indices
        self._size = size
        # Locations are stored in the unit that the learning rate applies to.
        self._unit = size - 1 if state.interpretation.units == "interval" else 1
        start = torch.stack([indices // size, indices % size], dim=-1)
        self._locations = start.to(state.coefficients) / self._unit
        self._velocity = torch.zeros_like(self._locations)

    def moves_at(self, step: int) -> bool:
        """Whether the step lies in a phase of the locations."""
        phase = self.state.interpretation.phase_steps
        return step % (2 * phase) >= phase

    def move(self, progress: float) -> None:
        """Take one step of gradient descent on the locations."""
        furthest = (self._size - 1) // 2
        distance = max(1, min(furthest, round(self.reach * self._size * (1 - progress))))
        gradient = self._gradient(distance) * self._unit
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

    def _gradient(self, distance: int) -> torch.Tensor:
        state = self.state
        z, size = state.gradient(), self._size
        i, j = state.indices // size, state.indices % size

        def entry(di: int, dj: int) -> torch.Tensor:
            to_i, to_j = i + distance * di, j + distance * dj
            inside_i, inside_j = to_i.clamp(0, size - 1), to_j.clamp(0, size - 1)
            value = z.gather(1, inside_i * size + inside_j)
            if state.interpretation.border == "clamp":
                return value.flatten()
            is_outside = (to_i != inside_i) | (to_j != inside_j)
            beyond = torch.zeros_like(value)
            if state.interpretation.border == "one-sided":
                other = (i - distance * di).clamp(0, size - 1) * size
                other = other + (j - distance * dj).clamp(0, size - 1)
                beyond = 2 * z.gather(1, state.indices) - z.gather(1, other)
            return torch.where(is_outside, beyond, value).flatten()

        found = location_gradient(
            self.rule,
            entry,
            state.coefficients.flatten(),
            torch.stack([i, j], dim=-1).flatten(0, 1),
            (size, size),
        )
        return found.view(*state.indices.shape, 2) / distance
