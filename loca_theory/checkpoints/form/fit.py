"""Best adapter of one increment: largest DCT coefficients or entries, truncated decomposition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from loca_theory.increments.truncated_svd import TruncatedSVD, energy_of
from loca_theory.transforms import dct2
from loca_theory.transforms.inputs import times_power_of_two

_ROWS = 256


@dataclass(frozen=True)
class BestAdapter:
    """Parameters of the best adapter of one increment.

    Attributes:
        method: ``lora``, ``loca`` or ``entries``.
        count: The r of LoRA or SHiRA, or the number of LoCA's coefficients.
        tensors: The parameters, on the CPU, by the last parts of their names in PEFT.
        error: Relative squared error with the parameters as they are stored.
        gap: Bound of how much smaller the error of any adapter of this size is, apart from the
            rounding of the stored numbers.
        energy: Energy of the increment, in the units in which it was given.
    """

    method: str
    count: int
    tensors: dict[str, torch.Tensor]
    error: float
    gap: float
    energy: float


def best_coordinates(
    method: str, increment: torch.Tensor, count: int, exponent: int, dtype: torch.dtype
) -> BestAdapter:
    """Largest DCT coefficients (LoCA) or entries (SHiRA) of 2ᵉ times a matrix, and their locations.

    Args:
        method: ``loca`` or ``entries``.
        increment: The matrix, whose squares fit its type, shape (p, q).
        count: Number of LoCA's coefficients; of SHiRA the r that stands for r (p + q) entries.
        exponent: e.
        dtype: Type of the stored numbers.
    """
    is_loca, q = method == "loca", increment.shape[1]
    values = (dct2(increment) if is_loca else increment).flatten()
    numbers = count if is_loca else count * sum(increment.shape)
    flat = values.abs().topk(numbers, sorted=False).indices.sort().values
    best = values[flat].double()
    stored = times_power_of_two(best, exponent).to(dtype)
    # Rounding loses energy as well, much of it near the smallest numbers of a type.
    lost = best - times_power_of_two(stored.double(), -exponent)
    retained, energy = float(best.square().sum() - lost.square().sum()), energy_of(increment)
    stored, flat = stored.cpu(), flat.cpu()
    rows, columns = flat // q, flat % q
    if is_loca:
        tensors = {
            "loca_spectrum.coefficients": stored,
            "loca_spectrum.indices": torch.stack([rows, columns], dim=1),
            "loca_spectrum.shape": torch.tensor(increment.shape),
        }
    else:
        tensors = {"shira_weight": stored, "shira_indices": torch.stack([rows, columns]).int()}
    error = float(np.clip(1 - retained / energy, 0, 1))
    return BestAdapter(method, count, tensors, error, 0.0, energy)


def best_factors(
    svd: TruncatedSVD,
    r: int,
    exponent: int,
    dtype: torch.dtype,
    alpha: int,
    increment: torch.Tensor | None = None,
) -> BestAdapter:
    """LoRA of 2ᵉ times a matrix W by its decomposition, split evenly between B and A.

    Args:
        svd: The leading singular values and vectors of W.
        r: Number of singular values.
        exponent: e.
        dtype: Type of the stored factors.
        alpha: α, or 0 for r; their product is multiplied by s = α/r when they are loaded.
        increment: W, whose squares fit its type; None if the decomposition is all of it.
    """
    scale, half = (alpha or r) / r, exponent // 2
    root = (svd.s[:r].clamp(min=0) / scale).sqrt()
    a = times_power_of_two(root[:, None] * svd.vh[:r], half).to(dtype)
    b = times_power_of_two(svd.u[:, :r] * root, exponent - half).to(dtype)
    tensors = _factors(a, b)
    # sA and B as they are read, in the units of W.
    a = scale * times_power_of_two(a.double(), -half)
    b = times_power_of_two(b.double(), half - exponent)
    if increment is None:
        # ⟨WAᵀ, B⟩ for W = U diag(s) Vᵀ is ⟨BᵀU diag(s), AV⟩.
        common = float(((b.mT @ svd.u * svd.s) * (a @ svd.vh.mT)).sum())
        energy = float(svd.s.square().sum())
    else:
        common = sum(
            float(((rows.double() @ a.mT) * factor).sum())
            for rows, factor in zip(increment.split(_ROWS), b.split(_ROWS), strict=True)
        )
        energy = energy_of(increment)
    # ‖W − BA‖² / ‖W‖² = 1 − (2⟨WAᵀ, B⟩ − ⟨BᵀB, AAᵀ⟩) / ‖W‖².
    product = float(((b.mT @ b) * (a @ a.mT)).sum())
    error = float(np.clip(1 - (2 * common - product) / energy, 0, 1)) if energy else 0.0
    return BestAdapter("lora", r, tensors, error, svd.missing, energy)


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
    return BestAdapter("lora", experts[0].count, _factors(a, b), error, gap, energy)


def _factors(a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"lora_A.weight": a.cpu().contiguous(), "lora_B.weight": b.cpu().contiguous()}
