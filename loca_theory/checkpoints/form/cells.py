"""Computations of an extraction, one layer each, in this process or on workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch

from loca_theory.checkpoints.change.task import MatrixCell, Pairs, Task
from loca_theory.checkpoints.form.change import change_of, out_of_range
from loca_theory.checkpoints.form.form import Fit, Form
from loca_theory.checkpoints.form.forms import FORMS
from loca_theory.checkpoints.form.layer import Layer
from loca_theory.checkpoints.form.profile import EnergyProfile
from loca_theory.checkpoints.form.text import tensors_of, text_of
from loca_theory.checkpoints.source.checkpoint import Skipped


@dataclass(frozen=True)
class LayerCell(MatrixCell):
    """A computation for one layer, or for the experts in one parameter.

    PEFT's layer may have the transposed matrix. LoRA has factors of each expert, and LoCA has
    components of the matrix with the rows of all.
    """

    layer: Layer


@dataclass(frozen=True)
class Profiles:
    """Sizes of a layer's adapter and the energy that each retains, by form."""

    by_form: dict[str, tuple[list[int], list[float]]]


@dataclass(frozen=True)
class ProfileCell(LayerCell):
    """The retained energy of one layer by size, for several forms."""

    experiment: ClassVar[str] = "energy-profile"
    result: ClassVar[Any] = Profiles | Skipped

    forms: tuple[str, ...]


@dataclass(frozen=True)
class StoredFit:
    """A fit of one layer as plain data.

    Attributes:
        others: The fit without its tensors.
        text: The tensors.
    """

    others: Fit
    text: str

    @property
    def fit(self) -> Fit:
        """The fit that it was made of."""
        return replace(self.others, tensors=tensors_of(self.text))


@dataclass(frozen=True)
class AdapterCell(LayerCell):
    """The best adapter of one layer.

    Attributes:
        sizes: Its size in each form that it may have, by key.
        usual: The size of most layers; 0 if it does not matter.
        looks_inside: Whether it may leave the stored difference for its rounding cells.
        dtype: Type of its numbers.
    """

    experiment: ClassVar[str] = "adapter"
    result: ClassVar[Any] = StoredFit | Skipped

    sizes: tuple[tuple[str, int], ...]
    usual: int
    looks_inside: bool
    dtype: str

    @property
    def is_storable(self) -> bool:
        """If steps into the cells take long; decompositions take less long than the profiles."""
        return self.looks_inside


def energy_profiles(
    task: Task,
    label: str,
    layers: Iterable[Layer],
    forms: Sequence[Form],
    *,
    number_bytes: int | None,
    **limits: Any,
) -> list[list[EnergyProfile]]:
    """What each layer of a fine-tune retains by the size of its adapter in the forms it can have.

    Sizes cost bytes if those of a number are known, otherwise numbers.
    """
    cells = [
        ProfileCell(layer.name, layer, keys, tuned=(label,))
        for layer in layers
        if (keys := tuple(form.key for form in forms if form.obstacle(layer) is None))
    ]
    results = task.run(cells, partial(compute_profiles, device=task.device))
    candidates = []
    for cell, result in results:
        profiles = []
        for key, (sizes, energies) in result.by_form.items():
            cost, layer_cost = FORMS[key].costs(cell.layer, number_bytes)
            profiles.append(
                EnergyProfile(cell.layer, key, sizes, energies, cost, layer_cost, **limits)
            )
        candidates.append(profiles)
    return candidates


def compute_profiles(cell: ProfileCell, pairs: Pairs, device: str) -> Profiles:
    """Profiles of the energy that a layer retains by size, in each form that the cell names."""
    with change_of(cell.layer, pairs[cell.tuned[0]], device) as change:
        return Profiles({key: FORMS[key].profile(change) for key in cell.forms})


def compute_adapter(cell: AdapterCell, pairs: Pairs, device: str) -> StoredFit:
    """The best adapter of one layer; of several forms, the one of least error."""
    pair, layer = pairs[cell.tuned[0]], cell.layer
    with change_of(layer, pair, device, looks_inside=cell.looks_inside) as change:
        kind = getattr(torch, cell.dtype)
        fits = [FORMS[key].fit(change, size, cell.usual, kind) for key, size in cell.sizes]
        best = min(fits, key=lambda fit: fit.nearest_error)
        learned = [tensor for tensor in best.tensors.values() if tensor.is_floating_point()]
        if not all(tensor.isfinite().all() and tensor.any() for tensor in learned):
            raise out_of_range(cell.dtype, change.increment[1])
    return StoredFit(replace(best, tensors={}), text_of(best.tensors))
