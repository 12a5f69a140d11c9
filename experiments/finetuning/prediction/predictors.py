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
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from experiments.finetuning.methods import find_method
from experiments.finetuning.prediction.curvature import LayerStatistics, record_statistics
from experiments.finetuning.prediction.reach import Metric, Reach, captured, reach
from experiments.finetuning.protocol import Configuration, variant_of
from experiments.finetuning.tasks.prepared import opened
from experiments.finetuning.training import Group
from loca_theory.sweeps import generator
from loca_theory.sweeps.store import Point

# The packages whose code computes the predictors, besides those of a fine-tune.
_PACKAGES = (
    "experiments.finetuning.prediction",
    "experiments.finetuning.statistics",
    "loca_theory.expressivity",
    "loca_theory.increments",
)
# Gradients and curvature are means over this many of the first batches.
_BATCHES = 8
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
    """Compute every predictor of one adapter that needs no run of its own."""
    # λ is the mean eigenvalue of F over all layers.
    traces = sum(float(one.outputs.trace() * one.inputs.trace()) for one in layers.values())
    damping = traces / sum(one.weight.numel() for one in layers.values())
    parts: list[list[float]] = []
    dimension = 0.0
    for (name, layer), one in zip(layers.items(), reaches, strict=True):
        increment, gradient = increments[name].double(), layer.gradient
        curvature = Metric(layer.outputs, layer.inputs)
        damped = Metric(layer.outputs, layer.inputs, damping)
        start = one.tangent(gradient, damped)
        factor = damped.factor(start)
        # n − λ tr (F + λ)⁻¹, where F is the curvature on the n first steps.
        dimension += len(factor) - damping * float(torch.cholesky_inverse(factor).trace())
        parts.append([
            one.retained(increment, None), float(increment.square().sum()),
            one.retained(increment, curvature), curvature.energy(increment),
            captured(gradient, one.tangent(gradient, None)), float(gradient.square().sum()),
            captured(gradient, start, factor), damped.dual_energy(gradient),
        ])  # fmt: skip
    sums = [sum(column) for column in zip(*parts, strict=True)]
    found = [kept / total for kept, total in zip(sums[::2], sums[1::2], strict=True)]
    return dict(zip(TITLES, [*found, dimension], strict=False))  # not the losses


def forecast(full: Point, seed: int, wanted: Sequence[Configuration]) -> Point:
    """Define the computation of predictors, from a point of full fine-tunes on the task."""
    adapters = [[one.method, one.r, variant_of(one.method)] for one in wanted]
    parameters = {**full.parameters, "seeds": [seed], "tunes": True, "adapters": adapters}
    packages = (*full.packages, *_PACKAGES)
    return replace(full, experiment="prediction", parameters=parameters, packages=packages)


def compute(point: Point, folder: Path) -> dict[str, Any]:
    """Train a full fine-tune, and compute the predictors of adapters from it and from its start."""
    p = dict(point.parameters)
    (seed,) = p["seeds"]
    with opened(p, folder) as (prepared, splits, device):
        group = Group(p, prepared, splits, device)
        run, train = group.runs[0], splits["train"]
        batches = [
            {name: values[which] for name, values in train.items()}
            for which in islice(run.batches(len(train["labels"])), _BATCHES)
        ]
        layers = record_statistics(run.core, p["settings"]["targets"], batches)
        (result,) = group.train()
        if result["diverged"]:
            return {"rows": []}
        increments = {f"{name}.weight": w.cpu() for name, w in run.increments().items()}
    rows = []
    for name, r, _ in p["adapters"]:
        rng = generator(seed, "prediction", name, r)
        reaches = [reach(find_method(name), one.weight, r, rng) for one in layers.values()]
        found = predictors(layers, increments, reaches)
        rows.append({"task": p["task"], "method": name, "r": r, "seed": seed, **found})
    return {"rows": rows}
