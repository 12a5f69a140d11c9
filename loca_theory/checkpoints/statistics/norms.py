"""Sizes of weights and increments as vectors, and the angle between them."""

from __future__ import annotations

import math

import torch

_ROWS_AT_ONCE = 256


def norm_and_cosine(
    weights: torch.Tensor, change: torch.Tensor
) -> tuple[float | None, float | None]:
    """Frobenius norm of W₀, and the cosine between W₀ and W′ = W₀ + ΔW; None if undefined."""
    largest = _largest(weights)
    if not math.isfinite(largest) or not largest:
        return largest if largest == 0 else None, None
    scale = max(largest, _largest(change))
    squares, others, products = [], [], []
    # In pieces, so that no temporary tensor is as large as W₀.
    pieces = zip(weights.split(_ROWS_AT_ONCE), change.split(_ROWS_AT_ONCE), strict=True)
    for rows, changes in pieces:
        after = changes.double() / scale
        after += rows.double() / scale
        before = rows.double() / largest
        squares.append(float(before.square().sum()))
        others.append(float(after.square().sum()))
        products.append(float((before * after).sum()))
    norm, other = math.sqrt(math.fsum(squares)), math.sqrt(math.fsum(others))
    cosine = min(max(math.fsum(products) / (norm * other), -1.0), 1.0) if other else None
    return largest * norm, cosine


def _largest(matrix: torch.Tensor) -> float:
    """Largest magnitude of the entries; not finite if one of them is not."""
    return max(abs(float(end)) for end in matrix.aminmax())


def relative_norm(energy: float, exponent: int, base_norm: float | None) -> float | None:
    """‖ΔW‖/‖W₀‖ from the energy of ΔW/2ᵉ; None if there is no quotient."""
    return math.ldexp(math.sqrt(energy) / base_norm, exponent) if base_norm else None
