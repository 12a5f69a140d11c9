"""The steps of an extraction: choose layers, split a total, compute the adapters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from loca_theory.checkpoints.extracted_matrix import ExtractedMatrix, extracted, retained
from loca_theory.checkpoints.extraction_result import reasons
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
from loca_theory.checkpoints.sizing.offers import EnergyProfile
from loca_theory.checkpoints.sizing.peft_config import adapter_config, parameter_prefix
from loca_theory.checkpoints.sizing.saved_modules import SavedModules
from loca_theory.checkpoints.sizing.sizes import AllocatedSize, Allocation, allocate
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps import Runner

# How much of the energy may be missing after the numbers are rounded, and how often to try again.
_ENOUGH, _TRIES = 1e-6, 4


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
        whole = set(self.saved.tensors.values())
        skipped = [one for one in self.pair.skipped if one.name not in whole]
        self.task = Task({"": self.pair}, self.device, self.runner, skipped)
        for layer in layers_of(self.pair, self.model):
            if self.saved.contains(layer.own):
                continue
            obstacle = self._obstacle(layer)
            if obstacle is None:
                self.layers.append(layer)
            else:
                skipped.append(Skipped(layer.name, obstacle))
        self._check_any(self.layers)
        if self.model is not None:
            stored = {one.own: self.pair.matrices[one.name].stored_shape for one in self.layers}
            wrong = [
                f"{name} ({'x'.join(map(str, shape))})"
                for name, shape in stored.items()
                if self.model.shapes.get(name) != shape
            ]
            if wrong:
                msg = f"{self.model.title} has these weights in other shapes: {', '.join(wrong)}; "
                raise InvalidArgumentError(msg + 'pass the right model=..., or exclude="..."')

    def run(self, base: str | None) -> tuple[list[ExtractedMatrix], dict[str, Adapter]]:
        """Compute the rows of all matrices, and the adapters by method."""
        if self.size.is_split:
            rows, found = self._split()
        else:
            asked = {
                one.name: {each: self.size.count(each, *one.shape) for each in self._methods(one)}
                for one in self.layers
            }
            found = self._computed(asked)
            rows = [extracted(one, found[one.name]) for one in self.layers if one.name in found]
        self._check_any(rows)
        if not found:
            msg = "no layer gets an adapter of this size that the type can store; pass a larger "
            raise InvalidArgumentError(msg + 'allocate="..." or dtype="float32"')
        tensors = {one.own: found[one.name]["tensors"] for one in self.layers if one.name in found}
        return rows, self._adapters(base, rows, tensors)

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
        return tuple(one for one in self.size.methods if one not in layer.obstacles)

    def _split(self) -> tuple[list[ExtractedMatrix], dict[str, dict[str, Any]]]:
        """The rows and the adapters of layers that share a total or retain a fraction."""
        profiles, wanted, tries = self._profiles(), self.size.energy, 0
        total = self.size.allocate.amount if isinstance(self.size.allocate, TotalSize) else None
        while True:
            limits = {"floor": self.size.floor, "cap": self.size.cap}
            split = allocate(profiles, total, energy=wanted, **limits)
            sizes = {one.profile.name: one for one in split.matrices}
            asked = {
                name: {one.profile.method: one.size} for name, one in sizes.items() if one.size
            }
            found = self._computed(asked)
            rows = [
                self._split_row(layer, sizes[layer.name], split, found.get(layer.name))
                for layer in self.layers
                if layer.name in found or not sizes[layer.name].size
            ]
            # Rounded numbers retain less than the profiles say.
            missing, tries = (self.size.energy or 0.0) - retained(rows), tries + 1
            if wanted is None or tries == _TRIES or missing <= _ENOUGH or wanted + missing >= 1:
                return rows, found
            wanted += missing

    def _profiles(self) -> list[list[EnergyProfile]]:
        """Energy profiles by each method of each layer; layers without one are skipped."""
        cells = [
            ProfileCell(layer.name, layer.is_transposed, self._methods(layer))
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
                    *unit.costs(method, layer.shape, DTYPES[self.dtype]),
                )
                for method, one in found[layer.name].items()
            ]
            for layer in self.layers
        ]

    def _computed(self, asked: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, Any]]:
        """The adapters of layers that have sizes by method, by the names of the layers."""
        cells = [
            AdapterCell(one.name, one.is_transposed, tuple(asked[one.name].items()), one.kernel)
            for one in self.layers
            if one.name in asked
        ]
        compute = partial(compute_adapter, dtype=self.dtype, device=self.task.device)
        # Results of this step are large, and computing them takes less long than the profiles.
        found = self.task.run(cells, compute, is_stored=False)
        return {cell.name: result for cell, result in found}

    def _split_row(
        self, layer: Layer, one: AllocatedSize, split: Allocation, found: Mapping[str, Any] | None
    ) -> ExtractedMatrix:
        """The row of a layer that shares a total; without an adapter if nothing is left for it."""
        profile = one.profile
        nothing = {"method": profile.method, "count": 0, "error": 1.0, "gap": 0.0}
        result = found or {**nothing, "energy": profile.energy}
        if len(self.size.methods) > 1:
            return extracted(layer, result)
        # The uniform size is rounded as well, and loses the same fraction of what it retains.
        before = profile.fraction(one.size)
        kept = (1 - result["error"]) / before if before else 1.0
        return extracted(
            layer,
            result,
            uniform_error=max(0.0, 1 - profile.fraction(one.uniform_size) * min(kept, 1.0)),
            uniform_size=one.uniform_size,
            equal_error=1 - split.equal_retained,
            least_error=1 - split.bound,
        )

    def _check_any(self, left: Sequence[Any]) -> None:
        if not left:
            if self.saved.modules and not self.task.skipped:
                msg = "save_modules stores every layer whole, so that none is left to adapt; match "
                raise InvalidArgumentError(msg + "fewer modules")
            msg = f"no layer is left to extract (left out: {reasons(self.task.skipped)}); "
            msg += 'change include="...", exclude="..." or max_size="..."'
            raise InvalidArgumentError(msg)

    def _adapters(
        self,
        base: str | None,
        rows: Sequence[ExtractedMatrix],
        tensors: Mapping[str, Mapping[str, torch.Tensor]],
    ) -> dict[str, Adapter]:
        """The adapters by method; modules that are stored whole go to the first one."""
        others, saved = module_names(self.pair, self.model), self.saved
        transposed = {layer.own for layer in self.layers if layer.is_transposed}
        found: dict[str, Adapter] = {}
        for method in self.size.methods:
            mine = [one for one in rows if one.method == method and one.name in tensors]
            if not mine:
                continue
            parameters = {
                f"{parameter_prefix(one.name, method)}.{key}": tensor
                for one in mine
                for key, tensor in tensors[one.name].items()
            }
            if not found:
                parameters |= saved.load(self.pair, getattr(torch, self.dtype))
            config = adapter_config(
                method,
                base,
                {one.name.removesuffix(".weight"): one.components or one.r or 0 for one in mine},
                others,
                is_transposed=any(one.name in transposed for one in mine),
                saved_modules=() if found else saved.entries,
            )
            found[method] = Adapter(parameters, config)
        return found
