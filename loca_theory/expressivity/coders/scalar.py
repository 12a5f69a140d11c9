r"""Coders of single entries, and the bound that no coder passes."""

from __future__ import annotations

import math
from bisect import bisect_right

import numpy as np
from scipy.special import entr

from loca_theory.expressivity.bits import NUMBER_BITS, least_error, location_bits
from loca_theory.expressivity.coders.coder import Coded, Coder, Quantiser, ScalarCoder
from loca_theory.expressivity.coders.laws import Law, moment, tail, threshold
from loca_theory.expressivity.coders.quantisers import (
    between,
    equal_cells,
    error_of,
    lloyd_max,
    uniform,
)

# Widths of quantised values that the sparse coder tries, and cells of an entropy-coded quantiser.
_WIDTHS = range(1, 7)
_FINEST, _COARSEST, _REACH = 2e-3, 40.0, 64.0


class RateDistortion(Coder):
    r"""The bound :math:`2^{-2b}` of normal entries at b bits, for large matrices."""

    transforms = ()

    def expected(self, shape: tuple[int, int], bits: float) -> Coded:
        """See :class:`Coder`."""
        del shape
        return Coded(least_error(bits), bits)


class Signs(ScalarCoder):
    r"""The sign of each entry, and one scale, the mean magnitude.

    The relative error is :math:`1 - (\sum |w|)^2 / (n \sum w^2)`. For independent normal entries
    the direction is independent of the norm, so the expectation is
    :math:`(1 - 2/\pi)(1 - 1/n)` exactly.
    """

    def expected(self, shape: tuple[int, int], bits: float) -> Coded | None:
        """See :class:`Coder`: exact for every size."""
        of_law = super().expected(shape, bits)
        return of_law and Coded(of_law.error * (1 - 1 / math.prod(shape)), of_law.bits)


def mean_magnitude(law: Law, count: int, bits: float) -> Quantiser | None:
    """The quantiser of :class:`Signs`."""
    if bits < 1:
        return None
    scale = moment(law, 1) - 2 * float(law([0.0])[1, 0])
    return Quantiser(np.zeros(1), np.array([-scale, scale]), 1 + NUMBER_BITS / count)


def best_codes(law: Law, count: int, bits: float) -> Quantiser | None:
    """The best codes of each width for the entries; the codes are stored."""
    if bits < 1:
        return None
    codes = lloyd_max(law, width := int(bits))
    return Quantiser(between(codes), codes, width + NUMBER_BITS * len(codes) / count)


def best_step(law: Law, count: int, bits: float) -> Quantiser | None:
    """Equidistant codes with the best step, which is stored."""
    if bits < 1:
        return None
    codes = uniform(law, int(bits))
    return Quantiser(between(codes), codes, int(bits) + NUMBER_BITS / count)


def entropy_coded(law: Law, count: int, bits: float) -> Quantiser | None:
    """Equal cells whose symbols an ideal entropy coder stores.

    The probability and the code of each symbol are stored. At high rate its error is
    :math:`πe/6` times the bound; at low rate it is close to it.
    """
    scale = math.sqrt(moment(law, 2))

    def at(step: float) -> Quantiser:
        edges, codes, mass = equal_cells(law, step * scale, _REACH * scale)
        # A symbol is stored if at least half a number has it.
        symbols = int((mass * count >= 0.5).sum())
        entropy = float(entr(mass).sum() / math.log(2))
        return Quantiser(edges, codes, entropy + 2 * NUMBER_BITS * symbols / count)

    low, high = math.log(_FINEST), math.log(_COARSEST)
    if at(_COARSEST).bits > bits:
        return None
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if at(math.exp(middle)).bits <= bits else (middle, high)
    return at(math.exp(high))


def largest_at_best_width(law: Law, count: int, bits: float) -> Quantiser | None:
    """The largest entries at a width, with their locations as one of all choices of that many.

    Of the widths, the one with the least error at the given bits is taken. The codes are stored.
    """
    quantisers = [_largest_at(law, count, bits, width) for width in _WIDTHS]
    possible = [quantiser for quantiser in quantisers if quantiser is not None]
    return min(
        possible,
        key=lambda quantiser: error_of(law, quantiser.edges, quantiser.codes),
        default=None,
    )


def _largest_at(law: Law, count: int, bits: float, width: int) -> Quantiser | None:
    def spent(chosen: int) -> float:
        return location_bits(count, chosen) + width * chosen + NUMBER_BITS * 2**width

    chosen = bisect_right(range(count // 2 + 1), bits * count, key=spent) - 1
    if chosen < 2**width:
        return None
    large = tail(law, beyond := threshold(law, chosen / count))
    if not moment(large, 0):  # all of the large numbers have one magnitude
        return None
    codes = lloyd_max(large, width, beyond)
    negative, positive = codes[codes < 0], codes[codes > 0]
    return Quantiser(
        np.concatenate([between(negative), [-beyond, beyond], between(positive)]),
        np.concatenate([negative, [0.0], positive]),
        spent(chosen) / count,
    )
