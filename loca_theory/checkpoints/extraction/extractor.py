"""The steps of an extraction: split a total among layers, compute their adapters, and join them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import torch

from loca_theory.checkpoints.change.adapter.layers import PREFIX
from loca_theory.checkpoints.change.task import Task
from loca_theory.checkpoints.extraction.experts import check_complete, expert_keys
from loca_theory.checkpoints.extraction.layers import check_any
from loca_theory.checkpoints.extraction.rows import ExtractedMatrix
from loca_theory.checkpoints.extraction.saved_modules import SavedModules
from loca_theory.checkpoints.form.cells import AdapterCell, compute_adapter, energy_profiles
from loca_theory.checkpoints.form.config import usual_size, wrapper_names
from loca_theory.checkpoints.form.folder import Adapter
from loca_theory.checkpoints.form.form import Fit, Form
from loca_theory.checkpoints.form.forms import FORMS, LORA
from loca_theory.checkpoints.form.layer import Layer, settings_of_layers
from loca_theory.checkpoints.form.lora import padded
from loca_theory.checkpoints.sizes.size import AdapterSize
from loca_theory.checkpoints.sizes.split import Allocation, allocate
from loca_theory.errors import InvalidArgumentError

# How much of the energy may be missing after the numbers are rounded, and how often to try again.
_ENOUGH, _TRIES = 1e-6, 4

# The adapter of each layer that has one.
_Fits = Sequence[tuple[AdapterCell, Fit]]


@dataclass
class Extractor:
    """The steps of an extraction.

    Attributes:
        layers: The layers that can have an adapter.
        task: Runs the layers, and knows what is not part of the adapter.
        size: Size of the adapter.
        dtype: Type of the stored numbers.
        saved: Modules that are stored whole.
        has_one_rank: Whether every factor of LoRA is stored with zeros up to the largest rank, and
            those of each expert by itself.
        looks_inside: Whether adapters may leave the stored difference for its rounding cells.
    """

    layers: Sequence[Layer]
    task: Task
    size: AdapterSize
    dtype: str
    saved: SavedModules
    has_one_rank: bool
    looks_inside: bool

    def run(self, base: str | None) -> tuple[list[ExtractedMatrix], dict[str, Adapter]]:
        """Compute the rows of all matrices, and the adapters by form."""
        if self.size.is_split:
            rows, fits = self._split()
        else:
            fits = self._fits([(layer, self.size.sizes_of(layer)) for layer in self.layers])
            rows = [_row(cell.layer, fit) for cell, fit in fits]
        check_any(rows, self.saved, self.task.skipped)
        if not fits:
            raise InvalidArgumentError(
                "no layer gets an adapter of this size that the type can store; pass a larger "
                'allocate="..." or dtype="float32"'
            )
        adapters: dict[str, Adapter] = {}
        for form in self.size.forms:
            if of_form := [(cell, fit) for cell, fit in fits if fit.form == form.key]:
                # Modules that are stored whole go to the first adapter.
                saved = SavedModules() if adapters else self.saved
                adapters[form.key] = self._adapter(form, of_form, saved, base)
        return rows, adapters

    def _adapter(self, form: Form, fits: _Fits, saved: SavedModules, base: str | None) -> Adapter:
        """The adapters of some layers as one, in PEFT's format."""
        (pair,) = self.task.pairs.values()
        sizes = {cell.layer.module: fit.size for cell, fit in fits}
        # Layers are in the order of the model.
        fused = [cell.layer.weight for cell, _ in fits if cell.layer.experts > 1]
        linear = [cell.layer for cell, _ in fits if cell.layer.experts == 1]
        wrappers, rank = wrapper_names(fused), max(sizes.values())
        tensors: dict[str, torch.Tensor] = {}
        for cell, fit in fits:
            if self.has_one_rank and cell.layer.experts > 1:
                keys = expert_keys(cell.layer, fit.tensors, rank)
                tensors |= {PREFIX + name: tensor for name, tensor in keys.items()}
                continue
            module = PREFIX + wrappers.get(cell.layer.weight, cell.layer.module)
            stored = padded(fit.tensors, rank) if self.has_one_rank else fit.tensors
            tensors |= {f"{module}.{name}": tensor for name, tensor in stored.items()}
        config = form.config(
            dict.fromkeys(sizes, rank) if self.has_one_rank else sizes,
            fits[0][0].usual,
            **settings_of_layers(pair, linear, base, saved.entries),
        )
        if fused and self.has_one_rank:
            check_complete(cell.layer for cell, _ in fits if cell.layer.experts > 1)
            # The last parts of names, of which there are many.
            parts = (name.removesuffix(".weight").split(".")[-2] for name in tensors)
            config["target_modules"] = sorted({*parts})
        elif fused:
            config["target_parameters"] = fused
        return Adapter(tensors | saved.load(pair, getattr(torch, self.dtype)), config)

    def _split(self) -> tuple[list[ExtractedMatrix], _Fits]:
        """The rows and the adapters of layers that share a total or retain a fraction."""
        total, goal = self.size.allocate, self.size.energy
        profiles = energy_profiles(
            self.task,
            "",
            self.layers,
            self.size.forms,
            number_bytes=total and total.number_bytes(self.dtype),
            floor=self.size.floor,
            cap=self.size.cap,
        )
        check_any(profiles, self.saved, self.task.skipped)
        rows: list[ExtractedMatrix] = []
        fits: _Fits = ()
        for _ in range(_TRIES):
            split = allocate(profiles, total and total.size, energy=goal)
            sized = [(row.profile, row.size) for row in split.matrices if row.size]
            fits = self._fits([(profile.layer, {profile.form: size}) for profile, size in sized])
            rows = self._split_rows(split, fits)
            # Rounded numbers retain less than the profiles say.
            energy = sum(row.energy for row in rows)
            missing = (self.size.energy or 0.0) - (_retained(fits) / energy if energy else 0.0)
            if goal is None or missing <= _ENOUGH or goal + missing >= 1:
                break
            goal += missing
        return rows, fits

    def _fits(self, sized: Sequence[tuple[Layer, Mapping[str, int]]]) -> _Fits:
        """The adapters of layers, each with a size in every form that it may have."""
        ranks = {layer.name: sizes[LORA.key] for layer, sizes in sized if LORA.key in sizes}
        # Padded to the largest, all ranks are the same, and no product is scaled.
        usual = 0 if self.has_one_rank else usual_size(ranks)[0]
        cells = [
            AdapterCell(
                layer.name, layer, tuple(sizes.items()), usual, self.looks_inside, self.dtype
            )
            for layer, sizes in sized
        ]
        results = self.task.run(cells, partial(compute_adapter, device=self.task.device))
        return [(cell, stored.fit) for cell, stored in results]

    def _split_rows(self, split: Allocation, fits: _Fits) -> list[ExtractedMatrix]:
        """The rows of layers that share a total, also of those that get nothing of it."""
        fitted = {cell.layer: fit for cell, fit in fits}
        # A layer of which the type cannot store the adapter has no row.
        planned = [row for row in split.matrices if row.profile.layer in fitted or not row.size]
        # The other splits are rounded as well, and lose the same fraction of what they retain.
        before = sum(float(row.profile.at(row.size)) for row in planned)
        left = min(_retained(fits) / before, 1.0) if before else 1.0
        rows = []
        for allocated in planned:
            profile = allocated.profile
            nothing = Fit(profile.form, 0, {}, 1.0, 0.0, profile.energy)
            row = _row(profile.layer, fitted.get(profile.layer, nothing))
            if len(self.size.forms) == 1:
                row = replace(
                    row,
                    uniform_error=1 - left * profile.fraction(allocated.uniform_size),
                    uniform_size=allocated.uniform_size,
                    equal_error=1 - left * split.equal_retained,
                    least_error=1 - split.bound,
                )
            rows.append(row)
        return rows


def _row(layer: Layer, fit: Fit) -> ExtractedMatrix:
    """The row of a layer, from what was computed for it."""
    form = FORMS[fit.form]
    return ExtractedMatrix(
        name=layer.weight,
        shape=layer.stack,
        method=fit.form,
        numbers=form.numbers(layer, fit.size),
        error=fit.error,
        gap=fit.gap,
        energy=fit.energy,
        **{"r": None, "components": None, form.size_name: fit.size},
        **(asdict(fit.inside) if fit.inside else {}),
    )


def _retained(fits: _Fits) -> float:
    """Energy of the stored difference that adapters of these sizes retain."""
    return sum(fit.retained for _, fit in fits)
