"""The steps of an extraction: split a total among layers, compute their adapters, and join them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from loca_theory.checkpoints.change.adapter.layers import PREFIX
from loca_theory.checkpoints.extraction.layers import check_any
from loca_theory.checkpoints.extraction.rows import ExtractedMatrix
from loca_theory.checkpoints.form.cells import (
    DTYPES,
    AdapterCell,
    ProfileCell,
    compute_adapter,
    compute_profiles,
)
from loca_theory.checkpoints.form.config import (
    adapter_config,
    padded,
    target_modules,
    usual_size,
    wrapper_names,
)
from loca_theory.checkpoints.form.fit import BestAdapter
from loca_theory.checkpoints.form.folder import Adapter
from loca_theory.checkpoints.form.layer import Layer, end_others
from loca_theory.checkpoints.form.profile import EnergyProfile, profile_of
from loca_theory.checkpoints.form.saved_modules import SavedModules
from loca_theory.checkpoints.form.size import AdapterSize, TotalSize
from loca_theory.checkpoints.form.split import Allocation, allocate
from loca_theory.checkpoints.task import Task
from loca_theory.errors import InvalidArgumentError

# How much of the energy may be missing after the numbers are rounded, and how often to try again.
_ENOUGH, _TRIES = 1e-6, 4

# What was computed for each layer.
_Found = Sequence[tuple[AdapterCell, BestAdapter]]


@dataclass
class Extractor:
    """The steps of an extraction.

    Attributes:
        layers: The layers that can have an adapter.
        task: Runs the layers, and knows what is not part of the adapter.
        size: Size of the adapter.
        dtype: Type of the stored numbers.
        saved: Modules that are stored whole.
    """

    layers: Sequence[Layer]
    task: Task
    size: AdapterSize
    dtype: str
    saved: SavedModules

    def run(self, base: str | None) -> tuple[list[ExtractedMatrix], dict[str, Adapter]]:
        """Compute the rows of all matrices, and the adapters by method."""
        if self.size.is_split:
            rows, found = self._split()
        else:
            found = self._computed([(one, self.size.sizes_of(one)) for one in self.layers])
            rows = [_row(cell.layer, one) for cell, one in found]
        check_any(rows, self.saved, self.task.skipped)
        if not found:
            msg = "no layer gets an adapter of this size that the type can store; pass a larger "
            raise InvalidArgumentError(msg + 'allocate="..." or dtype="float32"')
        adapters: dict[str, Adapter] = {}
        for method in self.size.methods:
            if mine := [(cell, one) for cell, one in found if one.method == method]:
                # Modules that are stored whole go to the first adapter.
                saved = SavedModules() if adapters else self.saved
                adapters[method] = self._adapter(method, mine, saved, base)
        return rows, adapters

    def _adapter(
        self, method: str, computed: _Found, saved: SavedModules, base: str | None
    ) -> Adapter:
        """What was computed for some layers, in PEFT's format."""
        (pair,) = self.task.pairs.values()
        layers = [cell.layer for cell, _ in computed]
        sizes = {cell.layer.module: one.count for cell, one in computed}
        rank = max(sizes.values()) if self.size.pad else 0
        # Layers are in the order of the model.
        fused = [one.own for one in layers if one.experts > 1]
        wrappers = wrapper_names(fused)
        tensors: dict[str, torch.Tensor] = {}
        for cell, one in computed:
            module = PREFIX + wrappers.get(cell.layer.own, cell.layer.module)
            own = padded(one.tensors, rank) if rank else one.tensors
            tensors |= {f"{module}.{key}": tensor for key, tensor in own.items()}
        linear = [one for one in sizes if one not in fused]
        others = pair.model.modules.keys() - linear
        config = adapter_config(
            method,
            dict.fromkeys(sizes, rank) if rank else sizes,
            computed[0][0].alpha,
            base_model_name_or_path=base,
            fan_in_fan_out=any(one.is_transposed for one in layers if one.experts == 1),
            target_modules=target_modules(linear, is_ambiguous=end_others(linear, others)),
            modules_to_save=list(saved.entries) or None,
            **({"target_parameters": fused} if fused else {}),
        )
        return Adapter(tensors | saved.load(pair, getattr(torch, self.dtype)), config)

    def _split(self) -> tuple[list[ExtractedMatrix], _Found]:
        """The rows and the adapters of layers that share a total or retain a fraction."""
        profiles, total, wanted = self._profiles(), self.size.allocate, self.size.energy
        rows: list[ExtractedMatrix] = []
        found: _Found = ()
        for _ in range(_TRIES):
            split = allocate(profiles, total and total.amount, energy=wanted)
            sized = [(one.profile, one.size) for one in split.matrices if one.size]
            found = self._computed([(one.of, {one.method: size}) for one, size in sized])
            rows = self._split_rows(split, found)
            # Rounded numbers retain less than the profiles say.
            energy = sum(one.energy for one in rows)
            missing = (self.size.energy or 0.0) - (_retained(rows) / energy if energy else 0.0)
            if wanted is None or missing <= _ENOUGH or wanted + missing >= 1:
                break
            wanted += missing
        return rows, found

    def _profiles(self) -> list[list[EnergyProfile]]:
        """Energy profiles by each method of each layer that has them."""
        cells = [
            ProfileCell(one.name, one, self.size.methods_of(one.adapters)) for one in self.layers
        ]
        found = self.task.run(cells, partial(compute_profiles, device=self.task.device))
        check_any(found, self.saved, self.task.skipped)
        unit = self.size.allocate or TotalSize(1)
        return [
            [
                profile_of(
                    *(cell.layer, method, retained, math.prod(cell.layer.stack)),
                    unit.costs(method, cell.layer.sides, DTYPES[self.dtype]),
                    floor=self.size.floor,
                    cap=self.size.cap,
                )
                for method, retained in result.items()
            ]
            for cell, result in found
        ]

    def _computed(self, asked: Sequence[tuple[Layer, Mapping[str, int]]]) -> _Found:
        """The adapters of layers, of which sizes by method are asked for."""
        ranks = {layer.name: sizes["lora"] for layer, sizes in asked if "lora" in sizes}
        # One α for all layers, because not every engine reads alpha_pattern. Padded to the largest,
        # all ranks are the same, and no product is scaled.
        alpha = 0 if self.size.pad else usual_size(ranks)[0]
        cells = [
            AdapterCell(layer.name, layer, tuple(sizes.items()), alpha) for layer, sizes in asked
        ]
        compute = partial(compute_adapter, dtype=self.dtype, device=self.task.device)
        # Results of this step are large, and computing them takes less long than the profiles.
        found = self.task.run(cells, compute, is_stored=False)
        return [(cell, one["adapter"]) for cell, one in found]

    def _split_rows(self, split: Allocation, found: _Found) -> list[ExtractedMatrix]:
        """The rows of layers that share a total, also of those that get nothing of it."""
        adapters = {cell.name: one for cell, one in found}
        for one in split.matrices:
            if not one.size:
                nothing = BestAdapter(one.profile.method, 0, {}, 1.0, 0.0, one.profile.energy)
                adapters[one.profile.of.name] = nothing
        # A layer of which the type cannot store the adapter has no row.
        planned = [one for one in split.matrices if one.profile.of.name in adapters]
        rows = [_row(one.profile.of, adapters[one.profile.of.name]) for one in planned]
        if len(self.size.methods) > 1:
            return rows
        # The other splits are rounded as well, and lose the same fraction of what they retain.
        before = sum(float(one.profile.at(one.size)) for one in planned)
        left = min(_retained(rows) / before, 1.0) if before else 1.0
        return [
            replace(
                row,
                uniform_error=1 - left * one.profile.fraction(one.uniform_size),
                uniform_size=one.uniform_size,
                equal_error=1 - left * split.equal_retained,
                least_error=1 - split.bound,
            )
            for row, one in zip(rows, planned, strict=True)
        ]


def _row(layer: Layer, found: BestAdapter) -> ExtractedMatrix:
    """The row of a layer, from what was computed for it."""
    count, is_loca = found.count, found.method == "loca"
    return ExtractedMatrix(
        *(layer.own, layer.stack, found.method),
        r=None if is_loca else count,
        components=count if is_loca else None,
        numbers=count if is_loca else sum(layer.sides) * count,
        error=found.error,
        gap=found.gap,
        energy=found.energy,
    )


def _retained(rows: Sequence[ExtractedMatrix]) -> float:
    """Energy that the adapters of some rows retain."""
    return sum(one.energy * (1 - one.error) for one in rows)
