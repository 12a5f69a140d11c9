"""Find where LoRA overtakes LoCA as a parameter of a structure grows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import elementwise

# LoRA's error minus LoCA's, in the mean, and its standard error, on common random numbers.
Gap = tuple[float, float]
# A function from (index of the search, value) pairs to their gaps; it computes each only once.
Gaps = Callable[[Sequence[tuple[int, float]]], list[Gap]]

# The root is found to this fraction of its standard error.
_PRECISION = 0.05
# Coverage of the confidence intervals.
_CONFIDENCE = 0.95


class Crossing(NamedTuple):
    """The parameter value at which LoRA's error falls below LoCA's.

    Attributes:
        crossing: The value; None if there is none in the searched interval.
        low: Lower end of its confidence interval; None without a crossing.
        high: Upper end; None without a crossing.
    """

    crossing: float | None
    low: float | None = None
    high: float | None = None


def find_crossings(
    grids: Sequence[tuple[Sequence[float], Sequence[Gap]]], gaps: Gaps
) -> list[Crossing]:
    """Find where each gap first falls from a positive value to zero or below.

    A gap is LoRA's error minus LoCA's. The grid gives a bracket. Chandrupatla's method narrows it
    until it is small compared with the statistical error; every evaluation uses the same random
    numbers as the grid. All searches advance together, so that the draws of one round can be
    computed at once. The confidence interval is that of the gap, divided by the gap's slope across
    the bracket.

    Returns:
        The crossing of each search; without a value if the gap does not change sign on the
        grid, or is not positive at the first value.
    """
    brackets = {
        i: bracket for i, grid in enumerate(grids) if (bracket := _bracket(*grid)) is not None
    }

    def value_at(i: int, step: float) -> float:
        low, high, _, precision = brackets[i]
        # The ends must be exact, because their gaps are known.
        return high if step >= (high - low) / precision else low + step * precision

    def means(steps: NDArray, curves: NDArray) -> NDArray:
        pairs = zip(curves.tolist(), steps.tolist(), strict=True)
        return np.array([mean for mean, _ in gaps([(i, value_at(i, step)) for i, step in pairs])])

    crossings = [Crossing(None)] * len(grids)
    if not brackets:
        return crossings
    curves = np.array(list(brackets))
    low, high, slopes, precisions = np.array(list(brackets.values())).T
    ends = np.zeros(len(curves)), (high - low) / precisions
    roots = elementwise.find_root(
        means, ends, args=(curves,), tolerances={"xatol": 1.0, "xrtol": 0.0}
    )
    quantile = stats.norm.ppf(0.5 + _CONFIDENCE / 2)
    for i, step, slope in zip(curves.tolist(), roots.x.tolist(), slopes, strict=True):
        root = value_at(i, step)
        ((_, error),) = gaps([(i, root)])
        half = float(quantile * error / slope)
        crossings[i] = Crossing(root, root - half, root + half)
    return crossings


def _bracket(values: Sequence[float], gaps: Sequence[Gap]) -> tuple[float, ...] | None:
    """Ends between which a gap changes its sign, its slope there, and the precision wanted."""
    means = [mean for mean, _ in gaps]
    start = next((i for i in range(len(means) - 1) if means[i] > 0 >= means[i + 1]), None)
    if start is None or means[0] <= 0:
        return None
    low, high = values[start], values[start + 1]
    slope = (means[start] - means[start + 1]) / (high - low)
    precision = max(_PRECISION * gaps[start][1] / slope, 1e-9 * (high - low))
    return low, high, slope, precision
