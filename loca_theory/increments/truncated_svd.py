r"""Leading singular values and vectors of a large matrix, with an estimate of what they miss.

With A = WᵀW, a block Krylov space :math:`\operatorname{span}(X, AX, A^2X, …)` of a random block X
contains good approximations of the leading right singular vectors. Blocks are added until the
estimate is small. If the space would be a large part of the whole, or the whole is small, the Gram
matrix A is decomposed instead.

*Estimate.* Let V be the k Ritz vectors, :math:`\Theta = V^\top A V` diagonal,
:math:`R = AV - V\Theta` and c the largest eigenvalue of A on the complement of V. For every t > 0,

.. math:: A \preceq \begin{pmatrix}\Theta + R^\top R/t & 0\\ 0 & (c + t) I\end{pmatrix}

in the basis of V and its complement, so by Ky Fan the k largest eigenvalues of A exceed
:math:`\operatorname{tr}\Theta` in sum by at most
:math:`\lVert R\rVert_F^2/t + \sum_i \max(0, c + t - \theta_i)`. This is a
bound. The next Ritz value stands for c and is at most c, so what is computed is an estimate: it can
be too small if singular values that follow the first k are nearly equal to them.

Source: C. Musco and C. Musco, NeurIPS 2015; N. Halko, P. G. Martinsson and J. A. Tropp, SIAM Rev.
53 (2011).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from loca_theory._arguments import whole_number
from loca_theory.errors import InvalidArgumentError
from loca_theory.increments.eigenvalues import DOUBLE_UP_TO, double_gram
from loca_theory.transforms.inputs import TensorLike, balanced, times_power_of_two
from loca_theory.transforms.precision import float32_products

# Additional columns of each block; at most this many blocks, of together half of the smaller side.
_SPARE, _MOST_BLOCKS, _FEWEST_BLOCKS = 8, 12, 6
# Up to this smaller side, decomposing the Gram matrix is faster as well as exact.
_GRAM_UP_TO = 512
# Blocks are added until the estimate is below this fraction of the energy, unless it is given.
_TOLERANCE = 1e-5
_ROWS = 256
# Values of t for which the estimate is computed, in units of the largest eigenvalue.
_GRID = np.logspace(-8, 1, 91)


@dataclass(frozen=True)
class TruncatedSVD:
    r"""Approximation :math:`U \operatorname{diag}(s) V^\top` of rank k.

    It is a projection of W, on the space of U or of V, so it retains :math:`\sum_i s_i^2` of the
    energy, up to rounding.

    Attributes:
        u: Left singular vectors as orthonormal columns, shape (p, k).
        s: Singular values, largest first, shape (k,).
        vh: Right singular vectors as orthonormal rows, shape (k, q).
        missing: Estimate of the energy that the best approximation of rank k retains in addition,
            as a fraction of the energy of W.
    """

    u: torch.Tensor
    s: torch.Tensor
    vh: torch.Tensor
    missing: float


def truncated_svd(matrix: TensorLike, k: int, *, tolerance: float = _TOLERANCE) -> TruncatedSVD:
    """Leading singular values and vectors, on the matrix's own device.

    Args:
        matrix: W, shape (p, q).
        k: How many singular values.
        tolerance: Blocks are added until the estimate of ``missing`` is below it.

    Example:
        >>> import numpy as np
        >>> svd = truncated_svd(np.diag([3.0, 2.0, 1.0]), 2)
        >>> svd.s.tolist()
        [3.0, 2.0]
    """
    w, exponent = balanced(matrix, "matrix")
    w = w.detach()
    side = min(w.shape) if w.ndim == 2 else 0
    if not 1 <= whole_number("k", k) <= side:
        raise InvalidArgumentError(
            f"k must be from 1 to the smaller side of a matrix, not {k} for {tuple(w.shape)}"
        )
    is_tall = w.shape[0] >= w.shape[1]
    tall = w if is_tall else w.mT
    blocks = min(_MOST_BLOCKS, side // (2 * (k + _SPARE)))
    with float32_products(w.device):
        if side > _GRAM_UP_TO and blocks >= _FEWEST_BLOCKS:
            right, missing = _krylov(tall, k, blocks, tolerance)
        else:
            right, missing = _from_gram(tall, k)
        # A decomposition of W V itself: orthonormal also where a singular value is only rounding.
        left, triangle = torch.linalg.qr(tall @ right)
        u, s, vh = torch.linalg.svd(triangle)
        u, vh = left @ u, vh @ right.mT
    s = times_power_of_two(s, exponent)
    return TruncatedSVD(u, s, vh, missing) if is_tall else TruncatedSVD(vh.mT, s, u.mT, missing)


def svd_of_product(b: torch.Tensor, a: torch.Tensor) -> TruncatedSVD:
    """Singular values and vectors of BA with B p×r and A r×q, in float64, without forming it.

    With B = QR and Aᵀ = Q'R', they follow from those of R R'ᵀ. Those of singular values within
    rounding of 0 are left out.
    """
    left, first = torch.linalg.qr(b.double())
    right, second = torch.linalg.qr(a.double().mT)
    u, s, vh = torch.linalg.svd(first @ second.mT)
    k = int((s > s.max() * len(s) * torch.finfo(s.dtype).eps).sum())
    return TruncatedSVD(left @ u[:, :k], s[:k], vh[:k] @ right.mT, 0.0)


def _krylov(
    tall: torch.Tensor, k: int, max_blocks: int, tolerance: float
) -> tuple[torch.Tensor, float]:
    """The k Ritz vectors from a block Krylov space, and the estimate.

    Blocks are rows here, because products with them are faster than with columns.
    """
    side, width = tall.shape[1], k + _SPARE
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(side, width, generator=generator, dtype=tall.dtype).to(tall.device)
    energy = max(energy_of(tall), np.finfo(np.float64).tiny)
    block = torch.linalg.qr(start).Q.mT
    basis = block[:0]
    small = block.new_zeros((max_blocks * width, max_blocks * width), dtype=torch.float64)
    while True:
        basis = torch.cat([basis, block])
        size = len(basis)
        image = _times_gram(block, tall)
        inside = image @ basis.mT
        small[size - width : size, :size] = inside  # the lower triangle is all that is read
        remainder, factor = torch.linalg.qr((image - inside @ basis).mT)
        values, vectors = torch.linalg.eigh(small[:size, :size])
        values, vectors = values.flip(0), vectors.flip(1)[:, :k].to(basis.dtype)
        # The images of all other blocks lie in the space, so R is the rest of the last image.
        missing = _estimate(values, factor @ vectors[-width:], k) / energy
        is_settled = missing <= tolerance and size > width  # at least two blocks
        if is_settled or size == len(small):
            return basis.mT @ vectors, missing
        # Once more: orthogonal to all blocks up to rounding.
        block = torch.linalg.qr(remainder - basis.mT @ (basis @ remainder)).Q.mT


def _times_gram(block: torch.Tensor, tall: torch.Tensor) -> torch.Tensor:
    """X WᵀW, in blocks of rows of W: each is read from memory once."""
    product = torch.zeros_like(block)
    for rows in tall.split(_ROWS):
        product.addmm_(block @ rows.mT, rows)
    return product


def _estimate(values: torch.Tensor, residual: torch.Tensor, k: int) -> float:
    """The estimate of the module's docstring; the values are all Ritz values, largest first."""
    ritz = values.clamp(min=0).cpu().numpy()
    square = float(residual.double().square().sum())
    if not ritz[0]:
        return 0.0
    t = _GRID * ritz[0]
    excess = np.maximum(0, ritz[k] + t[:, None] - ritz[:k]).sum(axis=1)
    return float((square / t + excess).min())


def _from_gram(tall: torch.Tensor, k: int) -> tuple[torch.Tensor, float]:
    """The leading eigenvectors of the Gram matrix, and the effect of its rounding."""
    side = tall.shape[1]
    in_double = side <= DOUBLE_UP_TO or tall.dtype == torch.float64
    gram = double_gram(tall) if in_double else tall.mT @ tall
    energy = max(float(gram.diagonal().double().sum()), np.finfo(np.float64).tiny)
    values, vectors = torch.linalg.eigh(gram)
    right = vectors[:, -k:].flip(1)
    # The computed vectors are those of a matrix within ε √side λ₁ of A.
    rounding = torch.finfo(gram.dtype).eps
    largest = float(values[-1].clamp(min=0))
    missing = min(2 * k * rounding * np.sqrt(side) * largest / energy, 1.0)
    return right.to(tall.dtype), float(missing)


def energy_of(matrix: torch.Tensor) -> float:
    """Sum of the squares in double precision, without a copy of the matrix."""
    blocks = matrix.split(_ROWS)
    norms = [torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64) for rows in blocks]
    return float(torch.cat(norms).square().sum())
