"""Searches of the toy experiment that may choose any free location: swap, reselection, pursuits.

All but `Pursuit` move components between steps of gradient descent; `Pursuit` adds them one by one
and refits by least squares. The adapters' versions are in ``loca_theory.adapters.search``.
"""

from __future__ import annotations

import torch

from loca_theory.convergence.search import Noise, Search
from loca_theory.convergence.state import State
from loca_theory.locations.prune_and_regrow import (
    components_to_drop,
    most_moved,
    predicted_decreases,
    reselect,
    swap,
)


class Swap(Search):
    """Move components of least saliency to the free locations of largest predicted decrease.

    Components move in the last step of each period. If the curvature is used, a component moves
    only if the predicted decrease exceeds its saliency. If it is not used, the number of components
    that move falls over time, as in dynamic sparse training.
    """

    def __init__(self, state: State, noise: Noise, *, use_curvature: bool = True) -> None:
        super().__init__(state, noise)
        self.curvature = state.curvature if use_curvature else None

    def moves_at(self, step: int) -> bool:
        """Whether the step is the last of a period."""
        period = 2 * self.state.interpretation.phase_steps
        return step % period == period - 1

    def move(self, progress: float) -> None:
        """Prune and regrow once in each problem."""
        state, components = self.state, self.state.indices.shape[1]
        count = most_moved(components, progress, use_curvature=self.curvature is not None)
        predicted_decrease, at_indices = predicted_decreases(state.gradient(), self.curvature), None
        if self.curvature is not None:
            at_indices = self.curvature.gather(1, state.indices)
        state.move(swap(state.acting, state.indices, predicted_decrease, at_indices, count))


class Reselection(Swap):
    """Compute the gradient without the weakest components, and move these to the best locations.

    The best locations have the largest predicted decreases by that gradient.
    :func:`~loca_theory.locations.prune_and_regrow.components_to_drop` selects the weakest
    components; their number falls over time.
    """

    _turn = 0

    def move(self, progress: float) -> None:
        """Reselect once in each problem."""
        state, dropped = self.state, self.dropped(progress)
        z = self.perturbed(state.gradient(state.acting.scatter(1, dropped, 0.0)), progress)
        predicted_decrease = predicted_decreases(z, self.curvature)
        state.move(reselect(state.indices, dropped, predicted_decrease))
        self._turn += 1

    def dropped(self, progress: float) -> torch.Tensor:
        """Choose the components that move, by their positions (P, k)."""
        return components_to_drop(self.state.acting, progress, self._turn)

    def perturbed(self, z: torch.Tensor, progress: float) -> torch.Tensor:
        """Return the gradient by which locations are chosen."""
        del progress
        return z


class CyclicPursuit(Reselection):
    """In each move, compute the gradient without one component, and move it to the best location.

    The components take turns.
    """

    def __init__(self, state: State, noise: Noise, *, temperature: float = 0.0) -> None:
        super().__init__(state, noise)
        self._temperature = temperature

    def dropped(self, progress: float) -> torch.Tensor:
        """One component of each problem."""
        del progress
        indices = self.state.indices
        return torch.full_like(indices[:, :1], self._turn % indices.shape[1])

    def perturbed(self, z: torch.Tensor, progress: float) -> torch.Tensor:
        """Return the gradient, multiplied by noise if the temperature is positive."""
        if not (temperature := self._temperature * (1 - progress)):
            return z
        # Minus the logarithm of an exponential variable has Gumbel's law.
        return z * self._noise(z.shape[1]) ** (-temperature / 2)


class Pursuit(Search):
    """Orthogonal matching pursuit: add the best location, refit all coefficients, repeat."""

    descends = False

    def __init__(self, state: State, noise: Noise) -> None:
        super().__init__(state, noise)
        self._count = 0

    def moves_at(self, step: int) -> bool:
        """Whether a component has no chosen location yet."""
        return step < self.state.indices.shape[1]

    def move(self, progress: float) -> None:
        """Choose the location of one more component."""
        del progress
        state = self.state
        decrease = predicted_decreases(state.gradient(), state.curvature)
        # The last component is first: under ``overwrite``, only the last component at a location
        # has an effect.
        next_one = state.indices.shape[1] - 1 - self._count
        decrease = decrease.scatter(1, state.indices[:, next_one + 1 :], -1.0)
        indices = state.indices.clone()
        indices[:, next_one] = decrease.argmax(1)
        self._count += 1
        state.set_indices(indices)
        state.solve(self._count)
