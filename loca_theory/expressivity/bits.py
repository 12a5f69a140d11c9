"""Costs in bits: of numbers and locations, and the least error at a number of bits per entry.

The accounting ``bits`` of budgets and the coders count by these.
"""

from __future__ import annotations

import math

from scipy.special import gammaln

NUMBER_BITS = 16
"""Bits of a number that is stored as it is, unless a budget says otherwise."""


def location_bits(candidates: int, chosen: int = 1) -> float:
    """log₂ of the number of ways to choose ``chosen`` of ``candidates`` locations.

    A budget stores its locations one by one, a coder all together, which saves the bits of their
    order.
    """
    if chosen == 1:
        return math.log2(candidates)
    ways = gammaln(candidates + 1) - gammaln(chosen + 1) - gammaln(candidates - chosen + 1)
    return float(ways / math.log(2))


def least_error(bits: float) -> float:
    """2^(−2b): the least relative error of any code of b bits per independent normal entry.

    Source: the rate-distortion function of a Gaussian source (Shannon, 1959).
    """
    return 2.0 ** (-2 * bits)
