"""The steps of an extraction: choose layers, split a total, compute the adapters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from loca_theory.checkpoints.adapter_points import (
    DTYPES,
    adapter_point,
    point_of,
    profile_point,
    restored_profile,
    unpacked,
)
from loca_theory.checkpoints.adapter_size import AdapterSize
from loca_theory.checkpoints.checkpoint import DamagedError
from loca_theory.checkpoints.extraction_result import Adapter, ExtractedMatrix, reasons
from loca_theory.checkpoints.extraction_rows import Split, row_of
from loca_theory.checkpoints.linear_layers import Layer, layers_of, module_names
from loca_theory.checkpoints.loaded_model import LoadedModel
from loca_theory.checkpoints.pairs import CheckpointPair
from loca_theory.checkpoints.peft_config import adapter_config, parameter_prefix
from loca_theory.checkpoints.rows import Skipped
from loca_theory.checkpoints.saved_modules import SavedModules
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps import Runner

if TYPE_CHECKING:
    import torch

_PROFILE, _ADAPTER = "energy-profile", "adapter"


@dataclass
class Extractor:
    """The steps of an extraction.

    Attributes:
        pair: The checkpoints.
        size: Size of the adapters.
        dtype: Type of the stored numbers.
        device: Where the linear algebra runs.
        runner: How matrices are computed.
        saved: Modules that are stored whole.
        model: The model that the adapter is for; None if only names are known.
    """

    pair: CheckpointPair
    size: AdapterSize
    dtype: str
    device: str
    runner: Runner
    saved: SavedModules
    model: LoadedModel | None

    def choose_layers(self) -> None:
        """Find the layers that can have an adapter.

        Raises:
            InvalidArgumentError: there is none, or the model has one in another shape.
        """
        self.layers: list[Layer] = []
        # A tensor that is stored whole is part of the adapter, so it is not skipped.
        whole = set(self.saved.tensors.values())
        self.skipped = [one for one in self.pair.skipped if one.name not in whole]
        for layer in layers_of(self.pair, self.model):
            if self.saved.contains(layer.own):
                continue
            if self._methods(layer):
                self.layers.append(layer)
            else:
                obstacle = layer.obstacles[self.size.methods[0]]
                self.skipped.append(Skipped(layer.name, obstacle))
        self._check_any(self.layers)
        if self.model is not None:
            shapes = [(one.own, self.pair.stored_shape(one.name)) for one in self.layers]
            if wrong := self.model.misfits(shapes):
                msg = f"{self.model.title} has these weights in other shapes: {', '.join(wrong)}; "
                raise InvalidArgumentError(msg + 'pass the right model=..., or exclude="..."')

    def run(self) -> tuple[list[ExtractedMatrix], dict[str, dict[str, torch.Tensor]]]:
        """Compute the rows of all matrices, and the tensors of the adapters by layer.

        Raises:
            InvalidArgumentError: the total is too small, or no layer gets an adapter.
        """
        split = self._split() if self.size.is_split else None
        points, layers = [], []
        for layer in self.layers:
            count, methods = None, self._methods(layer)
            if split is not None:
                count, methods = split.sizes[layer.name], [split.methods[layer.name]]
            if count != 0:
                layers.append(layer)
                points.append(point_of(_ADAPTER, layer, count=count, methods=methods))
        # Results of this step are large, and computing them takes less long than the profiles.
        compute = partial(
            adapter_point, pair=self.pair, size=self.size, dtype=self.dtype, device=self.device
        )
        found = replace(self.runner, store=None).run(points, compute)
        results = dict(zip([layer.name for layer in layers], found, strict=True))
        rows: list[ExtractedMatrix] = []
        tensors: dict[str, dict[str, torch.Tensor]] = {}
        for layer in self.layers:
            result = results.get(layer.name)
            if result is None and split is not None:
                rows.append(split.row_of_nothing(layer))
            elif result is not None and self._is_usable(layer, result):
                rows.append(row_of(layer, result, split))
                tensors[layer.own] = unpacked(result["tensors"])
        self._check_any(rows)
        if not tensors:
            msg = "no layer gets an adapter of this size that the type can store; pass a larger "
            raise InvalidArgumentError(msg + 'allocate="..." or dtype="float32"')
        return rows, tensors

    def _methods(self, layer: Layer) -> list[str]:
        """Methods that a layer can have."""
        return [one for one in self.size.methods if one not in layer.obstacles]

    def _split(self) -> Split:
        """Compute the energy profiles, and split the total; layers without one are skipped."""
        points = [
            point_of(
                _PROFILE,
                layer,
                methods=self._methods(layer),
                entries=None if self.runner.store is None else self._fingerprint(layer),
            )
            for layer in self.layers
        ]
        compute = partial(profile_point, pair=self.pair, device=self.device)
        results = self.runner.run(points, compute)
        pairs = list(zip(self.layers, results, strict=True))
        found = {layer.name: one for layer, one in pairs if self._is_usable(layer, one)}
        self.layers = [layer for layer in self.layers if layer.name in found]
        self._check_any(self.layers)
        number_bytes = DTYPES[self.dtype]
        profiles = {
            name: {
                method: restored_profile(
                    name, one, method, self.size.cost(method, tuple(one["shape"]), number_bytes)
                )
                for method in one["methods"]
            }
            for name, one in found.items()
        }
        methods, allocation = self.size.split(profiles)
        shapes = {name: tuple(one["shape"]) for name, one in found.items()}
        return Split(methods, allocation, shapes, has_uniform=len(self.size.methods) == 1)

    def _fingerprint(self, layer: Layer) -> str | None:
        """Digest of what the increment is computed from; None if that cannot be read."""
        try:
            return self.pair.fingerprint(layer.name)
        except DamagedError:  # which the computation reports
            return None

    def _is_usable(self, layer: Layer, result: Mapping[str, Any]) -> bool:
        """Whether a result is not a reason to leave the layer out."""
        for key in ("left_out", "damaged"):
            if key in result:
                self.skipped.append(Skipped(layer.name, result[key], damaged=key == "damaged"))
                return False
        return True

    def _check_any(self, left: Sequence[Any]) -> None:
        if not left:
            if self.saved.modules and not self.skipped:
                msg = "save_modules stores every layer whole, so that none is left to adapt; match "
                raise InvalidArgumentError(msg + "fewer modules")
            msg = f"no layer is left to extract (left out: {reasons(self.skipped)}); "
            msg += 'change include="...", exclude="..." or max_size="..."'
            raise InvalidArgumentError(msg)

    def adapters(
        self,
        base: str | None,
        rows: Sequence[ExtractedMatrix],
        tensors: Mapping[str, Mapping[str, torch.Tensor]],
    ) -> dict[str, Adapter]:
        """The adapters by method; modules that are stored whole go to the first one."""
        import torch

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
