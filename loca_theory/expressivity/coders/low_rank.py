r"""Singular vectors at several widths, as Delta-CoMe stores them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from loca_theory.expressivity.coders.coder import (
    NUMBER,
    Approximation,
    Basis,
    Coded,
    Coder,
    Transform,
    checked_bits,
)
from loca_theory.expressivity.coders.laws import Array, Sphere
from loca_theory.expressivity.coders.quantisers import (
    error_of_normal_codes,
    nearest_codes,
    normal_codes,
)
from loca_theory.expressivity.coders.widths import best_widths
from loca_theory.increments.marchenko_pastur import angle_at_fraction

# Widths of singular vectors, and bits that say which one a component has.
_WIDTHS, _LABEL = np.arange(9.0), 4


class SingularVectors(Coder):
    r"""The leading singular vectors, in more bits the larger their singular value.

    A component :math:`s u v^\top` whose vectors are stored with relative errors d and d′ keeps
    :math:`(1-d)(1-d')` of its energy. Vectors are divided by their root mean square and coded by
    the best codes of a normal number; a component stores its singular value and its width.

    For independent normal entries the expectation is that of the limit p, q → ∞ with the
    Marchenko–Pastur law of the singular values, in which the errors of different components are
    orthogonal; at finite sizes it differs by O(1/min(p, q)).
    """

    name = "Delta-CoMe"
    title = "singular vectors of mixed widths"
    reference = "arXiv:2406.08903"
    transforms = (Transform.NONE,)

    def expected(self, shape: tuple[int, int], bits: float) -> Coded | None:
        """See :class:`Coder`: the limit of large matrices."""
        checked_bits(bits)
        count, aspect = min(shape), min(shape) / max(shape)
        angles = angle_at_fraction((np.arange(count) + 0.5) / count, aspect)
        # The eigenvalues of the law are 1 + c + 2√c cos θ.
        energies = 1 + aspect + 2 * math.sqrt(aspect) * np.cos(angles)
        retained = _retained(shape)
        widths, spent = _widths(energies, shape, bits)
        return Coded(1 - float(energies @ retained[widths] / energies.sum()), spent)

    def approximate(
        self, matrix: Array, bits: Sequence[float], basis: Basis
    ) -> list[Approximation | None]:
        """See :class:`Coder`."""
        del basis  # singular vectors do not depend on it
        asked = [checked_bits(one) for one in bits]
        left, values, right = np.linalg.svd(matrix, full_matrices=False)
        return [_decoded(left.T, values, right, one) for one in asked]


def _decoded(left: Array, values: Array, right: Array, bits: float) -> Approximation:
    """The matrix with these singular vectors, one per row, and values, as it is decoded."""
    widths, spent = _widths(values**2, (left.shape[1], right.shape[1]), bits)
    stored = widths > 0
    u, v = (_coded(one[stored], widths[stored]) for one in (left, right))
    # The best coefficient of each component, apart from the others.
    overlaps = (u * left[stored]).sum(1) * (v * right[stored]).sum(1)
    scales = values[stored] * overlaps / ((u**2).sum(1) * (v**2).sum(1))
    return Approximation((u.T * scales) @ v, spent)


def _coded(vectors: Array, widths: NDArray[np.int64]) -> Array:
    """Unit vectors, one per row, by the codes of their widths."""
    found, scale = np.empty_like(vectors), math.sqrt(vectors.shape[1])
    for width in np.unique(widths):
        mine = widths == width
        found[mine] = nearest_codes(vectors[mine] * scale, normal_codes(int(width))) / scale
    return found


def _retained(shape: tuple[int, ...]) -> Array:
    """Fraction of a component's energy that is retained, by width."""
    left, right = (
        np.array([1 - error_of_normal_codes(Sphere(side), int(width)) for width in _WIDTHS])
        for side in shape
    )
    return left * right


def _widths(
    energies: Array, shape: tuple[int, ...], bits: float
) -> tuple[NDArray[np.int64], float]:
    """Widths of the components, and the bits per entry that they take."""
    costs = sum(shape) * _WIDTHS + NUMBER * (_WIDTHS > 0.0) + _LABEL
    widths = best_widths(energies, _retained(shape), costs, bits * math.prod(shape))
    return widths, float(costs[widths].sum() / math.prod(shape))
