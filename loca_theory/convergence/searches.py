"""Ways to search for locations, by their names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from loca_theory._lookup import find
from loca_theory.convergence.state import State
from loca_theory.locations.gradient import LocationGradient, location_gradient
from loca_theory.locations.prune_and_regrow import (
    dropped,
    most_swaps,
    predicted_decreases,
    reselect,
    swap,
)

Noise = Callable[[int], torch.Tensor]

# Of the annealed pursuit at first; the noise is that of a logarithm.
_TEMPERATURE = 0.3


class Search:
    """Moves the components of all problems of a batch; this one never does.

    Every step of a run costs one evaluation of the gradient, and is either a step of the
    coefficients or a move.

    Args:
        state: The batch.
        noise: Gives standard exponential random numbers, one row of that many a problem.
    """

    descends = True
    """Whether coefficients are learned by gradient descent between moves."""

    def __init__(self, state: State, noise: Noise) -> None:
        self.state, self._noise = state, noise

    def moves_at(self, step: int) -> bool:
        """Whether that step is a move."""
        del step
        return False

    def move(self, progress: float) -> None:
        """One move.

        Args:
            progress: How much of the time for moves is over, in [0, 1).
        """


class Gradient(Search):
    r"""Descent on continuous locations: coefficients for a phase, locations for a phase.

    Args:
        state: The batch.
        noise: As in :class:`Search`.
        rule: The difference that stands for the gradient.
        momentum: Of the locations' updates (heavy ball).
        jitter: Scale, in locations, of Laplace noise that is added to an update at first; it falls
            to zero linearly.
        reach: Distance of the neighbours in units of the size at first; it shrinks to one location,
            the difference being divided by the distance.
    """

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
        # Locations are kept in the unit the learning rate is for.
        self._unit = size - 1 if state.interpretation.units == "interval" else 1
        start = torch.stack([indices // size, indices % size], dim=-1)
        self._locations = start.to(state.coefficients) / self._unit
        self._velocity = torch.zeros_like(self._locations)

    def moves_at(self, step: int) -> bool:
        """Whether it lies in a phase of the locations."""
        phase = self.state.interpretation.phase_steps
        return step % (2 * phase) >= phase

    def move(self, progress: float) -> None:
        """One step of gradient descent on the locations."""
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
        # A diverged coefficient has no gradient.
        self._locations = (self._locations + update).nan_to_num(0.0).clamp(0.0, end)
        set_indices = (self._locations * self._unit).round().long()
        self.state.set_indices(set_indices[..., 0] * self._size + set_indices[..., 1])

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
    """The components that matter least for the free locations that promise most.

    It happens at the end of each period. With the curvature, only while the gain is larger than
    the loss; without, for a number of components that fades, as in dynamic sparse training.

    Args:
        state: The batch.
        noise: As in :class:`Search`.
        use_curvature: Whether by gain and loss, else by the raw sizes of gradient and coefficients.
    """

    def __init__(self, state: State, noise: Noise, *, use_curvature: bool = True) -> None:
        super().__init__(state, noise)
        self.curvature = state.curvature if use_curvature else None

    def moves_at(self, step: int) -> bool:
        """Whether it is the last step of a period."""
        period = 2 * self.state.interpretation.phase_steps
        return step % period == period - 1

    def move(self, progress: float) -> None:
        """Prune and regrow once in each problem."""
        state, components = self.state, self.state.indices.shape[1]
        count = most_swaps(components, progress, use_curvature=self.curvature is not None)
        predicted_decrease, here = predicted_decreases(state.gradient(), self.curvature), None
        if self.curvature is not None:
            here = self.curvature.gather(1, state.indices)
        state.move(swap(state.acting, state.indices, predicted_decrease, here, count))


class Reselection(Swap):
    """Some components are left out for one gradient and get the best locations by it.

    Which, :func:`~loca_theory.locations.prune_and_regrow.dropped` says: the weakest, ever fewer of
    them.
    """

    _turn = 0

    def move(self, progress: float) -> None:
        """One reselection in each problem."""
        self.reselect(dropped(self.state.acting, progress, self._turn))
        self._turn += 1

    def reselect(self, dropped: torch.Tensor) -> None:
        """Leave those (P, k) out for one gradient and location them anew."""
        state = self.state
        z = state.gradient(state.acting.scatter(1, dropped, 0.0))
        predicted_decrease = predicted_decreases(self.perturbed(z), self.curvature)
        state.move(reselect(state.indices, dropped, predicted_decrease))

    def perturbed(self, z: torch.Tensor) -> torch.Tensor:
        """The gradient that is chosen by."""
        return z


class CyclicPursuit(Reselection):
    """One component at a time, in turn, is left out for one gradient and gets the best location.

    Args:
        state: The batch.
        noise: As in :class:`Search`.
        temperature: Standard deviation, but for a factor of about 1.3, of noise on the logarithm
            of each gain at first; it falls to zero linearly.
    """

    def __init__(self, state: State, noise: Noise, *, temperature: float = 0.0) -> None:
        super().__init__(state, noise)
        self._first = self._temperature = temperature

    def move(self, progress: float) -> None:
        """One component of each problem."""
        self._temperature = self._first * (1 - progress)
        indices = self.state.indices
        self.reselect(torch.full_like(indices[:, :1], self._turn % indices.shape[1]))
        self._turn += 1

    def perturbed(self, z: torch.Tensor) -> torch.Tensor:
        """The gradient, with noise where there is a temperature."""
        if not self._temperature:
            return z
        # Minus the logarithm of an exponential variable has Gumbel's law.
        return z * self._noise(z.shape[1]) ** (-self._temperature / 2)


class Pursuit(Search):
    """Orthogonal matching pursuit: the best location, all coefficients by least squares, again."""

    descends = False

    def __init__(self, state: State, noise: Noise) -> None:
        super().__init__(state, noise)
        self._count = 0

    def moves_at(self, step: int) -> bool:
        """Whether components are left to be placed."""
        return step < self.state.indices.shape[1]

    def move(self, progress: float) -> None:
        """Place one more component."""
        del progress
        state = self.state
        promise = predicted_decreases(state.gradient(), state.curvature)
        # From the last to the first: where the last to be written counts, it is the one placed.
        next_one = state.indices.shape[1] - 1 - self._count
        promise = promise.scatter(1, state.indices[:, next_one + 1 :], -1.0)
        indices = state.indices.clone()
        indices[:, next_one] = promise.argmax(1)
        self._count += 1
        state.set_indices(indices)
        state.solve(self._count)


@dataclass(frozen=True)
class SearchKind:
    """A search as it is named and made.

    Attributes:
        title: What it does, in a few words.
        make: From the batch and its noise to the search.
    """

    title: str
    make: Callable[[State, Noise], Search]


SEARCHES: dict[str, SearchKind] = {
    "coefficients-only": SearchKind("locations stay as they are", Search),
    "central": SearchKind("central differences, as printed", Gradient),
    "forward": SearchKind("forward differences (V4)", partial(Gradient, rule="forward")),
    "backward": SearchKind("backward differences (V5)", partial(Gradient, rule="backward")),
    "eight-direction": SearchKind(
        "the steepest of 8 one-sided differences (the remark)",
        partial(Gradient, rule="eight-direction"),
    ),
    "momentum": SearchKind("central, momentum 0.9", partial(Gradient, momentum=0.9)),
    "jitter": SearchKind("central, with noise that fades", partial(Gradient, jitter=1.0)),
    "shrinking": SearchKind(
        "central over a distance that shrinks from K/2 to 1", partial(Gradient, reach=0.5)
    ),
    "swap-raw": SearchKind("smallest |a| for largest |Z|", partial(Swap, use_curvature=False)),
    "swap": SearchKind("least a²h for largest Z²/h, while that gains", Swap),
    "reselect": SearchKind(
        "the weakest left out for one gradient, then to the largest Z²/h", Reselection
    ),
    "cyclic-pursuit": SearchKind("each left out in turn, to the largest Z²/h", CyclicPursuit),
    "annealed-pursuit": SearchKind(
        "the same with noise that fades", partial(CyclicPursuit, temperature=_TEMPERATURE)
    ),
    "pursuit": SearchKind(
        "orthogonal matching pursuit (a reference: solves for the coefficients)", Pursuit
    ),
}


def find_search(name: str) -> SearchKind:
    """The search of a name.

    Raises:
        InvalidArgumentError: there is none; the message lists those there are.
    """
    return find("search", name, SEARCHES)
