"""Adapters in PEFT's format from what was computed for each layer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from loca_theory.checkpoints.pairs.linear_layers import Layer, module_names
from loca_theory.checkpoints.pairs.loaded_model import LoadedModel
from loca_theory.checkpoints.pairs.pair import CheckpointPair
from loca_theory.checkpoints.sizing.adapter_folder import Adapter
from loca_theory.checkpoints.sizing.peft_config import (
    adapter_config,
    padded,
    parameter_prefix,
    wrapper_names,
)
from loca_theory.checkpoints.sizing.saved_modules import SavedModules

_Computed = Sequence[tuple[Layer, Mapping[str, Any]]]


def assembled(
    computed: _Computed,
    pair: CheckpointPair,
    saved: SavedModules,
    model: LoadedModel | None,
    dtype: str,
    alpha: int,
    base: str | None,
    *,
    pad: bool,
) -> dict[str, Adapter]:
    """The adapters by method; modules that are stored whole go to the first one."""
    modules = module_names(pair, model)
    adapters: dict[str, Adapter] = {}
    for method in ("lora", "loca", "entries"):
        mine = [(layer, one) for layer, one in computed if one["method"] == method]
        if not mine:
            continue
        sizes: dict[str, int] = {layer.module: one["count"] for layer, one in mine}
        rank = max(sizes.values()) if pad else 0
        if pad:
            sizes = dict.fromkeys(sizes, rank)
        parameters = _tensors(method, mine, () if model is None else model.shapes, rank)
        if not adapters:
            parameters |= saved.load(pair, getattr(torch, dtype))
        config = adapter_config(
            method,
            base,
            sizes,
            modules,
            parameters={one.own for one, _ in mine if one.experts > 1},
            usual=alpha if method == "lora" else None,
            is_transposed=any(one.is_transposed for one, _ in mine if one.experts == 1),
            saved_modules=() if adapters else saved.entries,
        )
        adapters[method] = Adapter(parameters, config)
    return adapters


def _tensors(
    method: str, computed: _Computed, in_order: Collection[str], rank: int
) -> dict[str, torch.Tensor]:
    """The tensors of an adapter, under the names that PEFT gives them; padded up to a rank."""
    fused = {layer.own for layer, _ in computed if layer.experts > 1}
    wrappers = wrapper_names(one for one in in_order if one in fused)
    tensors: dict[str, torch.Tensor] = {}
    for layer, one in computed:
        prefix = parameter_prefix(wrappers.get(layer.own, layer.own), method)
        own = padded(one["tensors"], rank, layer.experts) if rank else one["tensors"]
        tensors |= {f"{prefix}.{key}": tensor for key, tensor in own.items()}
    return tensors
