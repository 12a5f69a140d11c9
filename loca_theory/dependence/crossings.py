"""Where rank truncation overtakes coefficient selection along a structure's parameter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scipy import optimize, stats

# A mean difference and its standard error at a value of the parameter, on common random numbers.
Gap = Callable[[float], tuple[float, float]]

# The root is found to this part of its own standard error.
_PRECISION = 0.05


@dataclass(frozen=True)
class Crossing:
    """The value at which R's error passes below D's.

    Attributes:
        crossing: The value, or None where there is none in the interval looked at.
        low: Lower end of its confidence interval, or None.
        high: Upper end.
    """

    crossing: float | None
    low: float | None = None
    high: float | None = None


def find_crossing(
    values: Sequence[float],
    gaps: Sequence[tuple[float, float]],
    gap: Gap,
    confidence: float = 0.95,
) -> Crossing:
    """First sign change of the gap R − D from positive to not, by bracketing.

    The grid gives the bracket; Brent's method narrows it, each evaluation on the same random
    numbers as the grid, until the bracket is small against the statistical error. The confidence
    interval is the gap's, carried over by its slope across the bracket.

    Args:
        values: Grid of parameter values, increasing.
        gaps: (mean, standard error) of R − D at each.
        gap: The same at any value.
        confidence: Coverage of the interval.

    Returns:
        The crossing, or none in [values[0], values[-1]]: where the gap keeps its sign, or is not
        positive at the start.
    """
    means = [mean for mean, _ in gaps]
    start = next((i for i in range(len(means) - 1) if means[i] > 0 >= means[i + 1]), None)
    if start is None or means[0] <= 0:
        return Crossing(None)
    low, high = values[start], values[start + 1]
    known = {low: gaps[start], high: gaps[start + 1]}

    def measured(value: float) -> tuple[float, float]:
        if value not in known:
            known[value] = gap(value)
        return known[value]

    slope = abs(known[high][0] - known[low][0]) / (high - low)
    precision = max(_PRECISION * known[low][1] / slope, 1e-9 * (high - low))
    root = float(optimize.brentq(lambda value: measured(value)[0], low, high, xtol=precision))
    half = stats.norm.ppf(0.5 + confidence / 2) * measured(root)[1] / slope
    return Crossing(root, float(root - half), float(root + half))
