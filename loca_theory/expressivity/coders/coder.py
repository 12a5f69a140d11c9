"""Base classes of the coders, and the transforms that can come before them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.fft import dctn, idctn

from loca_theory._arguments import real_number
from loca_theory._types import Array
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.coders.laws import Law, entries, moment, normal
from loca_theory.expressivity.coders.quantisers import error_of

WIDEST = 16
"""Bits per entry that can be spent at most."""


class Coded(NamedTuple):
    """Error and size of a matrix that a coder has coded.

    Attributes:
        error: Relative squared error.
        bits: Stored bits per entry, all overhead included.
    """

    error: float
    bits: float


class Approximation(NamedTuple):
    """A decoded matrix, and the stored bits per entry."""

    matrix: Array
    bits: float


@dataclass(frozen=True)
class SignedBasis:
    """An orthonormal basis of matrices: cosines along axes, after signs of the entries."""

    axes: tuple[int, ...] = ()
    signs: Array | float = 1.0

    def coordinates(self, matrices: Array) -> Array:
        """The coordinates of matrices in the last two axes."""
        signed = self.signs * matrices
        return dctn(signed, norm="ortho", axes=self.axes) if self.axes else signed

    def matrices(self, coordinates: Array) -> Array:
        """The matrices with these coordinates."""
        if self.axes:
            coordinates = idctn(coordinates, norm="ortho", axes=self.axes)
        return self.signs * coordinates


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

    def basis(self, shape: tuple[int, ...], rng: np.random.Generator) -> SignedBasis:
        """The basis of the transform of matrices of a shape; ``rng`` draws the signs."""
        if self is Transform.RANDOM:
            return SignedBasis(
                (-2, -1), np.outer(*(rng.choice([-1.0, 1.0], side) for side in shape))
            )
        return SignedBasis(_AXES[self])


_AXES: dict[Transform, tuple[int, ...]] = {
    Transform.NONE: (),
    Transform.DCT: (-2, -1),
    Transform.INPUTS: (-1,),
    Transform.OUTPUTS: (-2,),
}


@dataclass(frozen=True)
class Coder:
    """A scheme that stores a matrix in few bits.

    Attributes:
        name: Name in tables.
        title: Title in a few words.
        reference: Publication.
        transforms: The transforms that can come before it.
    """

    name: str
    title: str = ""
    reference: str = ""
    transforms: ClassVar[tuple[Transform, ...]] = tuple(Transform)

    def approximate(
        self, matrix: Array, bits: Sequence[float], basis: SignedBasis
    ) -> list[Approximation | None]:
        """The decoded matrix at several sizes; None at a size too small for any code.

        Args:
            matrix: The matrix, not all 0.
            bits: Bits per entry to spend at most. A scheme of whole bits per entry stores its one
                scale or its codes in addition; ``Approximation.bits`` counts them.
            basis: The basis whose coordinates are coded: of the matrix, or of its patches.

        Raises:
            InvalidArgumentError: the shape of the matrix does not suit.
        """
        raise NotImplementedError

    def measure(
        self, matrix: Array, bits: Sequence[float], basis: SignedBasis
    ) -> list[Coded | None]:
        """Error and size at each number of bits; arguments as for :meth:`approximate`."""
        energy = float((matrix**2).sum())
        return [
            approximation
            and Coded(
                float(((matrix - approximation.matrix) ** 2).sum()) / energy, approximation.bits
            )
            for approximation in self.approximate(matrix, bits, basis)
        ]

    def block(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of what is transformed: of the matrix, or of a patch."""
        return shape

    def expected(self, shape: tuple[int, int], bits: float) -> Coded | None:
        """The expectation of :meth:`measure` for independent N(0, 1) entries, in any basis."""
        raise NotImplementedError


class Quantiser(NamedTuple):
    """Cells of numbers, and the code that each is decoded as.

    Attributes:
        edges: Where cells meet, ascending.
        codes: The codes, one more than there are edges.
        bits: Stored bits per number, all overhead included.
    """

    edges: Array
    codes: Array
    bits: float


@dataclass(frozen=True)
class ScalarCoder(Coder):
    """A coder of single numbers, of which only the law matters.

    Attributes:
        quantiser: A function of the law, the number of numbers and the bits per number; None if
            there is no quantiser that small.
    """

    _: KW_ONLY
    quantiser: Callable[[Law, int, float], Quantiser | None]

    def coded(self, law: Law, count: int, bits: Sequence[float]) -> list[Coded | None]:
        """Error and size of ``count`` numbers of a law, at each number of bits."""
        quantisers = [self.quantiser(law, count, size) for size in bits]
        energy = moment(law, 2)
        return [
            quantiser
            and Coded(error_of(law, quantiser.edges, quantiser.codes) / energy, quantiser.bits)
            for quantiser in quantisers
        ]

    def approximate(
        self, matrix: Array, bits: Sequence[float], basis: SignedBasis
    ) -> list[Approximation | None]:
        """See :class:`Coder`."""
        coordinates = basis.coordinates(matrix)
        law = entries(coordinates)
        quantisers = (self.quantiser(law, matrix.size, size) for size in bits)
        return [
            quantiser
            and Approximation(
                basis.matrices(quantiser.codes[np.searchsorted(quantiser.edges, coordinates)]),
                quantiser.bits,
            )
            for quantiser in quantisers
        ]

    def measure(
        self, matrix: Array, bits: Sequence[float], basis: SignedBasis
    ) -> list[Coded | None]:
        """See :class:`Coder`: without a decoded matrix."""
        return self.coded(entries(basis.coordinates(matrix)), matrix.size, bits)

    def expected(self, shape: tuple[int, int], bits: float) -> Coded | None:
        """See :class:`Coder`: exact for many entries."""
        return self.coded(normal, math.prod(shape), [bits])[0]


def checked_bits(bits: float) -> float:
    """The bits of an entry, checked to be above 0 and at most 16."""
    if not 0 < real_number("bits", bits) <= WIDEST:
        raise InvalidArgumentError(
            f"bits must be above 0 and at most {WIDEST}, not {bits}; choose a value such as 1.0"
        )
    return bits
