"""LoRA: the truncated singular value decomposition of ΔW, split evenly between B and A."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from loca_theory.checkpoints.form.change import Change
from loca_theory.checkpoints.form.form import Fit, Form
from loca_theory.checkpoints.form.inside import PairCells
from loca_theory.checkpoints.form.layer import Layer
from loca_theory.checkpoints.source.checkpoint import Reason
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import Budget
from loca_theory.increments.eigenvalues import squared_singular_values
from loca_theory.increments.truncated_svd import (
    TruncatedSVD,
    energy_of,
    svd_of_product,
    truncated_svd,
)
from loca_theory.rounding import LowRankFamily, choose
from loca_theory.transforms.inputs import times_power_of_two

_A, _B = "lora_A.weight", "lora_B.weight"
_ROWS = 256
# α of a proposed configuration, in units of the rank.
_ALPHA = 2


class LoRA(Form):
    """LoRA; its size is the rank."""

    key = "lora"
    title = "LoRA"
    method = "LoRA"
    words = "LoRA"
    config_class = "peft", "LoraConfig"
    pattern_setting = "rank_pattern"
    is_served = True
    constants = {"lora_dropout": 0.0, "use_rslora": False, "bias": "none"}  # noqa: RUF012

    def obstacle(self, layer: Layer, rank: int = 0) -> Reason | None:  # noqa: ARG002
        """A name that PEFT takes for that of experts is one."""
        is_taken = Reason("PEFT takes a LoRA of this name for one of experts")
        return layer.obstacle or (is_taken if layer.is_taken else None)

    def check_rank(self, rank: int, layers: Sequence[Layer]) -> None:
        """Refuse a rank above the smaller side of every matrix."""
        if rank > (largest := max(map(self.largest, layers))):
            raise InvalidArgumentError(
                f"rank={rank} is above the smaller side of every matrix; pass at most {largest}"
            )

    def largest(self, layer: Layer) -> int:
        """The smaller side."""
        return min(layer.shape)

    def size_of_budget(self, budget: Budget) -> int:
        """The rank that sets the budget."""
        return budget.r

    def proposed_settings(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """Each α is twice the rank."""
        r, ranks = self.settings(sizes).values()
        alphas = {module: _ALPHA * rank for module, rank in ranks.items()}
        alpha = _ALPHA * r
        return {"r": r, "lora_alpha": alpha, "rank_pattern": ranks, "alpha_pattern": alphas}

    def config(self, sizes: Mapping[str, int], usual: int, **common: Any) -> dict[str, Any]:
        """One α for all layers, which is also r, because not every engine reads alpha_pattern."""
        settings = self.settings(sizes, usual)
        alpha = {"lora_alpha": settings[self.size_setting]}
        return super().config(sizes, usual, **common) | settings | alpha

    def profile(self, change: Change) -> tuple[list[int], list[float]]:
        """The energy of the largest singular values, of all experts together."""
        if change.product is not None:
            energies = change.product.s.square().cumsum(0).numpy()
        else:
            _, exponent = change.increment
            squares = np.sum([squared_singular_values(matrix) for matrix in change.experts], axis=0)
            energies = np.ldexp(np.cumsum(squares[::-1]), 2 * exponent)
        return list(range(1, len(energies) + 1)), energies.tolist()

    def fit(self, change: Change, size: int, usual: int, dtype: torch.dtype) -> Fit:
        """The factors of each expert, scaled so that α is the usual rank."""
        if (svd := change.product) is not None:
            best = best_factors(svd, min(size, len(svd.s)), 0, dtype, usual)
        else:
            _, exponent = change.increment
            pairs = zip(change.experts, change.expert_cells, strict=True)
            best = _joined(
                [_of_matrix(matrix, cells, size, exponent, dtype, usual) for matrix, cells in pairs]
            )
        if kernel := change.layer.kernel:
            # Of a convolution: A has the kernel, and B one of side 1.
            a, b = best.tensors[_A], best.tensors[_B]
            best.tensors[_A] = a.reshape(len(a), -1, *kernel)
            best.tensors[_B] = b.reshape(*b.shape, *[1] * len(kernel))
        return best


def _of_matrix(
    matrix: torch.Tensor,
    cells: PairCells | None,
    r: int,
    exponent: int,
    dtype: torch.dtype,
    alpha: int,
) -> Fit:
    """The truncated decomposition of 2ᵉ times a matrix, or factors nearer to the rounding cells."""
    svd = truncated_svd(matrix, r)
    nearest = best = best_factors(svd, r, exponent, dtype, alpha, matrix)
    if cells is None or not nearest.energy:
        return nearest
    root = svd.s.sqrt()
    start = (svd.u * root).float(), (root[:, None] * svd.vh).float()
    choice = choose(LowRankFamily(r), matrix.float(), cells.cells, start)
    if choice.steps:
        moved = svd_of_product(*choice.point)
        best = best_factors(moved, len(moved.s), exponent, dtype, alpha or r, matrix)
        best = replace(best, size=r, tensors=padded(best.tensors, r))

    def distance(fit: Fit) -> float:
        b, a = _in_units(fit.tensors, (alpha or r) / r, exponent)
        b, a = b.to(matrix.device).float(), a.to(matrix.device).float()
        return cells.distance(energy_of(matrix), lambda rows: b[rows] @ a)

    return best.beside(nearest, cells.format, choice, distance)


def best_factors(
    svd: TruncatedSVD,
    r: int,
    exponent: int,
    dtype: torch.dtype,
    alpha: int,
    increment: torch.Tensor | None = None,
) -> Fit:
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
    b, a = _in_units({_A: a, _B: b}, scale, exponent)
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
    # Above 1 in rounding cells, where the change that was made is larger than what is stored.
    error = float(np.maximum(1 - (2 * common - product) / energy, 0)) if energy else 0.0
    return Fit(LoRA.key, r, tensors, error, svd.missing, math.ldexp(energy, 2 * exponent))


def _in_units(
    tensors: Mapping[str, torch.Tensor], scale: float, exponent: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """B and sA as they are read, in units of 2ᵉ."""
    half = exponent // 2
    a = scale * times_power_of_two(tensors[_A].double(), -half)
    return times_power_of_two(tensors[_B].double(), half - exponent), a


def _joined(experts: Sequence[Fit]) -> Fit:
    """LoRA of several experts in one parameter, as PEFT stores it.

    A has the rows of all experts, one expert after the other; B has the first columns of all, then
    the second ones, and so on.
    """
    if len(experts) == 1:
        return experts[0]
    a = torch.cat([expert.tensors[_A] for expert in experts])
    b = torch.stack([expert.tensors[_B] for expert in experts], dim=2).flatten(1)
    energy = sum(expert.energy for expert in experts)
    error = sum(expert.error * expert.energy for expert in experts) / energy
    gap = sum(expert.gap * expert.energy for expert in experts) / energy
    inside, before = None, 0.0
    for expert in experts:
        before += expert.energy
        if inside is None or expert.inside is None:
            inside = inside or expert.inside
        else:
            inside = inside.plus(expert.inside, expert.energy / before)
    return Fit(LoRA.key, experts[0].size, _factors(a, b), error, gap, energy, inside)


def padded(tensors: Mapping[str, torch.Tensor], rank: int) -> dict[str, torch.Tensor]:
    """LoRA's factors of a linear layer with zeros up to a rank."""
    missing = rank - len(tensors[_A])
    return {
        _A: torch.nn.functional.pad(tensors[_A], (0, 0, 0, missing)),
        _B: torch.nn.functional.pad(tensors[_B], (0, missing)),
    }


def _factors(a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
    return {_A: a.cpu().contiguous(), _B: b.cpu().contiguous()}
