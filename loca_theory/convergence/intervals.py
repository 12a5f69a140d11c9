"""Exact intervals for a share of successes."""

from __future__ import annotations

from scipy.special import betaincinv

from loca_theory.errors import InvalidArgumentError


def binomial_interval(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    r"""Interval of Clopper and Pearson for a probability, from k successes in n trials.

    The ends are the probabilities under which k or more, and k or fewer, successes have
    probability (1 − level)/2: quantiles of the laws Beta(k, n − k + 1) and Beta(k + 1, n − k).

    Args:
        successes: k, from 0 to n.
        trials: n, at least 1.
        level: Probability, at least, with which the interval covers.

    Raises:
        InvalidArgumentError: a number out of range.

    Source: Clopper and Pearson, Biometrika 26, 1934.
    """
    if trials < 1 or not 0 <= successes <= trials or not 0 < level < 1:
        msg = f"no interval at level {level:g} for {successes} successes in {trials} trials"
        raise InvalidArgumentError(msg)
    tail, failures = (1 - level) / 2, trials - successes
    low = float(betaincinv(successes, failures + 1, tail)) if successes else 0.0
    high = float(betaincinv(successes + 1, failures, 1 - tail)) if failures else 1.0
    return low, high
