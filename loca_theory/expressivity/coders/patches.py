r"""Patches of a matrix at several widths, as the checkpoint compression Delta-DCT stores them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal

import numpy as np
from scipy.special import gammaincinv

from loca_theory._types import Array
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.coders.coder import Approximation, Coded, Coder, SignedBasis
from loca_theory.expressivity.coders.quantisers import nearest_codes
from loca_theory.expressivity.coders.widths import (
    WidthRule,
    by_width,
    expectation,
    water_filled,
    width_costs,
)

# Number of quantiles at which the energies of normal components are taken.
_QUANTILES = 4000
# Scales that are tried beside 0, in units of the root mean square.
_SCALES = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)


@dataclass(frozen=True)
class Patches(Coder):
    r"""Square patches, cut into components that get more bits the larger their energy.

    The patches are transformed. The components are the patches themselves, as in Delta-DCT, or the
    positions in a patch: all coordinates at one position together, as in JPEG. A component is
    divided by a scale and coded by the best codes of a normal number. The scale is its root mean
    square, or a multiple where some entries are much larger than the rest.

    For independent normal entries the energy of a component of m entries has the law
    :math:`χ^2_m` and is independent of its direction, whose coordinates have the law
    :func:`~loca_theory.expressivity.coders.laws.sphere`: the expectation is exact for many
    components, of which each has its root mean square for its scale.

    All coordinates of a patch have one width, so that it cannot use what a transform gathers in few
    of them; components by position can.

    Attributes:
        by: Whether the components are ``patches`` or ``positions``.
        side: Rows and columns of a patch.
        rule: The widths of the components: ``water_filled`` or ``upper_half`` of
            :mod:`loca_theory.expressivity.coders.widths`, or your own.
    """

    _: KW_ONLY
    by: Literal["patches", "positions"] = "patches"
    side: int = 16
    rule: WidthRule = water_filled

    def expected(self, shape: tuple[int, int], bits: float) -> Coded | None:
        """See :class:`Coder`: exact for many components."""
        patches, area = self._number_of_patches(shape), self.side**2
        count, length = (patches, area) if self.by == "patches" else (area, patches)
        levels = min(_QUANTILES, count)
        # Quantiles of χ²; scipy.stats has them, too, but its import takes half a second.
        quantiles = gammaincinv(length / 2, (np.arange(levels) + 0.5) / levels)
        energies = np.asarray(2 * quantiles, dtype=np.float64)
        return expectation(self.rule, energies, (length,), bits, length * levels)

    def approximate(
        self, matrix: Array, bits: Sequence[float], basis: SignedBasis
    ) -> list[Approximation | None]:
        """See :class:`Coder`."""
        count = self._number_of_patches(matrix.shape)
        rows, columns = (size // self.side for size in matrix.shape)
        blocks = matrix.reshape(rows, self.side, columns, self.side).swapaxes(1, 2)
        components = basis.coordinates(blocks).reshape(count, -1)
        is_by_position = self.by == "positions"
        components = components.T if is_by_position else components
        decoded = (_decoded(components, self.rule, size) for size in bits)

        def whole(decoded: Array) -> Array:
            coordinates = (decoded.T if is_by_position else decoded).reshape(blocks.shape)
            return basis.matrices(coordinates).swapaxes(1, 2).reshape(matrix.shape)

        return [coded and Approximation(whole(coded.matrix), coded.bits) for coded in decoded]

    def block(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """See :class:`Coder`."""
        del shape
        return self.side, self.side

    def _number_of_patches(self, shape: tuple[int, ...]) -> int:
        """Number of patches."""
        if any(size % self.side for size in shape):
            raise InvalidArgumentError(
                f"patches of side {self.side} do not divide a {'x'.join(map(str, shape))} matrix;"
                " choose a side that divides both"
            )
        return math.prod(shape) // self.side**2


def _decoded(components: Array, rule: WidthRule, bits: float) -> Approximation | None:
    """Components, one per row, as they are decoded."""
    lengths = (components.shape[1],)
    widths = rule((components**2).sum(axis=1), lengths, bits * components.size)
    if widths is None:
        return None
    decoded = by_width(components, widths, _nearest)
    return Approximation(decoded, float(width_costs(lengths)[widths].sum() / components.size))


def _nearest(components: Array, codes: Array) -> Array:
    """Components, one per row, by these codes at the best of the scales."""
    sizes = np.sqrt((components**2).mean(axis=1, keepdims=True))
    nearest, smallest_errors = np.zeros_like(components), (components**2).sum(axis=1)
    for scale in _SCALES:
        units = components / np.where(sizes > 0, sizes * scale, 1.0)
        coded = nearest_codes(units, codes) * sizes * scale
        errors = ((components - coded) ** 2).sum(axis=1)
        nearest[errors < smallest_errors] = coded[errors < smallest_errors]
        smallest_errors = np.minimum(errors, smallest_errors)
    return nearest
