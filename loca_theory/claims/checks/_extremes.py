"""The extremes of many numbers, which most checks return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import ArrayLike


def largest_entry(arrays: Iterable[ArrayLike]) -> float:
    """The largest absolute value among the entries of several arrays."""
    return max(float(np.abs(one).max()) for one in arrays)


def least(found: Mapping[str, float], note: str) -> tuple[float, str]:
    """The smallest number, and a note: ``{at}`` is its name, ``{count}`` how many there are."""
    at = min(found, key=lambda name: found[name])
    return found[at], note.format(at=at, count=len(found))


def greatest(found: Mapping[str, float], note: str) -> tuple[float, str]:
    """As :func:`least`, for the largest number."""
    at = max(found, key=lambda name: found[name])
    return found[at], note.format(at=at, count=len(found))
