r"""Singular vectors at several widths, as Delta-CoMe stores them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from loca_theory._types import Array
from loca_theory.expressivity.coders.coder import (
    Approximation,
    Coded,
    Coder,
    SignedBasis,
    Transform,
)
from loca_theory.expressivity.coders.quantisers import nearest_codes
from loca_theory.expressivity.coders.widths import by_width, expectation, water_filled, width_costs
from loca_theory.increments.marchenko_pastur import angle_at_fraction


class SingularVectors(Coder):
    r"""The leading singular vectors, in more bits the larger their singular value.

    A component :math:`s u v^\top` whose vectors are stored with relative errors d and d′ keeps
    :math:`(1-d)(1-d')` of its energy; it stores its singular value and its width. Widths are those
    of :mod:`loca_theory.expressivity.coders.widths`.

    For independent normal entries the expectation is that of the limit p, q → ∞ with the
    Marchenko–Pastur law of the singular values, in which the errors of different components are
    orthogonal; at finite sizes it differs by O(1/min(p, q)).
    """

    transforms = (Transform.NONE,)

    def expected(self, shape: tuple[int, int], bits: float) -> Coded | None:
        """See :class:`Coder`: the limit of large matrices."""
        count, aspect, entries = min(shape), min(shape) / max(shape), math.prod(shape)
        angles = angle_at_fraction((np.arange(count) + 0.5) / count, aspect)
        # The eigenvalues of the law are 1 + c + 2√c cos θ.
        energies = 1 + aspect + 2 * math.sqrt(aspect) * np.cos(angles)
        return expectation(water_filled, energies, shape, bits, entries)

    def approximate(
        self, matrix: Array, bits: Sequence[float], basis: SignedBasis
    ) -> list[Approximation | None]:
        """See :class:`Coder`."""
        del basis  # singular vectors do not depend on it
        left, values, right = np.linalg.svd(matrix, full_matrices=False)
        return [_decoded(left.T, values, right, size) for size in bits]


def _decoded(left: Array, values: Array, right: Array, bits: float) -> Approximation | None:
    """The decoded matrix of these singular vectors, one per row, and values."""
    shape = left.shape[1], right.shape[1]
    widths = water_filled(values**2, shape, bits * math.prod(shape))
    if widths is None:
        return None
    stored = widths > 0
    u, v = (_coded(vectors[stored], widths[stored]) for vectors in (left, right))
    # The best coefficient of each component, apart from the others.
    overlaps = (u * left[stored]).sum(1) * (v * right[stored]).sum(1)
    scales = values[stored] * overlaps / ((u**2).sum(1) * (v**2).sum(1))
    return Approximation(
        (u.T * scales) @ v, float(width_costs(shape)[widths].sum() / math.prod(shape))
    )


def _coded(vectors: Array, widths: NDArray[np.int64]) -> Array:
    """Unit vectors, one per row, by the codes of their widths."""
    scale = math.sqrt(vectors.shape[1])
    return by_width(
        vectors, widths, lambda numbers, codes: nearest_codes(numbers * scale, codes) / scale
    )
