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
- a cell that is wide against the change tells nothing of an approximation inside it. Where steps of
  the weights are at most twice the root mean square of d, rounding errors are nearly independent of
  the change, so that d itself can judge. Of the possible numbers, the one is taken whose held-out
  entries there are nearest to d, if they are not farther from it than at 0 steps.

A few steps more are not tried: after two or three, the search for step lengths leads to other
points if 5% of the entries are left out, so that what was judged is not what is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from loca_theory.increments.truncated_svd import truncated_svd
from loca_theory.rounding.cells import RoundingCells
from loca_theory.rounding.fit.cosine import CosineDistance
from loca_theory.rounding.fit.descent import minimise
from loca_theory.rounding.fit.low_rank import ENOUGH, LowRankDistance, fraction_inside
from loca_theory.sweeps import generator
from loca_theory.transforms import dct2

STEPS = (1, 40)
"""Numbers of steps that are tried; the second is not if the first is worse than none."""
_FRACTION, _FILLS = 0.05, 3
# Standard errors by which the distance must be smaller than at 0 steps.
_SIGNIFICANT = 2
# Steps of the weights up to this multiple of the root mean square of d are fine.
_FINE = 2
_TOLERANCE = 1e-3
# Entries of a product that are computed at a time.
_ENTRIES = 2**18
# The locations of cosine components are chosen anew after so many steps.
_TURN = 8

Point = tuple[torch.Tensor, torch.Tensor]
"""B and A of a low-rank matrix; or coefficients and the flat indices of their locations."""


class Family(Protocol):
    """Approximations of one form and size."""

    def best(self, change: torch.Tensor, near: Point | None = None) -> Point:
        """The best approximation of a matrix, which may begin from one of a similar matrix."""
        ...

    def at(self, point: Point, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """Entries of an approximation."""
        ...

    def path(self, point: Point, cells: RoundingCells, stops: Sequence[int]) -> Iterator[Point]:
        """The approximations at some numbers of steps towards the cells."""
        ...


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


@dataclass(frozen=True)
class LowRankFamily:
    """Matrices of a rank.

    Attributes:
        rank: r.
    """

    rank: int

    def best(self, change: torch.Tensor, near: Point | None = None) -> Point:
        """The truncated SVD, its singular values split evenly; near another, one iteration of it.

        Args:
            change: The matrix, float32, shape (p, q).
            near: The decomposition of a similar matrix.
        """
        if near is None:
            svd = truncated_svd(change, self.rank, tolerance=_TOLERANCE)
            root = svd.s.sqrt()
            return svd.u * root, root[:, None] * svd.vh
        _, a = near
        u = torch.linalg.qr(change @ torch.linalg.qr(a.mT).Q).Q
        left, s, vh = torch.linalg.svd(u.mT @ change, full_matrices=False)
        root = s.sqrt()
        return u @ left * root, root[:, None] * vh

    def at(self, point: Point, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """Entries of BA."""
        b, a = point
        size = max(1, _ENTRIES // self.rank)
        parts = zip(rows.split(size), columns.split(size), strict=True)
        return torch.cat([(b[i] * a.mT[j]).sum(dim=1) for i, j in parts])

    def path(self, point: Point, cells: RoundingCells, stops: Sequence[int]) -> Iterator[Point]:
        """Factors on the way to the cells, as :func:`fit_low_rank` moves them."""
        b, a = point
        root = (b.norm(dim=0) * a.norm(dim=1)).sqrt()
        distance = LowRankDistance(cells, root.clamp(min=float(root.max()) * 1e-6))
        x = distance.join(b, a)

        def is_done(x: torch.Tensor) -> bool:
            b, a = distance.split(x)
            return fraction_inside(b, a, cells) > 1 - ENOUGH

        for count in np.diff([0, *stops]).tolist():
            x = minimise(distance.evaluate, x, steps=count, is_done=is_done)
            yield distance.split(x)


@dataclass(frozen=True)
class CosineFamily:
    """Increments of a number of cosine components.

    Attributes:
        components: N.
        shape: p and q.
    """

    components: int
    shape: tuple[int, int]

    def best(self, change: torch.Tensor, near: Point | None = None) -> Point:
        """The N largest coefficients; ``near`` does not matter."""
        del near
        return self._largest(dct2(change).reshape(-1))

    def at(self, point: Point, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """Entries of Cᵀ S D."""
        values, chosen = point
        everywhere = values.new_zeros(()).expand(self.shape)
        return CosineDistance(RoundingCells(everywhere, everywhere), chosen).increment(values)[
            rows, columns
        ]

    def path(self, point: Point, cells: RoundingCells, stops: Sequence[int]) -> Iterator[Point]:
        """Coefficients on the way to the cells; every eight steps their locations are searched."""
        values, chosen = point
        narrow, at = cells.shrunk(2 * self.components), 0
        for stop in stops:
            while at < stop:
                if at and not at % _TURN:
                    values, chosen = self._moved(values, CosineDistance(narrow, chosen), chosen)
                distance = CosineDistance(narrow, chosen)
                count = min(stop - at, _TURN - at % _TURN)

                def is_done(x: torch.Tensor, distance: CosineDistance = distance) -> bool:
                    inside = cells.contain(distance.increment(x)).double().mean()
                    return bool(inside > 1 - ENOUGH)

                values = minimise(distance.evaluate, values, steps=count, is_done=is_done)
                at += count
            yield values, chosen

    def _moved(self, values: torch.Tensor, distance: CosineDistance, chosen: torch.Tensor) -> Point:
        """The N largest coefficients of a projected Newton step with the mean curvature."""
        gap = distance.gap(values)
        outside = max(1, int(gap.count_nonzero())) / gap.numel()
        proposed = dct2(gap).reshape(-1).div_(outside)
        proposed[chosen] += values
        return self._largest(proposed)

    def _largest(self, spectrum: torch.Tensor) -> Point:
        chosen = spectrum.abs().topk(self.components, sorted=False).indices.sort().values
        return spectrum[chosen], chosen


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
    stops = STEPS[: STEPS.index(steps) + 1] if steps else ()
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
        missed = float((entries - stored)[fine].double().square().sum())
        return hidden.nearest(entries).sub_(entries).double().square_(), missed

    before, missed = judged(point)
    total = float(before.sum())
    best, least = 0, (missed, total)
    path = family.path(point, cells, STEPS)
    for steps in STEPS:
        after, missed = judged(next(path))
        distance = float(after.sum())
        difference = before - after
        error = math.sqrt(len(difference)) * float(difference.std(correction=0))
        if total - distance > _SIGNIFICANT * error and (missed, distance) < least:
            best, least = steps, (missed, distance)
        # A long descent does not mend what the first step makes worse.
        if distance > total:
            break
    return best, least[1]
