"""Random generators that depend on a root seed and on what is computed, and on nothing else."""

from __future__ import annotations

import hashlib

import numpy as np


def generator(root: int, *path: int | str) -> np.random.Generator:
    """The generator of one replicate.

    ``default_rng(SeedSequence(root, spawn_key=path))``, with strings in the path turned into
    integers by a hash that is the same in every process and version of Python. Results therefore
    do not depend on workers, order, or what else is computed.

    Args:
        root: The user's seed, not negative.
        path: What tells this replicate from all others: names, sizes, its number.
    """
    key = tuple(_integer(part) for part in path)
    return np.random.default_rng(np.random.SeedSequence(root, spawn_key=key))


def _integer(part: int | str) -> int:
    if isinstance(part, str):
        return int.from_bytes(hashlib.sha256(part.encode()).digest()[:4], "big")
    return part
