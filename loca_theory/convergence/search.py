"""Base class of the searches for locations."""

from __future__ import annotations

from collections.abc import Callable

import torch

from loca_theory.convergence.state import State

Noise = Callable[[int], torch.Tensor]


class Search:
    """Base class of searches, which move the components of a batch of problems.

    A component is a coefficient with its location in the spectrum. Every step of a run evaluates
    the gradient once, and either updates the coefficients or moves the components. The base class
    itself never moves components.
    """

    descends = True
    """Whether coefficients are learned by gradient descent between moves."""

    def __init__(self, state: State, noise: Noise) -> None:
        self.state, self._noise = state, noise

    def moves_at(self, step: int) -> bool:
        """Whether the step moves the components."""
        del step
        return False

    def move(self, progress: float) -> None:
        """Move the components once."""
