"""The factors of some layers, as adapters that PEFT loads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from loca_theory.checkpoints.change.adapter.layers import PREFIX
from loca_theory.checkpoints.change.pair import CheckpointPair
from loca_theory.checkpoints.form.config import target_modules, usual_size
from loca_theory.checkpoints.form.folder import Adapter
from loca_theory.checkpoints.form.forms import FORMS
from loca_theory.checkpoints.form.layer import Layer, end_others
from loca_theory.checkpoints.unmerging.rows import UnmergedLayer

UnmergedLayers = Sequence[tuple[Layer, UnmergedLayer, dict[str, torch.Tensor]]]
"""Layers with their rows and factors."""


def adapters_of(
    pair: CheckpointPair, found: UnmergedLayers, base: str | None
) -> dict[str, Adapter]:
    """The adapter of each form that was found, by its key."""
    adapters = {}
    for key, form in FORMS.items():
        members = [member for member in found if member[1].form == form.title]
        if members:
            adapters[key] = _adapter(pair, members, base, key)
    return adapters


def _adapter(pair: CheckpointPair, found: UnmergedLayers, base: str | None, key: str) -> Adapter:
    modules = [layer.module for layer, _, _ in found]
    tensors = {
        f"{PREFIX}{layer.module}.{name}": tensor
        for layer, _, factors in found
        for name, tensor in factors.items()
    }
    sizes = {layer.module: row.rank or row.components or 0 for layer, row, _ in found}
    around = pair.model.modules.keys() - modules
    common = {
        "base_model_name_or_path": base,
        "fan_in_fan_out": any(layer.is_transposed for layer, _, _ in found),
        "target_modules": target_modules(modules, is_ambiguous=end_others(modules, around)),
        "modules_to_save": None,
    }
    config = FORMS[key].config(sizes, 0, **common)
    return Adapter(tensors, config | (_unscaled(sizes) if key == "lora" else {}))


def _unscaled(ranks: dict[str, int]) -> dict[str, Any]:
    """PEFT's settings in which α is the rank of every module, so that ΔW is BA."""
    usual, exceptions = usual_size(ranks)
    return {
        "r": usual,
        "lora_alpha": usual,
        "rank_pattern": exceptions,
        "alpha_pattern": exceptions,
    }
