r"""Coders of single entries, and the bound that no coder passes."""

from __future__ import annotations

import math

from loca_theory.expressivity.coders.coder import (
    NUMBER,
    Coded,
    Coder,
    ScalarCoder,
    checked_bits,
    index_bits,
)
from loca_theory.expressivity.coders.laws import Law, Tail, moment, threshold
from loca_theory.expressivity.coders.quantisers import (
    entropy_coded,
    error_of,
    lloyd_max,
    uniform,
)

# Widths of quantised values that the sparse coder tries, and cells of an entropy-coded quantiser.
_WIDTHS = range(1, 7)
_FINEST, _COARSEST, _REACH = 2e-3, 40.0, 64.0


class RateDistortion(Coder):
    r"""The bound :math:`2^{-2b}` of normal entries at b bits, for large matrices."""

    name = "rate–distortion"
    title = "the bound of independent normal entries"
    transforms = ()

    def expected(self, shape: tuple[int, int], bits: float) -> Coded:
        """See :class:`Coder`."""
        del shape
        checked_bits(bits)
        return Coded(2.0 ** (-2 * bits), bits)


class Signs(ScalarCoder):
    r"""The sign of each entry, and one scale, the mean magnitude.

    The relative error is :math:`1 - (\sum |w|)^2 / (n \sum w^2)`. For independent normal entries
    the direction is independent of the norm, so the expectation is
    :math:`(1 - 2/\pi)(1 - 1/n)` exactly.
    """

    name = "BitDelta"
    title = "signs and one scale"
    reference = "arXiv:2402.10193"

    def code(self, law: Law, count: int, bits: float) -> Coded | None:
        """See :class:`ScalarCoder`."""
        if bits < 1:
            return None
        magnitude = moment(law, 1) - 2 * float(law.below([0.0])[1, 0])
        return Coded(moment(law, 2) - magnitude**2, 1 + NUMBER / count)

    def expected(self, shape: tuple[int, int], bits: float) -> Coded | None:
        """See :class:`Coder`: exact for every size."""
        found = super().expected(shape, bits)
        return found and Coded(found.error * (1 - 1 / math.prod(shape)), found.bits)


class LloydMax(ScalarCoder):
    """The best codes of each width for the entries; the codes are stored."""

    name = "Lloyd–Max"
    title = "best codes of whole bits"
    reference = "doi:10.1109/TIT.1982.1056489"

    def code(self, law: Law, count: int, bits: float) -> Coded | None:
        """See :class:`ScalarCoder`."""
        if bits < 1:
            return None
        codes = lloyd_max(law, width := int(bits))
        return Coded(error_of(law, codes), width + NUMBER * len(codes) / count)


class Uniform(ScalarCoder):
    """Equidistant codes with the best step, which is stored."""

    name = "uniform"
    title = "equidistant codes of whole bits"

    def code(self, law: Law, count: int, bits: float) -> Coded | None:
        """See :class:`ScalarCoder`."""
        if bits < 1:
            return None
        return Coded(error_of(law, uniform(law, int(bits))), int(bits) + NUMBER / count)


class EntropyCoded(ScalarCoder):
    """Equal cells whose symbols an ideal entropy coder stores.

    The probability and the code of each symbol are stored. At high rate its error is
    :math:`πe/6` times the bound; at low rate it is close to it.
    """

    name = "entropy-coded"
    title = "equal cells, ideal entropy coding"

    def code(self, law: Law, count: int, bits: float) -> Coded | None:
        """See :class:`ScalarCoder`."""
        scale = math.sqrt(moment(law, 2))

        def spent(step: float) -> float:
            _, entropy, symbols = entropy_coded(law, count, step * scale, _REACH * scale)
            return entropy + 2 * NUMBER * symbols / count

        low, high = math.log(_FINEST), math.log(_COARSEST)
        if spent(_COARSEST) > bits:
            return None
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (low, middle) if spent(math.exp(middle)) <= bits else (middle, high)
        step = math.exp(high)
        return Coded(entropy_coded(law, count, step * scale, _REACH * scale)[0], spent(step))


class Largest(ScalarCoder):
    """The largest entries at a width, with the locations as one of all choices of as many.

    Of the widths, the one with the least error at the given bits is taken. The codes are stored.
    """

    name = "largest"
    title = "largest entries, quantised"

    def code(self, law: Law, count: int, bits: float) -> Coded | None:
        """See :class:`ScalarCoder`."""
        found = (self._at_width(law, count, bits, width) for width in _WIDTHS)
        return min((one for one in found if one), key=lambda one: one.error, default=None)

    def _at_width(self, law: Law, count: int, bits: float, width: int) -> Coded | None:
        def spent(chosen: float) -> float:
            return index_bits(count, int(chosen)) + width * int(chosen) + NUMBER * 2**width

        low, high = 0, count // 2
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if spent(middle) <= bits * count else (low, middle - 1)
        if low < 2**width:
            return None
        tail = Tail(law, beyond := threshold(law, low / count))
        if not moment(tail, 0):  # so many numbers have one magnitude
            return None
        error = error_of(tail, lloyd_max(tail, width, beyond))
        return Coded(moment(law, 2) - moment(tail, 2) + error, spent(low) / count)
