"""Split of a total among the layers of an analysis: LoRA, LoCA, and the largest entries."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from loca_theory.checkpoints.pairs.linear_layers import Layer
from loca_theory.checkpoints.rows import AllocatedMatrix, Matrix
from loca_theory.checkpoints.sizing.adapter_size import TotalSize
from loca_theory.checkpoints.sizing.profiles import EnergyProfile, unit_counts
from loca_theory.checkpoints.sizing.sizes import AllocatedSize, Allocation, allocate
from loca_theory.checkpoints.statistics.figure_data import MatrixAnalysis
from loca_theory.checkpoints.summary import energy_weights
from loca_theory.errors import InvalidArgumentError


def check_total(layers: Iterable[Layer], total: TotalSize) -> None:
    """Refuse a total that pays for nothing, or that no layer can share, before the analysis."""
    if not any(layer.adapters for layer in layers):
        msg = "allocate splits a total among layers that can have an adapter, and there is none to "
        raise InvalidArgumentError(msg + 'analyse; leave allocate="..." out')
    if total.amount < (least := sum(total.costs("loca", (1, 1)))):
        msg = f"allocate={total} is too small: one coefficient costs {least}; pass more"
        raise InvalidArgumentError(msg)


_Layers = Sequence[tuple[Matrix, EnergyProfile]]


def allocate_budgets(
    analyses: Sequence[MatrixAnalysis], total: TotalSize
) -> Iterator[AllocatedMatrix]:
    """Split a total among the layers of each fine-tune, by each method that it pays for."""
    for tuned in dict.fromkeys(one.matrix.tuned for one in analyses):
        mine = [one for one in analyses if one.matrix.tuned == tuned and one.matrix.adapters]
        # Relative energies, because the energies themselves may not fit float64.
        weights = energy_weights([one.matrix for one in mine])
        for letter, method in (("R", "lora"), ("D", "loca"), ("S", "entries")):
            layers = [
                (one.matrix, _profile(one, method, weight / sum(weights), total))
                for one, weight in zip(mine, weights, strict=True)
                if method in one.matrix.adapters
            ]
            # The total may not pay for one rank of the smallest matrix, or for as many entries.
            if layers and total.amount >= min(one.cost_of(1) for _, one in layers):
                yield from _split(letter, layers, total.amount)


def _profile(one: MatrixAnalysis, method: str, energy: float, total: TotalSize) -> EnergyProfile:
    """What a matrix of this energy retains by the size of its adapter."""
    units = unit_counts(math.prod(one.matrix.shape))
    retained = np.array(one.components if method == "loca" else one.largest_entries)
    if method == "lora":
        retained = np.cumsum(np.sort(one.eigenvalues)[::-1])
        units = np.arange(1, len(retained) + 1)
    costs = total.costs(method, one.matrix.shape)
    return EnergyProfile(one.matrix.name, method, units, retained * energy / retained[-1], *costs)


def _split(letter: str, layers: _Layers, total: int) -> Iterator[AllocatedMatrix]:
    """The sizes that retain most; none if the total does not pay for an r of SHiRA."""
    profiles = [[profile] for _, profile in layers]
    found = _same_r(layers, total) if letter == "S" else allocate(profiles, total)
    for (matrix, profile), one in zip(layers, found.matrices, strict=False):
        # Numbers of a unit, and what of the profile a unit is: r of SHiRA are r (p + q) entries.
        numbers = 1 if letter == "D" else sum(matrix.shape)
        entries = numbers if letter == "S" else 1
        yield AllocatedMatrix(
            *(matrix.name, matrix.tuned, letter, one.size, one.uniform_size, one.size * numbers),
            energy=profile.energy,
            retained=profile.fraction(one.size * entries),
            uniform_retained=profile.fraction(one.uniform_size * entries),
            equal_retained=found.equal_retained,
            bound=found.bound,
        )


def _same_r(layers: _Layers, total: int) -> Allocation:
    """The r of SHiRA by which all layers but those that are too small retain most."""
    largest = [math.prod(matrix.shape) // sum(matrix.shape) for matrix, _ in layers]
    ranks = np.arange(1, max(largest) + 1)
    cost, retained = np.zeros(len(ranks)), np.zeros(len(ranks))
    for (matrix, profile), most in zip(layers, largest, strict=True):
        cost += (ranks <= most) * ranks * profile.cost
        retained += (ranks <= most) * profile.at(ranks * sum(matrix.shape))
    retained[cost > total] = -1.0
    best = int(retained.argmax())
    if retained[best] < 0:
        return Allocation((), 0.0, 0.0)
    energy = sum(profile.energy for _, profile in layers) or 1.0
    sizes = [best + 1 if best < most else 0 for most in largest]
    rows = zip([profile for _, profile in layers], sizes, sizes, strict=True)
    fraction = float(retained[best]) / energy
    return Allocation(tuple(AllocatedSize(*row) for row in rows), fraction, fraction)
