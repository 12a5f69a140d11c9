"""Random numbers of the tests of normality that all matrices of an analysis share.

The tests remain the same in law for each matrix; only those of different matrices depend on each
other. The generators derive from the seed and from what is drawn, so that a result depends neither
on the order of the matrices nor on which others there are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from loca_theory.increments import PrintedTest
from loca_theory.increments.total_variation import null_statistics
from loca_theory.sweeps import generator

Draws = Callable[[str], np.random.Generator]
"""The random numbers of one matrix, by what they are for."""

_Array = NDArray[np.float64]


@lru_cache(maxsize=4)
def reference(samples: int, seed: int) -> _Array:
    """The reference sample of the test as printed, read-only."""
    rng = generator(seed, "increments.reference", str(samples))
    return _read_only(PrintedTest(samples=samples).reference(rng))


@lru_cache(maxsize=256)
def null(entries: int, seed: int) -> _Array:
    """The calibrated test's statistic for normal matrices with as many entries, read-only."""
    return _read_only(null_statistics(entries, generator(seed, "increments.null", str(entries))))


def _read_only(values: _Array) -> _Array:
    values.flags.writeable = False
    return values


def of_matrix(seed: int, address: str, purpose: str) -> np.random.Generator:
    """The random numbers of one matrix for a purpose."""
    return generator(seed, f"increments.{purpose}", address)
