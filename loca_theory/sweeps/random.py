"""Random generators that depend only on what is computed, and means over their draws."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loca_theory.errors import InvalidArgumentError

# From these limits on, SeedSequence splits a number into words, so that two paths can be equal.
_ROOTS, _PARTS = 2**128, 2**32


def generator(root: int, *path: int | str) -> np.random.Generator:
    """Return the random generator of one replicate.

    It is ``default_rng(SeedSequence(root, spawn_key=path))``. Strings in the path become integers
    by a hash that is the same in every process and version of Python. Results therefore do not
    depend on workers, order, or other computations.

    Args:
        root: The user's seed, 0 ≤ root < 2¹²⁸.
        path: What distinguishes this replicate from all others: names, sizes, its number. An
            integer n must satisfy 0 ≤ n < 2³².

    Raises:
        InvalidArgumentError: the seed or a number in the path is outside its range.
    """
    if not 0 <= root < _ROOTS:
        raise InvalidArgumentError(f"the seed must lie between 0 and 2**128 - 1, not {root}")
    key = tuple(_integer(part) for part in path)
    return np.random.default_rng(np.random.SeedSequence(root, spawn_key=key))


def _integer(part: int | str) -> int:
    if isinstance(part, str):
        return int.from_bytes(hashlib.sha256(part.encode()).digest()[:4], "big")
    if not 0 <= part < _PARTS:
        raise InvalidArgumentError(
            f"a number in the path of a generator must lie between 0 and 2**32 - 1, not {part}"
        )
    return part


def draw_blocks(first: int, last: int, size: int) -> list[tuple[int, int]]:
    """First replicate, and one past the last, of consecutive blocks of a size."""
    return [(start, min(start + size, last)) for start in range(first, last, size)]


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations of replicates of a sequence of numbers.

    Attributes:
        count: Number of replicates n.
        mean: Their mean.
        squares: Sum of squared deviations from the mean.

    Source: the merging rule of T. F. Chan, G. H. Golub and R. J. LeVeque, Am. Stat. 37 (1983).
    """

    count: int
    mean: tuple[float, ...]
    squares: tuple[float, ...]

    @classmethod
    def of(cls, replicates: ArrayLike) -> Moments:
        """Moments of an array of replicates, one in each row."""
        values = np.asarray(replicates, dtype=np.float64)
        mean = values.mean(axis=0)
        squares = ((values - mean) ** 2).sum(axis=0)
        return cls(len(values), tuple(mean.tolist()), tuple(squares.tolist()))

    @classmethod
    def merge(cls, blocks: Sequence[Moments]) -> Moments:
        """Moments of all replicates together; the order of the blocks fixes the rounding."""
        count, mean, squares = blocks[0].count, *map(np.array, (blocks[0].mean, blocks[0].squares))
        for block in blocks[1:]:
            total = count + block.count
            step = np.array(block.mean) - mean
            mean = mean + step * (block.count / total)
            between = step**2 * (count * block.count / total)
            count, squares = total, squares + np.array(block.squares) + between
        return cls(count, tuple(mean.tolist()), tuple(squares.tolist()))

    @property
    def standard_error(self) -> NDArray[np.float64] | None:
        """Standard error of the mean, √(squares/(n−1)/n); None for a single replicate."""
        if self.count < 2:
            return None
        return np.sqrt(np.array(self.squares) / (self.count - 1) / self.count)
