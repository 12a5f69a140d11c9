"""Random locations in a spectrum, as methods with random indices draw them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loca_theory.errors import InvalidArgumentError

_CHUNK = 8192


def required(rng: np.random.Generator | None) -> np.random.Generator:
    """The generator, or the error that one is needed.

    Raises:
        InvalidArgumentError: there is none.
    """
    if rng is None:
        msg = "this method makes random choices: pass rng=numpy.random.default_rng(seed)"
        raise InvalidArgumentError(msg)
    return rng


def random_indices(n: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The first ``count`` of a uniformly random ordering of n locations.

    The result for a smaller count is a prefix of that for a larger one. The first half of a large
    n is drawn with replacement in fixed chunks and repeats dropped: nothing of size n is held.
    """
    if n <= 1 << 20:
        return rng.permutation(n)[:count]
    first = _distinct(n, min(count, n // 2), rng)
    if count == len(first):
        return first
    rest = np.setdiff1d(np.arange(n), first, assume_unique=True)
    return np.concatenate([first, rng.permutation(rest)[: count - len(first)]])


def _distinct(n: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The first ``count`` different values of a stream of uniform ones, count ≤ n/2."""
    expected = -n * np.log1p(-count / n)  # draws until ``count`` different locations have been met
    drawn = rng.integers(0, n, (1 + int(expected) // _CHUNK) * _CHUNK)
    while True:
        _, first = np.unique(drawn, return_index=True)
        if len(first) >= count:
            return drawn[np.sort(first)[:count]]
        drawn = np.concatenate([drawn, rng.integers(0, n, _CHUNK)])


def first_hits(indices: NDArray[np.int64], p: int, q: int) -> NDArray[np.bool_]:
    """Which locations of the full p×q spectrum reach a pair that no earlier location reached."""
    i, j = np.divmod(indices, q)
    pair = np.minimum(indices, (-i % p) * q + (-j % q))
    hits = np.zeros(len(indices), dtype=bool)
    hits[np.unique(pair, return_index=True)[1]] = True
    return hits
