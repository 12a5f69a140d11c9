r"""Patches of a matrix at several widths, as Delta-DCT stores them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.coders.coder import (
    NUMBER,
    Approximation,
    Basis,
    Coded,
    Coder,
    checked_bits,
)
from loca_theory.expressivity.coders.laws import Array, Sphere
from loca_theory.expressivity.coders.quantisers import (
    error_of_normal_codes,
    nearest_codes,
    normal_codes,
)
from loca_theory.expressivity.coders.widths import best_widths

# Widths of the entries of a component, and bits that say which one it has.
_WIDTHS, _LABEL = np.arange(8.0), 3
# Energies of normal components are taken at so many quantiles.
_QUANTILES = 4000
# Scales that are tried beside 0, in units of the root mean square.
_SCALES = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)


@dataclass(frozen=True)
class Patches(Coder):
    r"""Square patches, cut into components that get more bits the larger their energy.

    The patches are transformed. The components are the patches themselves, as in Delta-DCT, or the
    positions in a patch: all coordinates at one position together, as in JPEG. A component is
    divided by a scale and coded by the best codes of a normal number. The scale is its root mean
    square, or a multiple where some entries are much larger than the rest. A component stores its
    width and, unless this is 0, its scale.

    For independent normal entries the energy of a component of m entries has the law
    :math:`χ^2_m` and is independent of its direction, whose coordinates have the law
    :class:`~loca_theory.expressivity.coders.laws.Sphere`: the expectation is exact for many
    components, of which each has its root mean square for its scale.

    The source of Delta-DCT ranks patches by their norm and gives them one of a few widths; here
    they get the widths that suit the energies best. All coordinates of a patch have one width, so
    that it cannot use what a transform gathers in few of them; components by position can.

    Attributes:
        by: Whether the components are ``patches`` or ``positions``.
        side: Rows and columns of a patch.
    """

    by: Literal["patches", "positions"] = "patches"
    side: int = 16

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Name in tables."""
        return self.by

    @property
    def title(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Title in a few words."""
        return f"{self.by} of mixed widths{' (with the DCT: Delta-DCT)' * (self.by == 'patches')}"

    reference = "arXiv:2503.06676"

    def expected(self, shape: tuple[int, int], bits: float) -> Coded | None:
        """See :class:`Coder`: exact for many components."""
        checked_bits(bits)
        patches, length = self._count(shape), self._length(shape)
        levels = min(_QUANTILES, self.side**2 * patches // length)
        energies = chi2.ppf((np.arange(levels) + 0.5) / levels, length)
        widths, spent = _widths(energies, length, bits)
        if spent > bits:
            return None
        return Coded(1 - float(energies @ _retained(length)[widths] / energies.sum()), spent)

    def approximate(
        self, matrix: Array, bits: Sequence[float], basis: Basis
    ) -> list[Approximation | None]:
        """See :class:`Coder`."""
        asked = [checked_bits(one) for one in bits]
        patches = self._count(matrix.shape)
        rows, columns = (size // self.side for size in matrix.shape)
        blocks = matrix.reshape(rows, self.side, columns, self.side).swapaxes(1, 2)
        components = basis.coordinates(blocks).reshape(patches, -1)
        is_by_position = self.by == "positions"
        found = (_decoded(components.T if is_by_position else components, one) for one in asked)

        def whole(decoded: Array) -> Array:
            patches = (decoded.T if is_by_position else decoded).reshape(blocks.shape)
            return basis.matrices(patches).swapaxes(1, 2).reshape(matrix.shape)

        return [one and Approximation(whole(one.matrix), one.bits) for one in found]

    def block(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """See :class:`Coder`."""
        del shape
        return self.side, self.side

    def _length(self, shape: tuple[int, ...]) -> int:
        """Entries of a component."""
        return self.side**2 if self.by == "patches" else self._count(shape)

    def _count(self, shape: tuple[int, ...]) -> int:
        """Number of patches."""
        if any(size % self.side for size in shape):
            msg = f"patches of side {self.side} do not divide a {'x'.join(map(str, shape))} matrix;"
            raise InvalidArgumentError(msg + " choose a side that divides both")
        return math.prod(shape) // self.side**2


def _decoded(components: Array, bits: float) -> Approximation | None:
    """Components, one per row, as they are decoded."""
    energies = (components**2).sum(axis=1)
    widths, spent = _widths(energies, components.shape[1], bits)
    if spent > bits:
        return None
    found = np.zeros_like(components)
    for width in np.unique(widths):
        mine = widths == width
        found[mine] = _nearest(components[mine], normal_codes(int(width)))
    return Approximation(found, spent)


def _retained(length: int) -> Array:
    """Fraction of a component's energy that is retained, by width."""
    return np.array([1 - error_of_normal_codes(Sphere(length), int(width)) for width in _WIDTHS])


def _widths(energies: Array, length: int, bits: float) -> tuple[NDArray[np.int64], float]:
    """The width of each component of so many entries, and the bits per entry that they take."""
    costs = length * _WIDTHS + NUMBER * (_WIDTHS > 0) + _LABEL
    widths = best_widths(energies, _retained(length), costs, bits * length * len(energies))
    return widths, float(costs[widths].mean() / length)


def _nearest(components: Array, codes: Array) -> Array:
    """Components, one per row, by these codes at the best of the scales."""
    sizes = np.sqrt((components**2).mean(axis=1, keepdims=True))
    found, least = np.zeros_like(components), (components**2).sum(axis=1)
    for scale in _SCALES:
        units = components / np.where(sizes > 0, sizes * scale, 1.0)
        coded = nearest_codes(units, codes) * sizes * scale
        errors = ((components - coded) ** 2).sum(axis=1)
        found[errors < least] = coded[errors < least]
        least = np.minimum(errors, least)
    return found
