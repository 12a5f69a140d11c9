r"""Numbers that might predict which adapter wins, computed before any adapter is trained.

With the increments ΔW of a full fine-tune, the gradients g = ∂L/∂W at the start and the curvature
F = A ⊗ G of each target layer (:mod:`~experiments.finetuning.prediction.curvature`), summed over
the layers:

- ``retained_energy``: the part of ‖ΔW‖² that the adapter's best approximation retains;
- ``weighted_energy``: the same in the metric F, 1 − tr((ΔW−Ŵ)ᵀ G (ΔW−Ŵ) A) / tr(ΔWᵀ G ΔW A);
- ``gradient_energy``: ‖P g‖²/‖g‖² with the projector P on the adapter's first steps;
- ``predicted_decrease``: the decrease of the loss that the quadratic model with F + λ predicts for
  the adapter's first steps, as a part of that for all matrices;
- ``effective_dimension``: tr F (F + λ)⁻¹ on the adapter's first steps.

λ is the mean eigenvalue of F over all target layers. For adapters that learn their locations, both
reconstruction and first steps choose them: this is the most that learning them can reach. ΔW comes
from a run that costs more than the adapter's own; it explains rather than predicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from experiments.finetuning.prediction.curvature import LayerStatistics
from experiments.finetuning.prediction.metric import (
    Metric,
    captured,
    effective_dimension,
    projected,
)
from experiments.finetuning.prediction.reach import Reach

TITLES = {
    "retained_energy": "retained energy of the full ΔW",
    "weighted_energy": "the same, weighted by the curvature",
    "gradient_energy": "gradient energy in the first steps' space",
    "predicted_decrease": "decrease that the curvature predicts",
    "effective_dimension": "effective dimension",
    # Measured in the adapter's own run.
    "loss_10": "training loss, steps 1 to 10",
    "loss_25": "training loss, steps 16 to 25",
}
"""Titles of the predictors by name, in the order of tables and figures."""

SIGNS = dict.fromkeys(TITLES, 1) | {"loss_10": -1, "loss_25": -1}
"""1 if the larger number predicts the better adapter, −1 if the smaller one does."""


def predictors(
    layers: Mapping[str, LayerStatistics],
    increments: Mapping[str, torch.Tensor],
    reaches: Sequence[Reach],
) -> dict[str, float]:
    """Compute every predictor of one adapter that needs no run of its own.

    Statistics and increments of a full fine-tune are by the name of the weight; what the adapter
    can reach, one per layer in the same order.
    """
    sums = dict.fromkeys(("dimension", "retained", "weighted", "gradient", "decrease"), 0.0)
    totals = dict.fromkeys(sums, 0.0)
    damping = common_damping(list(layers.values()))
    for (name, layer), one in zip(layers.items(), reaches, strict=True):
        increment, gradient = increments[name].double(), layer.gradient
        curvature = Metric(layer.outputs, layer.inputs)
        damped = Metric(layer.outputs, layer.inputs, damping)
        sums["retained"] += one.retained(increment, None)
        totals["retained"] += float(increment.square().sum())
        sums["weighted"] += one.retained(increment, curvature)
        totals["weighted"] += curvature.energy(increment)
        sums["gradient"] += projected(gradient, one.tangent(gradient, None))
        totals["gradient"] += float(gradient.square().sum())
        start = one.tangent(gradient, damped)
        factor = damped.factor(start)
        sums["decrease"] += captured(gradient, start, factor)
        totals["decrease"] += damped.dual_energy(gradient)
        sums["dimension"] += effective_dimension(factor, damping)
    return {
        "retained_energy": sums["retained"] / totals["retained"],
        "weighted_energy": sums["weighted"] / totals["weighted"],
        "gradient_energy": sums["gradient"] / totals["gradient"],
        "predicted_decrease": sums["decrease"] / totals["decrease"],
        "effective_dimension": sums["dimension"],
    }


def common_damping(layers: Sequence[LayerStatistics]) -> float:
    """λ: the mean eigenvalue of F over all layers."""
    traces = sum(float(one.outputs.trace() * one.inputs.trace()) for one in layers)
    return traces / sum(one.weight.numel() for one in layers)
