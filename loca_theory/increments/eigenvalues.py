"""All squared singular values of a matrix, from a Gram matrix, without an SVD.

Rounding the Gram matrix moves its eigenvalues by up to about ε max(p, q) λ₁. In double precision,
smaller ones are returned as 0. Large float32 matrices may be solved in single precision, where a
zero comes out as anything up to a few 1e-6 λ₁; those of low rank are projected first.
"""

from __future__ import annotations

import numpy as np
import torch

from loca_theory._types import Array
from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms.inputs import TensorLike, balanced, squared_units
from loca_theory.transforms.precision import float32_products

# If the smaller side is at most this, the Gram matrix is formed and solved in double precision.
DOUBLE_UP_TO = 1536
# Larger matrices use double precision too if half of the eigenvalues are below this fraction of the
# largest, because single precision is accurate only to a few 1e-6 of the largest.
_SINGLE_DOWN_TO = 2.0**-13
_ROWS, _COLUMNS = 1024, 512
# A matrix counts as one of low rank, such as an adapter's, if its rows lie in a space of this many
# dimensions, apart from this fraction of their energy: the rounding of products of hundreds of
# terms.
_LOW_RANK, _ROUNDING = 160, (64 * 2.0**-24) ** 2


def squared_singular_values(matrix: TensorLike) -> Array:
    """Eigenvalues of the smaller Gram matrix, smallest first, on the matrix's own device.

    Args:
        matrix: W, shape (p, q), a real tensor or NumPy array with finite entries.

    Returns:
        min(p, q) values, not negative; those within rounding of 0 are 0 in double precision. For
        float32 matrices with both sides above 1536, a faster algorithm is used if the rank is at
        most 160. Otherwise the values are computed in single precision, accurate to a few 1e-6 of
        the largest, unless at least half of them are below 2⁻¹³ of the largest.

    Raises:
        InvalidArgumentError: W is not a matrix or has no entries; W is complex, sparse or of 8
            bits; or W has entries that are not finite, or so large or small that their squares do
            not fit float64.
    """
    scaled, exponent = balanced(matrix, "matrix")
    if scaled.ndim != 2 or not scaled.numel():
        raise InvalidArgumentError(
            f"matrix must have two dimensions that are not empty, not shape {tuple(scaled.shape)}"
        )
    scaled = scaled.detach()
    tall = scaled if scaled.shape[0] >= scaled.shape[1] else scaled.mT
    with float32_products(tall.device):
        values = None
        if tall.shape[1] > DOUBLE_UP_TO and tall.dtype == torch.float32:
            values = _of_low_rank(tall)
            if values is None:
                values = _eigenvalues(_lower_gram(tall))
                if values[len(values) // 2] < _SINGLE_DOWN_TO * values[-1]:
                    values = None
        if values is None:
            values = _eigenvalues(double_gram(tall))
            values[values < np.finfo(np.float64).eps * tall.shape[0] * values[-1]] = 0
    return squared_units(values, exponent, "matrix")


def double_gram(tall: torch.Tensor) -> torch.Tensor:
    """WᵀW in double precision."""
    gram = tall.new_zeros((tall.shape[1], tall.shape[1]), dtype=torch.float64)
    for rows in tall.split(_ROWS):
        wide = rows.double()
        gram.addmm_(wide.mT, wide)
    return gram


def _lower_gram(tall: torch.Tensor) -> torch.Tensor:
    """WᵀW in and below the diagonal blocks, which is all that the eigenvalues need."""
    gram = tall.new_zeros((tall.shape[1], tall.shape[1]))
    for start in range(0, tall.shape[1], _COLUMNS):
        stop = start + _COLUMNS
        gram[start:, start:stop] = tall[:, start:].mT @ tall[:, start:stop]
    return gram


def _of_low_rank(tall: torch.Tensor) -> Array | None:
    """Squared singular values of a matrix whose rows lie in a small space up to rounding.

    The space is spanned by random combinations of the first rows. The result is None for any other
    matrix; most of these are recognised from the first rows.
    """
    sample = tall[: 2 * _LOW_RANK].double()
    if len(sample) > _LOW_RANK:
        remainder = _eigenvalues(sample @ sample.mT)[: len(sample) - _LOW_RANK].sum()
        if remainder > _ROUNDING * float(sample.square().sum()) * max(
            1.0, tall.shape[0] / len(sample)
        ):
            return None
    first = tall[:_ROWS].double()
    generator = torch.Generator().manual_seed(0)
    mix = torch.randn(_LOW_RANK, len(first), dtype=first.dtype, generator=generator).to(tall.device)
    basis = torch.linalg.qr((mix @ first).mT).Q
    gram = first.new_zeros((basis.shape[1], basis.shape[1]))
    for rows in tall.split(_ROWS):
        wide = rows.double()
        image = wide @ basis
        # The basis is orthonormal, so that the energies outside and inside it add up.
        energy = torch.linalg.vector_norm(wide) ** 2
        if energy - torch.linalg.vector_norm(image) ** 2 > _ROUNDING * energy:
            return None
        gram.addmm_(image.mT, image)
    leading = _eigenvalues(gram)
    leading[leading < _ROUNDING * leading[-1]] = 0
    return np.concatenate([np.zeros(tall.shape[1] - len(leading)), leading])


def _eigenvalues(gram: torch.Tensor) -> Array:
    return torch.linalg.eigvalsh(gram).clamp_(min=0).cpu().numpy().astype(np.float64)
