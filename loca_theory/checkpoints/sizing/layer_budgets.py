"""Split of a total among the matrices of an analysis, for LoRA and for LoCA."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from loca_theory.checkpoints.pairs.model_pair import ModelLayers
from loca_theory.checkpoints.rows import AllocatedMatrix
from loca_theory.checkpoints.sizing.adapter_size import TotalSize
from loca_theory.checkpoints.sizing.offers import EnergyProfile
from loca_theory.checkpoints.sizing.sizes import allocate
from loca_theory.checkpoints.statistics.energy_profile import component_counts
from loca_theory.checkpoints.statistics.matrix import MatrixAnalysis
from loca_theory.checkpoints.summary import energy_weights
from loca_theory.errors import InvalidArgumentError


def linear_layers(models: Mapping[str, ModelLayers], total: TotalSize) -> set[tuple[str, str]]:
    """Names and fine-tunes of the matrices that share the total: weights of linear layers.

    Checked before anything is computed.
    """
    found = {
        (name, tuned)
        for tuned, model in models.items()
        for name, layer in model.layers.items()
        if not layer.obstacles
    }
    if not found:
        msg = "allocate splits a total among linear layers, and there is none to analyse; leave "
        raise InvalidArgumentError(msg + 'allocate="..." out')
    if total.amount < (least := sum(total.costs("loca", (1, 1)))):
        msg = f"allocate={total} is too small: one coefficient costs {least}; pass more"
        raise InvalidArgumentError(msg)
    return found


def allocate_budgets(
    analyses: Sequence[MatrixAnalysis], total: TotalSize
) -> Iterator[AllocatedMatrix]:
    """Split a total among the matrices of each fine-tune, by each method that it pays for."""
    for tuned in dict.fromkeys(one.matrix.tuned for one in analyses):
        mine = [one for one in analyses if one.matrix.tuned == tuned]
        # Relative energies, because the energies themselves may not fit float64.
        weights = energy_weights([one.matrix for one in mine])
        weights = [weight / sum(weights) for weight in weights]
        for method, adapter in (("R", "lora"), ("D", "loca")):
            profiles = []
            for one, weight in zip(mine, weights, strict=True):
                retained = np.array(one.components) * weight
                units = component_counts(math.prod(one.matrix.shape))
                if method == "R":
                    retained = np.cumsum(np.sort(one.eigenvalues)[::-1])
                    retained *= weight / retained[-1]
                    units = np.arange(1, len(retained) + 1)
                costs = total.costs(adapter, one.matrix.shape)
                profiles.append(EnergyProfile(one.matrix.name, adapter, units, retained, *costs))
            if total.amount < min(one.cost_of(1) for one in profiles):
                continue  # not even one rank of the smallest matrix
            found = allocate([[one] for one in profiles], total.amount)
            for one, size in zip(mine, found.matrices, strict=True):
                profile = size.profile
                yield AllocatedMatrix(
                    name=profile.name,
                    tuned=tuned,
                    method=method,
                    size=size.size,
                    uniform=size.uniform_size,
                    numbers=size.size * (sum(one.matrix.shape) if method == "R" else 1),
                    energy=profile.energy,
                    retained=profile.fraction(size.size),
                    uniform_retained=profile.fraction(size.uniform_size),
                    equal_retained=found.equal_retained,
                    bound=found.bound,
                )
