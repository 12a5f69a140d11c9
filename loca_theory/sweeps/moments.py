"""Means and standard errors that can be merged from blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations of equally shaped replicates.

    Attributes:
        count: Number of replicates n.
        mean: Their mean.
        squares: Sum of squared deviations from the mean.

    Source: the merging rule of T. F. Chan, G. H. Golub and R. J. LeVeque, Am. Stat. 37 (1983).
    """

    count: int
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]

    @classmethod
    def of(cls, replicates: ArrayLike) -> Moments:
        """Moments of an array whose first axis counts replicates."""
        values = np.asarray(replicates, dtype=np.float64)
        mean = values.mean(axis=0)
        return cls(len(values), mean, ((values - mean) ** 2).sum(axis=0))

    @classmethod
    def merge(cls, blocks: Sequence[Moments]) -> Moments:
        """Moments of all replicates together; the order of the blocks fixes the rounding."""
        total = blocks[0]
        for block in blocks[1:]:
            count = total.count + block.count
            step = block.mean - total.mean
            mean = total.mean + step * (block.count / count)
            between = step**2 * (total.count * block.count / count)
            total = cls(count, mean, total.squares + block.squares + between)
        return total

    @property
    def standard_error(self) -> NDArray[np.float64] | None:
        """Standard error of the mean, √(squares/(n−1)/n); None for a single replicate."""
        if self.count < 2:
            return None
        return np.sqrt(self.squares / (self.count - 1) / self.count)

    def to_json(self) -> dict[str, Any]:
        """Plain data that :meth:`from_json` reads back exactly."""
        return {
            "count": self.count,
            "mean": self.mean.tolist(),
            "squares": self.squares.tolist(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Moments:
        """Inverse of :meth:`to_json`."""
        return cls(data["count"], np.array(data["mean"]), np.array(data["squares"]))
