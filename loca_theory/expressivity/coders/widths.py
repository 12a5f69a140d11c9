r"""Whole bits of components that share a total.

A component is a vector, or the product of several. Each vector is divided by its root mean square
and every entry stored at one width, as the best code of a normal number. The component stores its
width and, unless this is 0, a scale.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from loca_theory._types import Array
from loca_theory.expressivity.bits import NUMBER_BITS
from loca_theory.expressivity.coders.coder import Coded
from loca_theory.expressivity.coders.laws import sphere
from loca_theory.expressivity.coders.quantisers import between, error_of, normal_codes

# Widths that a component can have, and bits that say which one it has.
_WIDTHS, _LABEL = np.arange(9), 4

WidthRule = Callable[[Array, tuple[int, ...], float], NDArray[np.int64] | None]
"""A function of the energies of components, the lengths of their vectors and the bits for all, that
returns the width of each; None without a code of this size."""


def retained(lengths: tuple[int, ...]) -> Array:
    """Fraction of a component's energy that is retained, by width.

    Of vectors with relative errors d and d′ the product retains (1 − d)(1 − d′).
    """
    codes = [normal_codes(int(width)) for width in _WIDTHS]
    factors = [[1 - error_of(sphere(m), between(c), c) for c in codes] for m in lengths]
    return np.asarray(factors).prod(axis=0)


def width_costs(lengths: tuple[int, ...]) -> Array:
    """Bits of a component, by width."""
    bits = sum(lengths) * _WIDTHS + NUMBER_BITS * (_WIDTHS > 0) + float(_LABEL)
    return bits.astype(np.float64)


def water_filled(
    energies: Array, lengths: tuple[int, ...], total: float
) -> NDArray[np.int64] | None:
    """Reverse water-filling: the widths that retain the most energy; a :data:`WidthRule`.

    Bits are bought in the order of energy per bit, along the concave envelope of what the widths
    retain, until the next do not fit: no split of what is spent retains more.
    """
    by_width, bits = retained(lengths), width_costs(lengths)
    if len(energies) * bits[0] > total:
        return None
    hull = _concave(bits, by_width)
    prices = np.diff(bits[hull])
    worth = np.outer(energies, np.diff(by_width[hull]) / prices)
    order = np.argsort(-worth, axis=None, kind="stable")
    spent = len(energies) * bits[0] + np.cumsum(prices[order % len(prices)])
    bought = order[spent <= total]
    return np.asarray(hull)[np.bincount(bought // len(prices), minlength=len(energies))]


def upper_half(energies: Array, lengths: tuple[int, ...], total: float) -> NDArray[np.int64] | None:
    """Two bits for the half of the components with the most energy; a :data:`WidthRule`.

    Scales and widths are stored in addition to the total.
    """
    widths = np.zeros(len(energies), dtype=np.int64)
    widths[np.argsort(-energies)[: round(len(energies) / 2)]] = 2
    return widths if widths.sum() * sum(lengths) <= total else None


def expectation(
    rule: WidthRule, energies: Array, lengths: tuple[int, ...], bits: float, entries: int
) -> Coded | None:
    """Error and size of components with these energies, at ``bits`` for each of the entries."""
    widths = rule(energies, lengths, bits * entries)
    if widths is None:
        return None
    error = 1 - float(energies @ retained(lengths)[widths] / energies.sum())
    return Coded(error, float(width_costs(lengths)[widths].sum() / entries))


def by_width(
    components: Array, widths: NDArray[np.int64], code: Callable[[Array, Array], Array]
) -> Array:
    """Components, one per row: ``code`` decodes those of one width by the best codes of it."""
    decoded = np.zeros_like(components)
    for width in np.unique(widths):
        is_of_width = widths == width
        decoded[is_of_width] = code(components[is_of_width], normal_codes(int(width)))
    return decoded


def _concave(costs: Array, values: Array) -> list[int]:
    """The widths, from the first, on the upper concave envelope of their values."""
    hull = [0]
    while hull[-1] < len(costs) - 1:
        at = hull[-1]
        slopes = (values[at + 1 :] - values[at]) / (costs[at + 1 :] - costs[at])
        hull.append(at + 1 + int(np.argmax(slopes)))
    return hull
