"""Uniformly random order of the entries of a large array, faster than exchanges of distant entries.

Each entry gets 32 random bits, and the entries are sorted by these: vectorised, and without jumps
through memory. Entries with the same bits are then put in random order among themselves, so that
every order of all entries has the same probability.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Bits of a key that are random; the other 32 hold the entry.
_HALF = np.dtype(np.uint32)
_RANDOM = np.uint64(0xFFFFFFFF00000000)
_HIGH = int(sys.byteorder == "little")


def shuffle(entries: NDArray[Any], rng: np.random.Generator) -> None:
    """Put the entries of a contiguous vector in random order, in place."""
    is_narrow = entries.itemsize == _HALF.itemsize
    keys = rng.integers(0, 2**64, size=len(entries), dtype=np.uint64)
    keys &= _RANDOM
    keys |= entries.view(_HALF) if is_narrow else np.arange(len(entries), dtype=_HALF)
    keys.sort()
    halves = keys.view(_HALF).reshape(-1, 2)
    moved, bits = halves[:, 1 - _HIGH], halves[:, _HIGH]
    same = np.flatnonzero(bits[1:] == bits[:-1])
    tied = np.union1d(same, same + 1)
    # Tied entries are neighbours; those with the same bits stay together.
    moved[tied] = moved[tied[np.lexsort((rng.random(len(tied)), bits[tied]))]]
    if is_narrow:
        entries.view(_HALF)[:] = moved
    else:
        entries[:] = entries[moved]
