"""Random generators that depend only on a root seed and on what is computed."""

from __future__ import annotations

import hashlib

import numpy as np

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
        msg = f"the seed must lie between 0 and 2**128 - 1, not {root}"
        raise InvalidArgumentError(msg)
    key = tuple(_integer(part) for part in path)
    return np.random.default_rng(np.random.SeedSequence(root, spawn_key=key))


def _integer(part: int | str) -> int:
    if isinstance(part, str):
        return int.from_bytes(hashlib.sha256(part.encode()).digest()[:4], "big")
    if not 0 <= part < _PARTS:
        msg = f"a number in the path of a generator must lie between 0 and 2**32 - 1, not {part}"
        raise InvalidArgumentError(msg)
    return part
