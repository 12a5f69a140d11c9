"""Split of a total among the layers of an analysis, as an extraction splits it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from loca_theory._lookup import member
from loca_theory.checkpoints.change.task import Task
from loca_theory.checkpoints.form.cells import energy_profiles
from loca_theory.checkpoints.form.forms import LOCA, SPLIT
from loca_theory.checkpoints.form.layer import Layer
from loca_theory.checkpoints.measure.rows import AllocatedMatrix
from loca_theory.checkpoints.sizes.size import TotalSize
from loca_theory.checkpoints.sizes.split import allocate
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import Accounting


def accounting_of(accounting: Accounting | str | None, total: TotalSize | None) -> Accounting:
    """The accounting of a whole analysis: that of a total of trainable numbers, if one is split."""
    chosen = None if accounting is None else member(Accounting, "accounting", accounting)
    if total is None or total.in_bytes:
        return chosen or Accounting.PAPER
    if chosen not in (None, Accounting.TRAINABLE):
        raise InvalidArgumentError(
            f'allocate splits {total}, which accounting="{chosen}" would count otherwise; leave '
            'accounting="..." out, or pass a total in bytes'
        )
    return Accounting.TRAINABLE


def check_total(layers: Iterable[Layer], total: TotalSize) -> None:
    """Refuse a total that pays for nothing, or that no layer can share, before the analysis."""
    adapted = [layer for layer in layers if any(not form.obstacle(layer) for form in SPLIT)]
    if not adapted:
        raise InvalidArgumentError(
            "allocate splits a total among layers that can have an adapter, and there is none to "
            'analyse; leave allocate="..." out'
        )
    if total.size < (cost := sum(LOCA.costs(adapted[0], total.number_bytes("float32")))):
        raise InvalidArgumentError(
            f"allocate={total} is too small: one coefficient costs {cost}; pass more"
        )


def allocated_matrices(
    task: Task, label: str, layers: Iterable[Layer], total: TotalSize
) -> Iterator[AllocatedMatrix]:
    """Split a total among the layers of a fine-tune, by each form that it pays for."""
    number_bytes = total.number_bytes("float32")
    candidates = energy_profiles(task, label, layers, SPLIT, number_bytes=number_bytes)
    energy = sum(profiles[0].energy for profiles in candidates)
    for form in SPLIT:
        alone = [[p] for profiles in candidates for p in profiles if p.form == form.key]
        # The total may not pay for one rank of the smallest matrix.
        if not alone or total.size < min(profile.cost_of(1) for (profile,) in alone):
            continue
        split = allocate(alone, total.size)
        for allocated in split.matrices:
            profile, layer = allocated.profile, allocated.profile.layer
            yield AllocatedMatrix(
                name=layer.name,
                tuned=label,
                method=form.method,
                size=allocated.size,
                uniform=allocated.uniform_size,
                numbers=form.numbers(layer, allocated.size),
                energy=profile.energy / energy,
                retained=profile.fraction(allocated.size),
                uniform_retained=profile.fraction(allocated.uniform_size),
                equal_retained=split.equal_retained,
                bound=split.bound,
            )
