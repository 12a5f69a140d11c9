"""Search algorithms for locations, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from loca_theory._lookup import find
from loca_theory.convergence.state import State
from loca_theory.locations.gradient import LocationGradient, location_gradient
from loca_theory.locations.prune_and_regrow import (
    components_to_drop,
    most_moved,
    predicted_decreases,
    reselect,
    swap,
)

Noise = Callable[[int], torch.Tensor]

# Initial scale of the noise that ``annealed-pursuit`` adds to the logarithm of predicted decreases.
_TEMPERATURE = 0.3


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
        predicted_decrease, here = predicted_decreases(state.gradient(), self.curvature), None
        if self.curvature is not None:
            here = self.curvature.gather(1, state.indices)
        state.move(swap(state.acting, state.indices, predicted_decrease, here, count))


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
        """Whether a component has not been placed yet."""
        return step < self.state.indices.shape[1]

    def move(self, progress: float) -> None:
        """Place one more component."""
        del progress
        state = self.state
        decrease = predicted_decreases(state.gradient(), state.curvature)
        # Place the last component first: under ``overwrite``, only the last component at a location
        # has an effect.
        next_one = state.indices.shape[1] - 1 - self._count
        decrease = decrease.scatter(1, state.indices[:, next_one + 1 :], -1.0)
        indices = state.indices.clone()
        indices[:, next_one] = decrease.argmax(1)
        self._count += 1
        state.set_indices(indices)
        state.solve(self._count)


@dataclass(frozen=True)
class SearchKind:
    """Name, title and constructor of a search.

    Attributes:
        name: Name in tables and options.
        title: What the search does, in a few words.
        make: Function that makes the search from the batch and its noise.
    """

    name: str
    title: str
    make: Callable[[State, Noise], Search]


SEARCHES: dict[str, SearchKind] = {
    kind.name: kind
    for kind in (
        SearchKind("coefficients-only", "learn the coefficients; locations do not move", Search),
        SearchKind("central", "gradient by central differences, as in the paper", Gradient),
        SearchKind(
            "forward", "gradient by forward differences (V4)", partial(Gradient, rule="forward")
        ),
        SearchKind(
            "backward", "gradient by backward differences (V5)", partial(Gradient, rule="backward")
        ),
        SearchKind(
            "eight-direction",
            "gradient by the steepest of 8 one-sided differences (the paper's remark)",
            partial(Gradient, rule="eight-direction"),
        ),
        SearchKind(
            "momentum", "central differences, with momentum 0.9", partial(Gradient, momentum=0.9)
        ),
        SearchKind(
            "jitter",
            "central differences, with noise that falls to zero",
            partial(Gradient, jitter=1.0),
        ),
        SearchKind(
            "shrinking",
            "central differences over a distance that shrinks from K/2 to 1",
            partial(Gradient, reach=0.5),
        ),
        SearchKind(
            "swap-raw",
            "move components with the smallest |a| to locations with the largest |Z|",
            partial(Swap, use_curvature=False),
        ),
        SearchKind(
            "swap",
            "move components with the smallest a²h to locations with the largest Z²/h, if larger",
            Swap,
        ),
        SearchKind(
            "reselect",
            "compute Z without the smallest |a|, then move these components to the largest Z²/h",
            Reselection,
        ),
        SearchKind(
            "cyclic-pursuit",
            "compute Z without one component in turn, then move it to the largest Z²/h",
            CyclicPursuit,
        ),
        SearchKind(
            "annealed-pursuit",
            "cyclic-pursuit, with noise that falls to zero",
            partial(CyclicPursuit, temperature=_TEMPERATURE),
        ),
        SearchKind(
            "pursuit",
            "orthogonal matching pursuit, which fits coefficients by least squares",
            Pursuit,
        ),
    )
}


def find_search(name: str) -> SearchKind:
    """Return the search with the given name."""
    return find("search", name, SEARCHES)
