r"""Whether an approximation of the stored difference is better moved into the rounding cells.

The best approximation of d = W' - W, a truncated SVD or the largest cosine coefficients, fits the
rounding errors in d as well. A descent on the distance to the cells does not, but where a change is
not of this form, it fits what the cells happen to allow. How many of its 0, 1 or 40 steps to take
is decided by entries that it does not see:

- 5% of the entries are held out: their cells are infinite, and their numbers in d are filled in by
  the approximation itself, a few times over;
- the squared distances of these entries to their cells are compared with those at 0 steps, entry by
  entry. A number of steps is possible if the sum is smaller by more than two standard errors of the
  difference: otherwise chance would decide between nearly equal approximations;
- a cell that is wide against the change tells nothing of an approximation inside it. Where held-out
  cells are at most twice as wide as the root mean square of d, rounding errors are nearly
  independent of the change, so that d itself can judge. Of the possible numbers, the one is taken
  whose held-out entries there are nearest to d, if they are not farther from it than at 0 steps.
  Where no cell is that narrow, the distance to the cells decides.

Numbers between 1 and 40 are not tried: after two or three, the search for step lengths leads to
other points if 5% of the entries are left out, so that what was judged is not what is taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from loca_theory.rounding.cells import RoundingCells
from loca_theory.rounding.fit.families import Family, Point
from loca_theory.sweeps import generator

TRIED_STEPS = (1, 40)
"""Numbers of steps that are tried; the second is not if the first is worse than none."""
_FRACTION, _FILLS = 0.05, 3
# Standard errors by which the distance must be smaller than at 0 steps.
_SIGNIFICANT = 2
# Steps of the weights up to this multiple of the root mean square of d are fine.
_FINE = 2


@dataclass(frozen=True)
class Choice:
    """An approximation of a change inside rounding cells.

    Attributes:
        point: The approximation.
        steps: Number of steps from the best approximation of the stored difference; 0 for itself.
        held_out: Squared distance of held-out entries to their cells at this number, relative to
            the energy of as many entries of the stored difference.
    """

    point: Point
    steps: int
    held_out: float


def choose(family: Family, change: torch.Tensor, cells: RoundingCells, start: Point) -> Choice:
    """Move the best approximation of a stored difference into the cells, as far as that helps.

    Args:
        family: The form and the size.
        change: d = W' - W, float32, shape (p, q).
        cells: Float32 cells of the pair; changed during the computation, and restored.
        start: The best approximation of d.

    Returns:
        The approximation that the rule of the module takes.
    """
    draws = generator(0, "held-out cells").random(change.shape, dtype=np.float32)
    held = torch.from_numpy(draws < _FRACTION).to(change.device)
    rows, columns = held.nonzero(as_tuple=True)
    hidden = RoundingCells(cells.low[rows, columns], cells.high[rows, columns])
    cells.low.masked_fill_(held, -torch.inf)
    cells.high.masked_fill_(held, torch.inf)
    del held
    try:
        point = _best_of_shown(family, change, rows, columns)
        steps, held_out = _steps(family, point, cells, hidden, change, (rows, columns))
    finally:
        cells.low[rows, columns], cells.high[rows, columns] = hidden.low, hidden.high
    energy = float(torch.linalg.vector_norm(change, dtype=torch.float64)) ** 2 * len(rows)
    stops = TRIED_STEPS[: TRIED_STEPS.index(steps) + 1] if steps else ()
    *_, point = start, *family.path(start, cells, stops)
    return Choice(point, steps, held_out * change.numel() / energy if energy else 0.0)


def _best_of_shown(
    family: Family, change: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor
) -> Point:
    """The best approximation of the entries that are not held out."""
    filled = change.clone()
    filled[rows, columns] = 0
    point = family.best(filled)
    for _ in range(_FILLS):
        filled[rows, columns] = family.at(point, rows, columns)
        point = family.best(filled, point)
    return point


def _steps(
    family: Family,
    point: Point,
    cells: RoundingCells,
    hidden: RoundingCells,
    change: torch.Tensor,
    where: tuple[torch.Tensor, torch.Tensor],
) -> tuple[int, float]:
    """The number of steps to take, and the squared distance of held-out entries there."""
    spread = float(torch.linalg.vector_norm(change)) / math.sqrt(change.numel())
    fine, stored = hidden.high - hidden.low <= _FINE * spread, change[where]

    def judged(point: Point) -> tuple[torch.Tensor, float]:
        entries = family.at(point, *where)
        held_out = float((entries - stored)[fine].double().square().sum())
        return hidden.nearest(entries).sub_(entries).double().square_(), held_out

    before, held_out = judged(point)
    total = float(before.sum())
    best, smallest = 0, (held_out, total)
    path = family.path(point, cells, TRIED_STEPS)
    for steps in TRIED_STEPS:
        after, held_out = judged(next(path))
        distance = float(after.sum())
        difference = before - after
        error = math.sqrt(len(difference)) * float(difference.std(correction=0))
        if total - distance > _SIGNIFICANT * error and (held_out, distance) < smallest:
            best, smallest = steps, (held_out, distance)
        # A long descent does not mend what the first step makes worse.
        if distance > total:
            break
    return best, smallest[1]
