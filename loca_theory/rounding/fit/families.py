"""Approximations of a form and size, and their paths into the rounding cells."""

from __future__ import annotations

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
from loca_theory.transforms import dct2

_TOLERANCE = 1e-3
# Entries of a product that are computed at a time.
_ENTRIES = 2**18
# Steps after which the locations of cosine components are chosen anew.
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
