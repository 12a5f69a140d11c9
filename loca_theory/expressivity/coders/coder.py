"""Base classes of the coders, and the transforms that can come before them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dctn
from scipy.special import gammaln

from loca_theory._arguments import real_number
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.coders.laws import Array, Entries, Law, Normal, moment

NUMBER = 16
"""Bits of a scale, a code or another number that is stored as it is."""

WIDEST = 16


class Coded(NamedTuple):
    """What a coder leaves of a matrix.

    Attributes:
        error: Relative squared error.
        bits: Stored bits per entry, all overhead included.
    """

    error: float
    bits: float


class Transform(StrEnum):
    """An orthonormal transform of a matrix, or of its patches, before it is coded.

    - ``none``: the entries as they are.
    - ``dct``: the cosine transform along both axes.
    - ``dct of inputs``, ``dct of outputs``: along one axis.
    - ``random``: the cosine transform after random signs of the rows and of the columns, which
      leave nothing smooth and no mean: the control for what a transform gains just by mixing.
    """

    NONE = "none"
    DCT = "dct"
    INPUTS = "dct of inputs"
    OUTPUTS = "dct of outputs"
    RANDOM = "random"

    def apply(self, matrices: Array, rng: np.random.Generator | None = None) -> Array:
        """The coordinates of matrices, which the last two axes are; ``rng`` draws the signs."""
        axes = {Transform.NONE: (), Transform.INPUTS: (-1,), Transform.OUTPUTS: (-2,)}
        if self is Transform.RANDOM:
            rng = np.random.default_rng(0) if rng is None else rng
            rows, columns = (rng.choice([-1.0, 1.0], side) for side in matrices.shape[-2:])
            matrices = rows[:, None] * matrices * columns
        along = axes.get(self, (-2, -1))
        return dctn(matrices, norm="ortho", axes=along) if along else matrices


class Coder:
    """A scheme that stores a matrix in few bits.

    Attributes:
        name: Name in tables.
        title: Title in a few words.
        reference: Publication.
    """

    name: str
    title: str = ""
    reference: str = ""
    transforms: tuple[Transform, ...] = tuple(Transform)

    def measure(
        self,
        matrix: NDArray[np.floating],
        bits: Sequence[float],
        transform: Transform = Transform.NONE,
        rng: np.random.Generator | None = None,
    ) -> list[Coded | None]:
        """What the coder leaves of a matrix; None where it has no code of so few bits.

        Args:
            matrix: The matrix, not all 0.
            bits: Bits per entry to spend at most. A scheme of whole bits per entry stores its one
                scale or its codes in addition; ``Coded.bits`` counts them.
            transform: What is coded: the entries, or their coordinates in another basis.
            rng: Source of the random signs of the control.

        Raises:
            InvalidArgumentError: ``bits`` are not between 0 and 16, or the shape does not suit.
        """
        raise NotImplementedError

    def expected(self, shape: tuple[int, int], bits: float) -> Coded | None:
        """The expectation of :meth:`measure` for independent N(0, 1) entries, in any basis.

        Raises:
            InvalidArgumentError: as for :meth:`measure`.
        """
        raise NotImplementedError


class ScalarCoder(Coder):
    """A coder of single numbers, of which only the law matters."""

    def code(self, law: Law, count: int, bits: float) -> Coded | None:
        """What is left of so many numbers of a law, with the absolute error."""
        raise NotImplementedError

    def coded(self, law: Law, count: int, bits: Sequence[float]) -> list[Coded | None]:
        """The same with the relative error, for several numbers of bits."""
        found = [self.code(law, count, checked_bits(one)) for one in bits]
        energy = moment(law, 2)
        return [one and Coded(one.error / energy, one.bits) for one in found]

    def measure(
        self,
        matrix: NDArray[np.floating],
        bits: Sequence[float],
        transform: Transform = Transform.NONE,
        rng: np.random.Generator | None = None,
    ) -> list[Coded | None]:
        """See :class:`Coder`."""
        coordinates = transform.apply(np.asarray(matrix, dtype=np.float64), rng)
        return self.coded(Entries(coordinates), coordinates.size, bits)

    def expected(self, shape: tuple[int, int], bits: float) -> Coded | None:
        """See :class:`Coder`: exact for many entries."""
        return self.coded(Normal(), math.prod(shape), [bits])[0]


def checked_bits(bits: float) -> float:
    """The bits of an entry, if so many can be spent on one."""
    if not 0 < real_number("bits", bits) <= WIDEST:
        msg = f"bits must be above 0 and at most {WIDEST}, not {bits}; choose a value such as 1.0"
        raise InvalidArgumentError(msg)
    return bits


def index_bits(count: int, chosen: int) -> float:
    """log₂ of the number of ways to choose some of ``count`` locations."""
    logarithm = gammaln(count + 1) - gammaln(chosen + 1) - gammaln(count - chosen + 1)
    return float(logarithm / math.log(2))
