"""Split of a total among the layers of an analysis: LoRA, LoCA, and the largest entries."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loca_theory._lookup import member
from loca_theory.checkpoints.form.layer import Layer
from loca_theory.checkpoints.form.profile import EnergyProfile, profile_of
from loca_theory.checkpoints.form.size import TotalSize
from loca_theory.checkpoints.form.split import AllocatedSize, Allocation, allocate
from loca_theory.checkpoints.rows import AllocatedMatrix
from loca_theory.checkpoints.statistics.figure_data import MatrixAnalysis
from loca_theory.checkpoints.summary import root_mean_square
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import Accounting


def accounting_of(accounting: Accounting | str | None, total: TotalSize | None) -> Accounting:
    """The accounting of a whole analysis: that of a total of trainable numbers, if one is split."""
    chosen = None if accounting is None else member(Accounting, "accounting", accounting)
    if total is None or total.in_bytes:
        return chosen or Accounting.PAPER
    if chosen not in (None, Accounting.TRAINABLE):
        msg = f'allocate splits {total}, which accounting="{chosen}" would count otherwise; leave '
        raise InvalidArgumentError(msg + 'accounting="..." out, or pass a total in bytes')
    return Accounting.TRAINABLE


def check_total(layers: Iterable[Layer], total: TotalSize) -> None:
    """Refuse a total that pays for nothing, or that no layer can share, before the analysis."""
    if not any(layer.adapters for layer in layers):
        msg = "allocate splits a total among layers that can have an adapter, and there is none to "
        raise InvalidArgumentError(msg + 'analyse; leave allocate="..." out')
    if total.amount < (least := sum(total.costs("loca", (1, 1)))):
        msg = f"allocate={total} is too small: one coefficient costs {least}; pass more"
        raise InvalidArgumentError(msg)


@dataclass(frozen=True)
class LayerEnergies:
    """What one layer of a fine-tune retains by the size of its adapter.

    Attributes:
        name: Name of its weight.
        shape: Rows of LoRA's B and columns of its A; of the experts in one parameter, of all.
        energy: Energy of its increment, in units that all layers share.
        entries: Number of its weights.
        retained: What each method retains, size by size as a profile has them, in any unit.
    """

    name: str
    shape: tuple[int, int]
    energy: float
    entries: int
    retained: Mapping[str, Sequence[float]]


def layer_energies(
    analyses: Sequence[MatrixAnalysis], others: Sequence[tuple[Layer, Mapping[str, Any]]]
) -> list[LayerEnergies]:
    """What the layers of one fine-tune retain: those that are analysed, and others."""
    largest = max(root_mean_square(analysis.matrix) for analysis in analyses)
    layers = []
    for analysis in analyses:
        matrix = analysis.matrix
        retained = {
            "lora": np.cumsum(np.sort(analysis.eigenvalues)[::-1]),
            "loca": analysis.components,
            "entries": analysis.largest_entries,
        }
        size = math.prod(matrix.shape)
        energy = size * (root_mean_square(matrix) / largest) ** 2
        retained = {method: retained[method] for method in matrix.adapters}
        if retained:
            layers.append(LayerEnergies(matrix.name, matrix.shape, energy, size, retained))
    for layer, retained in others:
        size, (energy, *_) = math.prod(layer.stack), (by[-1] for by in retained.values())
        energy = size * (math.sqrt(energy / size) / largest) ** 2
        layers.append(LayerEnergies(layer.name, layer.sides, energy, size, retained))
    return layers


def allocate_budgets(
    tuned: str, layers: Sequence[LayerEnergies], total: TotalSize
) -> Iterator[AllocatedMatrix]:
    """Split a total among the layers of a fine-tune, by each method that it pays for."""
    whole = sum(layer.energy for layer in layers)
    for letter, method in (("R", "lora"), ("D", "loca"), ("S", "entries")):
        profiles = [
            _profile(layer, method, layer.energy / whole, total)
            for layer in layers
            if method in layer.retained
        ]
        # The total may not pay for one rank of the smallest matrix, or for as many entries.
        if profiles and total.amount >= min(profile.cost_of(1) for profile in profiles):
            yield from _split(tuned, letter, profiles, total.amount)


def _profile(layer: LayerEnergies, method: str, energy: float, total: TotalSize) -> EnergyProfile:
    """What a layer of this energy retains by the size of its adapter."""
    retained = np.array(layer.retained[method])
    retained = retained * energy / retained[-1]
    costs = total.costs(method, layer.shape)
    return profile_of(layer, method, retained, layer.entries, costs)


def _split(
    tuned: str, letter: str, profiles: Sequence[EnergyProfile], total: int
) -> Iterator[AllocatedMatrix]:
    """The sizes that retain most; none if the total does not pay for an r of SHiRA."""
    alone = [[profile] for profile in profiles]
    found = _same_r(profiles, total) if letter == "S" else allocate(alone, total)
    for allocated in found.matrices:
        profile, layer = allocated.profile, allocated.profile.of
        # Numbers of a unit, and what of the profile a unit is: r of SHiRA are r (p + q) entries.
        numbers = 1 if letter == "D" else sum(layer.shape)
        entries = numbers if letter == "S" else 1
        yield AllocatedMatrix(
            name=layer.name,
            tuned=tuned,
            method=letter,
            size=allocated.size,
            uniform=allocated.uniform_size,
            numbers=allocated.size * numbers,
            energy=profile.energy,
            retained=profile.fraction(allocated.size * entries),
            uniform_retained=profile.fraction(allocated.uniform_size * entries),
            equal_retained=found.equal_retained,
            bound=found.bound,
        )


def _same_r(profiles: Sequence[EnergyProfile], total: int) -> Allocation:
    """The r of SHiRA by which all layers but those that are too small retain most."""
    shapes = [one.of.shape for one in profiles]
    largest = [math.prod(shape) // sum(shape) for shape in shapes]
    ranks = np.arange(1, max(largest) + 1)
    cost, retained = np.zeros(len(ranks)), np.zeros(len(ranks))
    for one, shape, most in zip(profiles, shapes, largest, strict=True):
        cost += (ranks <= most) * ranks * one.cost
        retained += (ranks <= most) * one.at(ranks * sum(shape))
    retained[cost > total] = -1.0
    best = int(retained.argmax())
    if retained[best] < 0:
        return Allocation((), 0.0, 0.0)
    sizes = [best + 1 if best < most else 0 for most in largest]
    rows = tuple(map(AllocatedSize, profiles, sizes, sizes))
    fraction = float(retained[best]) / (sum(one.energy for one in profiles) or 1.0)
    return Allocation(rows, fraction, fraction)
