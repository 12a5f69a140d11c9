"""Best adapter of one increment: largest DCT coefficients or entries, truncated decomposition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from loca_theory.increments.truncated_svd import TruncatedSVD, energy_of, truncated_svd
from loca_theory.transforms import dct2
from loca_theory.transforms.inputs import times_power_of_two

_ROWS = 256


@dataclass(frozen=True)
class BestAdapter:
    """Parameters of the best adapter of one increment.

    Attributes:
        tensors: The parameters, on the CPU, by the last parts of their names in PEFT.
        error: Relative squared error with the parameters as they are stored.
        gap: Bound of how much smaller the error of any adapter of this size is, apart from the
            rounding of the stored numbers.
        energy: Energy of the increment, in the units in which it was given.
    """

    tensors: dict[str, torch.Tensor]
    error: float
    gap: float
    energy: float


def best_components(
    increment: torch.Tensor, count: int, exponent: int, dtype: torch.dtype
) -> BestAdapter:
    """Largest DCT coefficients of 2ᵉ times a matrix, and their locations.

    Args:
        increment: The matrix, whose squares fit its type, shape (p, q).
        count: Number of coefficients.
        exponent: e.
        dtype: Type of the stored coefficients.
    """
    flat, stored, retained = _largest(dct2(increment).flatten(), count, exponent, dtype)
    q = increment.shape[1]
    tensors = {
        "coefficients": stored,
        "indices": torch.stack([flat // q, flat % q], dim=1),
        "shape": torch.tensor(increment.shape),
    }
    return _of_largest(tensors, retained, increment)


def best_entries(increment: torch.Tensor, r: int, exponent: int, dtype: torch.dtype) -> BestAdapter:
    """Largest entries of 2ᵉ times a matrix, r (p + q) as SHiRA has, and their positions.

    Args:
        increment: The matrix, whose squares fit its type, shape (p, q).
        r: What sets their number.
        exponent: e.
        dtype: Type of the stored entries.
    """
    count = r * sum(increment.shape)
    flat, stored, retained = _largest(increment.flatten(), count, exponent, dtype)
    q = increment.shape[1]
    indices = torch.stack([flat // q, flat % q]).int()
    tensors = {"shira_weight": stored, "shira_indices": indices}
    return _of_largest(tensors, retained, increment)


def _largest(
    values: torch.Tensor, count: int, exponent: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Positions of the largest numbers, 2ᵉ times these as they are stored, and their energy."""
    flat = values.abs().topk(count, sorted=False).indices.sort().values
    best = values[flat].double()
    stored = times_power_of_two(best, exponent).to(dtype)
    # Rounding loses energy as well, much of it near the smallest numbers of a type.
    lost = best - times_power_of_two(stored.double(), -exponent)
    return flat.cpu(), stored.cpu(), float(best.square().sum() - lost.square().sum())


def _of_largest(
    tensors: dict[str, torch.Tensor], retained: float, increment: torch.Tensor
) -> BestAdapter:
    energy = energy_of(increment)
    return BestAdapter(tensors, _fraction(1 - retained / energy), 0.0, energy)


def best_factors(
    increment: torch.Tensor, r: int, exponent: int, dtype: torch.dtype, scale: float = 1.0
) -> BestAdapter:
    """Truncated singular value decomposition of 2ᵉ times a matrix, split evenly between B and A.

    Args:
        increment: The matrix, whose squares fit its type, shape (p, q).
        r: Number of singular values.
        exponent: e.
        dtype: Type of the stored factors.
        scale: The number s by which their product is multiplied when they are loaded.
    """
    found = truncated_svd(increment, r)
    factors, a, b = _stored(found, r, exponent, dtype, scale)
    common = sum(
        float(((rows.double() @ a.mT) * factor).sum())
        for rows, factor in zip(increment.split(_ROWS), b.split(_ROWS), strict=True)
    )
    energy = energy_of(increment)
    return BestAdapter(factors, _error_of_factors(b, a, common, energy), found.missing, energy)


def _stored(
    svd: TruncatedSVD, r: int, exponent: int, dtype: torch.dtype, scale: float
) -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
    """The factors A and B of 2ᵉ times a matrix as they are stored, and sA and B as they are read.

    What is read has the units of the matrix.
    """
    half = exponent // 2
    root = (svd.s[:r].clamp(min=0) / scale).sqrt()
    a = times_power_of_two(root[:, None] * svd.vh[:r], half).to(dtype)
    b = times_power_of_two(svd.u[:, :r] * root, exponent - half).to(dtype)
    wide_a = scale * times_power_of_two(a.double(), -half)
    return _factors(a, b), wide_a, times_power_of_two(b.double(), half - exponent)


def joined(experts: Sequence[BestAdapter]) -> BestAdapter:
    """LoRA of several experts in one parameter, as PEFT stores it.

    A has the rows of all experts, one expert after the other; B has the first columns of all, then
    the second ones, and so on.
    """
    if len(experts) == 1:
        return experts[0]
    a = torch.cat([one.tensors["lora_A.weight"] for one in experts])
    b = torch.stack([one.tensors["lora_B.weight"] for one in experts], dim=2).flatten(1)
    energy = sum(one.energy for one in experts)
    error, gap = (
        sum(value * one.energy for value, one in zip(values, experts, strict=True)) / energy
        for values in ([one.error for one in experts], [one.gap for one in experts])
    )
    return BestAdapter(_factors(a, b), error, gap, energy)


def resized_factors(
    product: TruncatedSVD, r: int, dtype: torch.dtype, scale: float = 1.0
) -> BestAdapter:
    """The same for a matrix of small rank, of which all singular values and vectors are known."""
    factors, a, b = _stored(product, r, 0, dtype, scale)
    # ⟨WAᵀ, B⟩ for W = U diag(s) Vᵀ is ⟨BᵀU diag(s), AV⟩.
    common = float(((b.mT @ product.u * product.s) * (a @ product.vh.mT)).sum())
    energy = float(product.s.square().sum())
    return BestAdapter(factors, _error_of_factors(b, a, common, energy), 0.0, energy)


def _error_of_factors(b: torch.Tensor, a: torch.Tensor, common: float, energy: float) -> float:
    """‖W − BA‖² / ‖W‖² = 1 − (2⟨WAᵀ, B⟩ − ⟨BᵀB, AAᵀ⟩) / ‖W‖²."""
    product = float(((b.mT @ b) * (a @ a.mT)).sum())
    return _fraction(1 - (2 * common - product) / energy) if energy else 0.0


def _factors(a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"lora_A.weight": a.cpu().contiguous(), "lora_B.weight": b.cpu().contiguous()}


def _fraction(value: float) -> float:
    return min(max(value, 0.0), 1.0)
