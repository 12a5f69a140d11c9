"""Adapters in PEFT's format from what was computed for each layer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from loca_theory.checkpoints.pairs.linear_layers import Layer
from loca_theory.checkpoints.pairs.loaded_model import LoadedModel
from loca_theory.checkpoints.pairs.pair import CheckpointPair
from loca_theory.checkpoints.sizing.adapter_folder import Adapter
from loca_theory.checkpoints.sizing.adapter_size import AdapterSize
from loca_theory.checkpoints.sizing.peft_config import (
    adapter_config,
    padded,
    parameter_prefix,
    wrapper_names,
)
from loca_theory.checkpoints.sizing.saved_modules import SavedModules


@dataclass(frozen=True)
class Assembly:
    """What the adapters of an extraction have in common.

    Attributes:
        pair: The two checkpoints.
        size: Size of the adapter.
        dtype: Type of the stored numbers.
        saved: Modules that are stored whole.
        model: The model that the adapter is for; None if it is not known.
        modules: Names of all modules of the model.
    """

    pair: CheckpointPair
    size: AdapterSize
    dtype: str
    saved: SavedModules
    model: LoadedModel | None
    modules: Collection[str]

    def adapters(
        self,
        layers: Sequence[Layer],
        found: Mapping[str, Mapping[str, Any]],
        alpha: int,
        base: str | None,
    ) -> dict[str, Adapter]:
        """The adapters by method; modules that are stored whole go to the first one."""
        computed = [(one, found[one.name]) for one in layers if one.name in found]
        adapters: dict[str, Adapter] = {}
        for method in self.size.methods:
            mine = [(layer, one) for layer, one in computed if one["method"] == method]
            if not mine:
                continue
            sizes: dict[str, int] = {layer.module: one["count"] for layer, one in mine}
            if self.size.pad:
                sizes = dict.fromkeys(sizes, max(sizes.values()))
            parameters = self._tensors(method, mine, sizes)
            if not adapters:
                parameters |= self.saved.load(self.pair, getattr(torch, self.dtype))
            config = adapter_config(
                method,
                base,
                sizes,
                self.modules,
                parameters={one.own for one, _ in mine if one.experts > 1},
                usual=alpha if method == "lora" else None,
                is_transposed=any(one.is_transposed for one, _ in mine if one.experts == 1),
                saved_modules=() if adapters else self.saved.entries,
            )
            adapters[method] = Adapter(parameters, config)
        return adapters

    def _tensors(
        self,
        method: str,
        computed: Sequence[tuple[Layer, Mapping[str, Any]]],
        sizes: Mapping[str, int],
    ) -> dict[str, torch.Tensor]:
        """The tensors of an adapter, under the names that PEFT gives them."""
        fused = {layer.own for layer, _ in computed if layer.experts > 1}
        in_order = () if self.model is None else self.model.shapes
        wrappers = wrapper_names(one for one in in_order if one in fused)
        tensors: dict[str, torch.Tensor] = {}
        for layer, one in computed:
            prefix = parameter_prefix(wrappers.get(layer.own, layer.own), method)
            own = one["tensors"]
            if self.size.pad:
                own = padded(own, sizes[layer.module], layer.experts)
            tensors |= {f"{prefix}.{key}": tensor for key, tensor in own.items()}
        return tensors
