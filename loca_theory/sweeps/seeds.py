"""Random generators that depend on a root seed and on what is computed, and on nothing else."""

from __future__ import annotations

import hashlib

import numpy as np

from loca_theory.errors import InvalidArgumentError

# Beyond these a SeedSequence takes several words for a number, and two paths can mean the same.
_ROOTS, _PARTS = 2**128, 2**32


def generator(root: int, *path: int | str) -> np.random.Generator:
    """The generator of one replicate.

    ``default_rng(SeedSequence(root, spawn_key=path))``, with strings in the path turned into
    integers by a hash that is the same in every process and version of Python. Results therefore
    do not depend on workers, order, or what else is computed.

    Args:
        root: The user's seed, 0 ≤ root < 2¹²⁸.
        path: What tells this replicate from all others: names, sizes, its number; integers are
            not negative and below 2³².

    Raises:
        InvalidArgumentError: the seed or a number in the path is outside its range.
    """
    if not 0 <= root < _ROOTS:
        msg = f"the seed must lie between 0 and 2**128 - 1, and is {root}"
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
