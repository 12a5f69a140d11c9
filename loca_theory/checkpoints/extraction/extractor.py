"""The steps of an extraction: choose layers, split a total, compute the adapters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from loca_theory.checkpoints.extraction.card import reasons
from loca_theory.checkpoints.extraction.rows import ExtractedMatrix
from loca_theory.checkpoints.pairs.linear_layers import Layer, layers_of, module_names
from loca_theory.checkpoints.pairs.loaded_model import LoadedModel
from loca_theory.checkpoints.pairs.pair import CheckpointPair
from loca_theory.checkpoints.pairs.task import Task
from loca_theory.checkpoints.rows import Skipped
from loca_theory.checkpoints.sizing.adapter_cells import (
    DTYPES,
    AdapterCell,
    ProfileCell,
    compute_adapter,
    compute_profiles,
)
from loca_theory.checkpoints.sizing.adapter_folder import Adapter
from loca_theory.checkpoints.sizing.adapter_size import AdapterSize, TotalSize
from loca_theory.checkpoints.sizing.assembly import Assembly
from loca_theory.checkpoints.sizing.peft_config import usual_size
from loca_theory.checkpoints.sizing.profiles import EnergyProfile
from loca_theory.checkpoints.sizing.saved_modules import SavedModules
from loca_theory.checkpoints.sizing.sizes import Allocation, allocate
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps import Runner

# How much of the energy may be missing after the numbers are rounded, and how often to try again.
_ENOUGH, _TRIES = 1e-6, 4

# What was computed for each layer, by its name.
_Found = Mapping[str, Mapping[str, Any]]


@dataclass
class Extractor:
    """The steps of an extraction.

    Attributes:
        pair: The two checkpoints.
        size: Size of the adapter.
        dtype: Type of the stored numbers.
        device: Where the linear algebra runs.
        runner: Runs the matrices.
        saved: Modules that are stored whole.
        model: The model that the adapter is for; None if it is not known.
        layers: The layers that can have an adapter.
        task: Runs the matrices, and knows what is not part of the adapter.
    """

    pair: CheckpointPair
    size: AdapterSize
    dtype: str
    device: str
    runner: Runner
    saved: SavedModules
    model: LoadedModel | None

    def __post_init__(self) -> None:
        self.layers: list[Layer] = []
        # A tensor that is stored whole is part of the adapter, so it is not skipped.
        whole = {*self.saved.tensors, *self.saved.tensors.values()}
        skipped = [one for one in self.pair.skipped if one.name not in whole]
        self.task = Task({"": self.pair}, self.device, self.runner, skipped)
        for layer in layers_of(self.pair, self.model, with_experts=True):
            if self.saved.contains(layer.own):
                continue
            if (obstacle := self._obstacle(layer)) is None:
                self.layers.append(layer)
            else:
                skipped.append(Skipped(layer.name, obstacle))
        self._check_any(self.layers)
        rank, most = self.size.rank or 0, max(min(one.shape) for one in self.layers)
        if self.size.method == "lora" and rank > most:
            msg = f"rank={rank} is above the smaller side of every matrix; pass at most {most}"
            raise InvalidArgumentError(msg)
        if self.model is not None:
            self._check_shapes(self.model)

    def _check_shapes(self, model: LoadedModel) -> None:
        stored = {one.own: self.pair.matrices[one.name].stored_shape for one in self.layers}
        wrong = [
            f"{name} ({'x'.join(map(str, shape))})"
            for name, shape in stored.items()
            if model.shapes.get(name) != shape
        ]
        if wrong:
            msg = f"{model.title} has these weights in other shapes: {', '.join(wrong)}; "
            raise InvalidArgumentError(msg + 'pass the right model=..., or exclude="..."')

    def run(self, base: str | None) -> tuple[list[ExtractedMatrix], dict[str, Adapter]]:
        """Compute the rows of all matrices, and the adapters by method."""
        if self.size.is_split:
            rows, found = self._split()
        else:
            asked = {
                one.name: {
                    each: self.size.count(each, *one.shape, one.experts)
                    for each in self._methods(one)
                }
                for one in self.layers
            }
            found = self._computed(asked)
            rows = [_row(one, found[one.name]) for one in self.layers if one.name in found]
        self._check_any(rows)
        if not found:
            msg = "no layer gets an adapter of this size that the type can store; pass a larger "
            raise InvalidArgumentError(msg + 'allocate="..." or dtype="float32"')
        names = module_names(self.pair, self.model)
        assembly = Assembly(self.pair, self.size, self.dtype, self.saved, self.model, names)
        return rows, assembly.adapters(self.layers, found, self.alpha, base)

    def _obstacle(self, layer: Layer) -> str | None:
        """Why a layer can have no adapter; None if it can."""
        if not self._methods(layer):
            return layer.obstacles[self.size.methods[0]]
        (p, q), r = layer.shape, self.size.rank or 0
        if self.size.method == "entries" and r * (p + q) > p * q:
            return f"too small for r = {r}: SHiRA would store {r * (p + q)} of {p * q} entries"
        return None

    def _methods(self, layer: Layer) -> tuple[str, ...]:
        """Methods that a layer can have."""
        return tuple(one for one in self.size.methods if one in layer.adapters)

    def _split(self) -> tuple[list[ExtractedMatrix], _Found]:
        """The rows and the adapters of layers that share a total or retain a fraction."""
        profiles, wanted = self._profiles(), self.size.energy
        total = self.size.allocate.amount if isinstance(self.size.allocate, TotalSize) else None
        rows: list[ExtractedMatrix] = []
        found: _Found = {}
        for _ in range(_TRIES):
            split = allocate(profiles, total, energy=wanted)
            sized = (one for one in split.matrices if one.size)
            found = self._computed(
                {one.profile.name: {one.profile.method: one.size} for one in sized}
            )
            rows = self._split_rows(split, found)
            # Rounded numbers retain less than the profiles say.
            energy = sum(one.energy for one in rows)
            missing = (self.size.energy or 0.0) - (_retained(rows) / energy if energy else 0.0)
            if wanted is None or missing <= _ENOUGH or wanted + missing >= 1:
                break
            wanted += missing
        return rows, found

    def _profiles(self) -> list[list[EnergyProfile]]:
        """Energy profiles by each method of each layer; layers without one are skipped."""
        cells = [
            ProfileCell(layer.name, layer.is_transposed, layer.experts, self._methods(layer))
            for layer in self.layers
        ]
        results = self.task.run(cells, partial(compute_profiles, device=self.task.device))
        found = {cell.name: result for cell, result in results}
        self.layers = [layer for layer in self.layers if layer.name in found]
        self._check_any(self.layers)
        unit = self.size.allocate if isinstance(self.size.allocate, TotalSize) else TotalSize(1)
        return [
            [
                EnergyProfile(
                    *(layer.name, method, np.array(one["units"]), np.array(one["retained"])),
                    *unit.costs(method, layer.sides, DTYPES[self.dtype]),
                    floor=self.size.floor,
                    cap=self.size.cap,
                )
                for method, one in found[layer.name].items()
            ]
            for layer in self.layers
        ]

    def _computed(self, asked: Mapping[str, Mapping[str, int]]) -> _Found:
        """The adapters of layers that have sizes by method, by the names of the layers."""
        ranks = {name: sizes["lora"] for name, sizes in asked.items() if "lora" in sizes}
        # One α for all layers, because not every engine reads alpha_pattern. Padded to the largest,
        # all ranks are the same, and no product is scaled.
        self.alpha = 0 if self.size.pad else usual_size(ranks)[0]
        cells = [
            AdapterCell(
                *(one.name, one.is_transposed, one.experts),
                *(tuple(asked[one.name].items()), one.kernel, self.alpha),
            )
            for one in self.layers
            if one.name in asked
        ]
        compute = partial(compute_adapter, dtype=self.dtype, device=self.task.device)
        # Results of this step are large, and computing them takes less long than the profiles.
        found = self.task.run(cells, compute, is_stored=False)
        return {cell.name: result for cell, result in found}

    def _split_rows(self, split: Allocation, found: _Found) -> list[ExtractedMatrix]:
        """The rows of layers that share a total, also of those that get nothing of it."""
        layers = {one.name: one for one in self.layers}
        rows, planned = [], []
        for one in split.matrices:
            name, profile = one.profile.name, one.profile
            if one.size and name not in found:
                continue  # the type cannot store it
            nothing = {"method": profile.method, "count": 0, "error": 1.0, "gap": 0.0}
            result = found.get(name, {**nothing, "energy": profile.energy})
            rows.append(_row(layers[name], result))
            planned.append(one)
        if len(self.size.methods) > 1:
            return rows
        # The other splits are rounded as well, and lose the same fraction of what they retain.
        before = sum(float(one.profile.at(one.size)) for one in planned)
        kept = min(_retained(rows) / before, 1.0) if before else 1.0
        return [
            replace(
                row,
                uniform_error=1 - kept * one.profile.fraction(one.uniform_size),
                uniform_size=one.uniform_size,
                equal_error=1 - kept * split.equal_retained,
                least_error=1 - split.bound,
            )
            for row, one in zip(rows, planned, strict=True)
        ]

    def _check_any(self, left: Sequence[Any]) -> None:
        if not left:
            if self.saved.modules and not self.task.skipped:
                msg = "save_modules stores every layer whole, so that none is left to adapt; match "
                raise InvalidArgumentError(msg + "fewer modules")
            msg = f"no layer is left to extract (left out: {reasons(self.task.skipped)}); "
            msg += 'change include="...", exclude="..." or max_size="..."'
            raise InvalidArgumentError(msg)


def _row(layer: Layer, result: Mapping[str, Any]) -> ExtractedMatrix:
    """The row of a layer, from what was computed for it."""
    count, is_loca = result["count"], result["method"] == "loca"
    return ExtractedMatrix(
        name=layer.own,
        shape=layer.stack,
        method=result["method"],
        r=None if is_loca else count,
        components=count if is_loca else None,
        numbers=count if is_loca else sum(layer.sides) * count,
        error=result["error"],
        gap=result["gap"],
        energy=result["energy"],
    )


def _retained(rows: Sequence[ExtractedMatrix]) -> float:
    """Energy that the adapters of some rows retain."""
    return sum(one.energy * (1 - one.error) for one in rows)
