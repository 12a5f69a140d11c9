"""Split of a total among the matrices of an analysis, for LoRA and for LoCA."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from loca_theory.checkpoints.allocation import allocate
from loca_theory.checkpoints.energy_profile import EnergyProfile, component_counts
from loca_theory.checkpoints.matrix import MatrixAnalysis
from loca_theory.checkpoints.model_pair import ModelLayers
from loca_theory.checkpoints.rows import AllocatedMatrix
from loca_theory.checkpoints.summary import energy_weights
from loca_theory.checkpoints.total_size import TotalSize
from loca_theory.errors import InvalidArgumentError


def linear_layers(models: Mapping[str, ModelLayers], total: TotalSize) -> set[tuple[str, str]]:
    """Names and fine-tunes of the matrices that share the total: weights of linear layers.

    Checked before anything is computed.

    Raises:
        InvalidArgumentError: there is none, or the total does not pay for one coefficient.
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
    if total.amount < (least := total.cost_of_component()):
        msg = f"allocate={total} is too small: one coefficient costs {least}; pass more"
        raise InvalidArgumentError(msg)
    return found


def allocate_budgets(
    analyses: Sequence[MatrixAnalysis], total: TotalSize
) -> Iterator[AllocatedMatrix]:
    """Split a total among the matrices of each fine-tune.

    Args:
        analyses: The analysed linear layers, with the profiles of their DCT coefficients.
        total: The total of one fine-tune.

    Yields:
        The sizes, matrix by matrix; none for a method of which the total does not pay for a unit.
    """
    for tuned in dict.fromkeys(one.matrix.tuned for one in analyses):
        mine = [one for one in analyses if one.matrix.tuned == tuned]
        # Relative energies, because the energies themselves may not fit float64.
        weights = energy_weights([one.matrix for one in mine])
        weights = [weight / sum(weights) for weight in weights]
        for method in ("R", "D"):
            profiles = [
                _profile(one, weight, method, total)
                for one, weight in zip(mine, weights, strict=True)
            ]
            if total.amount < min(one.cost for one in profiles):
                continue  # not even one rank of the smallest matrix
            found = allocate(profiles, total.amount)
            for one, size in zip(mine, found.matrices, strict=True):
                unit = sum(one.matrix.shape) if method == "R" else 1
                yield AllocatedMatrix(
                    name=one.matrix.name,
                    tuned=tuned,
                    method=method,
                    size=size.size,
                    uniform=size.uniform_size,
                    numbers=size.size * unit,
                    energy=size.energy,
                    retained=min(size.retained / size.energy, 1.0),
                    uniform_retained=min(size.uniform_retained / size.energy, 1.0),
                    bound=min(found.retained + found.gap, 1.0),
                )


def _profile(found: MatrixAnalysis, energy: float, method: str, total: TotalSize) -> EnergyProfile:
    matrix = found.matrix
    if method == "R":
        values = np.array(found.eigenvalues)
        values *= energy / values.sum()
        return EnergyProfile.of_ranks(matrix.name, values, matrix.shape, total.cost_of_number())
    p, q = matrix.shape
    retained = energy * np.array(found.components)
    cost = total.cost_of_component()
    return EnergyProfile(matrix.name, cost, component_counts(p * q), retained, energy)
