"""Split of a total among the layers of an analysis: LoRA, LoCA, and the largest entries."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from loca_theory._lookup import member
from loca_theory.checkpoints.pairs.linear_layers import Layer
from loca_theory.checkpoints.rows import AllocatedMatrix
from loca_theory.checkpoints.sizing.adapter_size import TotalSize
from loca_theory.checkpoints.sizing.profiles import EnergyProfile, profile_of
from loca_theory.checkpoints.sizing.sizes import AllocatedSize, Allocation, allocate
from loca_theory.checkpoints.statistics.figure_data import MatrixAnalysis
from loca_theory.checkpoints.summary import energy_weights
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


def allocate_budgets(
    analyses: Sequence[MatrixAnalysis], total: TotalSize
) -> Iterator[AllocatedMatrix]:
    """Split a total among the layers of each fine-tune, by each method that it pays for."""
    for tuned in dict.fromkeys(one.matrix.tuned for one in analyses):
        mine = [one for one in analyses if one.matrix.tuned == tuned and one.matrix.adapters]
        # Relative energies, because the energies themselves may not fit float64.
        weights = energy_weights([one.matrix for one in mine])
        for letter, method in (("R", "lora"), ("D", "loca"), ("S", "entries")):
            profiles = [
                _profile(one, method, weight / sum(weights), total)
                for one, weight in zip(mine, weights, strict=True)
                if method in one.matrix.adapters
            ]
            # The total may not pay for one rank of the smallest matrix, or for as many entries.
            if profiles and total.amount >= min(one.cost_of(1) for one in profiles):
                yield from _split(letter, profiles, total.amount)


def _profile(one: MatrixAnalysis, method: str, energy: float, total: TotalSize) -> EnergyProfile:
    """What a matrix of this energy retains by the size of its adapter."""
    retained = np.array(one.components if method == "loca" else one.largest_entries)
    if method == "lora":
        retained = np.cumsum(np.sort(one.eigenvalues)[::-1])
    shape, retained = one.matrix.shape, retained * energy / retained[-1]
    costs = total.costs(method, shape)
    return profile_of(one.matrix, method, retained, math.prod(shape), costs)


def _split(letter: str, profiles: Sequence[EnergyProfile], total: int) -> Iterator[AllocatedMatrix]:
    """The sizes that retain most; none if the total does not pay for an r of SHiRA."""
    alone = [[one] for one in profiles]
    found = _same_r(profiles, total) if letter == "S" else allocate(alone, total)
    for one in found.matrices:
        profile, matrix = one.profile, one.profile.of
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
