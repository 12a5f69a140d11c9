"""Retained energy of a matrix by the number of its DCT coefficients or entries."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

# A large spectrum is summarised at every count up to the first number, and then at counts that grow
# by the second factor.
_EVERY_UP_TO, _GROWTH = 64, 1.03


def largest_energies(squares: torch.Tensor) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """A few hundred numbers of coefficients, and the energy of as many of the largest."""
    # NumPy sorts large arrays several times as fast as torch on the CPU.
    ordered = np.sort(squares.flatten().cpu().numpy())[::-1]
    counts = unit_counts(len(ordered))
    return counts, np.cumsum(ordered, dtype=np.float64)[counts - 1]


def unit_counts(most: int) -> NDArray[np.int64]:
    """Counts at which a spectrum is summarised.

    Every count up to 64; then each is about 3% larger than the one before.

    >>> unit_counts(70).tolist()[-4:]
    [64, 66, 68, 70]
    """
    start = min(most, _EVERY_UP_TO)
    steps = max(0, int(np.ceil(np.log(most / start) / np.log(_GROWTH))))
    grown = np.ceil(start * _GROWTH ** np.arange(1, steps + 1)).astype(np.int64)
    return np.union1d(np.arange(1, start + 1), np.append(grown[grown < most], most))
