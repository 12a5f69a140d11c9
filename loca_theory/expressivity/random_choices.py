"""Random indices and factors, for methods that choose them without looking at the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from loca_theory.errors import InvalidArgumentError

if TYPE_CHECKING:
    from torch import Tensor

_CHUNK = 8192


def require_rng(rng: np.random.Generator | None) -> np.random.Generator:
    """Return the generator, or raise an error if it is None."""
    if rng is None:
        raise InvalidArgumentError(
            "this method makes random choices: pass rng=numpy.random.default_rng(seed)"
        )
    return rng


def random_factors(
    matrix: Tensor, rank: int, rng: np.random.Generator | None
) -> tuple[Tensor, Tensor]:
    """Draw B (p×r) and A (r×q), of the matrix's shape and dtype.

    From the same seed, a smaller rank gives the leading columns of B and rows of A.
    """
    import torch

    p, q = matrix.shape
    factors = torch.from_numpy(require_rng(rng).standard_normal((rank, p + q))).to(matrix)
    return factors[:, :p].T, factors[:, p:]


def random_indices(n: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The first ``count`` entries of a uniformly random ordering of n indices.

    The result for a smaller count is a prefix of that for a larger one. For large n, up to n/2
    indices are drawn with replacement in chunks of fixed size and repeats are dropped, so that no
    array of size n is needed.
    """
    if n <= 1 << 20:
        return rng.permutation(n)[:count]
    first = _distinct(n, min(count, n // 2), rng)
    if count == len(first):
        return first
    remaining = np.setdiff1d(np.arange(n), first, assume_unique=True)
    return np.concatenate([first, rng.permutation(remaining)[: count - len(first)]])


def _distinct(n: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The first ``count`` distinct values of a stream of uniform draws, count ≤ n/2."""
    expected = -n * np.log1p(-count / n)  # draws until ``count`` distinct values have appeared
    drawn = rng.integers(0, n, (1 + int(expected) // _CHUNK) * _CHUNK)
    while True:
        _, first = np.unique(drawn, return_index=True)
        if len(first) >= count:
            return drawn[np.sort(first)[:count]]
        drawn = np.concatenate([drawn, rng.integers(0, n, _CHUNK)])
