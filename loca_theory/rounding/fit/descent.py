"""Limited-memory BFGS for squared distances to cells.

Such a distance is 0 in the whole of a cell. Near the solution its expected value is cubic in the
error, because its curvature is the fraction of entries outside, which goes to 0: steps of a
constant length would crawl.

Source: J. Nocedal, Math. Comp. 35 (1980), the two-loop recursion; step lengths by quadratic
interpolation until the decrease of L. Armijo (1966).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

_MEMORY = 5
# The decrease that a step must make, as a fraction of the one that the slope predicts.
_DECREASE = 1e-4
_SHORTEST = 1e-3
# The descent ends if this many steps leave more than this fraction of the distance.
_WINDOW, _STALLED = 5, 0.8
_FIRST_STEPS = 8
_LOOK_EVERY = 2


@dataclass(frozen=True)
class Evaluation:
    """Half the squared distance to the cells at a point, and its gradient.

    ``outside`` is an estimate of the fraction of entries outside, which is the mean curvature.
    """

    value: float
    gradient: torch.Tensor
    outside: float


def minimise(
    evaluate: Callable[[torch.Tensor], Evaluation],
    x: torch.Tensor,
    *,
    steps: int,
    is_done: Callable[[torch.Tensor], bool],
    is_patient: bool = False,
) -> torch.Tensor:
    """Descend from x until it is done, as looked at now and then, or for a number of steps.

    Unless it is patient, it ends as well where the distance has hardly fallen.
    """
    current = evaluate(x)
    changes: list[tuple[torch.Tensor, torch.Tensor]] = []
    values = list[float]()
    for step in range(steps):
        values.append(current.value)
        has_stalled = step > _FIRST_STEPS and current.value > _STALLED * values[-1 - _WINDOW]
        is_stalled = has_stalled and not is_patient
        if (
            current.value == 0
            or is_stalled
            or (step % _LOOK_EVERY == _LOOK_EVERY - 1 and is_done(x))
        ):
            break
        direction = _direction(current, changes)
        ahead, new = _search(evaluate, x, current, direction)
        if new.value >= current.value:
            if not changes:
                break
            changes = []
            continue
        moved, turned = ahead - x, new.gradient - current.gradient
        if float(moved.dot(turned)) > 0:
            changes = [*changes[1 - _MEMORY :], (moved, turned)]
        x, current = ahead, new
    return x


def _direction(
    current: Evaluation, changes: list[tuple[torch.Tensor, torch.Tensor]]
) -> torch.Tensor:
    """The approximate inverse Hessian times the gradient."""
    direction = current.gradient.clone()
    weights = list[torch.Tensor]()
    for moved, turned in reversed(changes):
        weights.append(moved.dot(direction) / turned.dot(moved))
        direction -= weights[-1] * turned
    if changes:
        moved, turned = changes[-1]
        direction *= moved.dot(turned) / turned.dot(turned)
    else:
        # Outside of the cells, the distance is a square of curvature 1.
        direction *= 0.5 / max(current.outside, 1e-3)
    for (moved, turned), weight in zip(changes, reversed(weights), strict=True):
        direction += moved * (weight - turned.dot(direction) / turned.dot(moved))
    return direction


def _search(
    evaluate: Callable[[torch.Tensor], Evaluation],
    x: torch.Tensor,
    current: Evaluation,
    direction: torch.Tensor,
) -> tuple[torch.Tensor, Evaluation]:
    """A point against the direction at which the distance is smaller, or the last one tried."""
    length, slope = 1.0, -float(direction.dot(current.gradient))
    while True:
        ahead = x - length * direction
        new = evaluate(ahead)
        is_lower = new.value <= current.value + _DECREASE * length * slope
        if is_lower or length < _SHORTEST:
            return ahead, new
        excess = 2 * (new.value - current.value - slope * length)
        length = max(0.1 * length, min(0.5 * length, -slope * length**2 / excess))
