"""The factors of some layers, as adapters that PEFT loads."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from loca_theory.checkpoints.change.adapter.layers import PREFIX
from loca_theory.checkpoints.change.pair import CheckpointPair
from loca_theory.checkpoints.form.folder import Adapter
from loca_theory.checkpoints.form.forms import FORMS, LORA
from loca_theory.checkpoints.form.layer import Layer, settings_of_layers
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
    tensors = {
        f"{PREFIX}{layer.module}.{name}": tensor
        for layer, _, factors in found
        for name, tensor in factors.items()
    }
    sizes = {layer.module: row.rank or row.components or 0 for layer, row, _ in found}
    config = FORMS[key].config(
        sizes, 0, **settings_of_layers(pair, [layer for layer, _, _ in found], base)
    )
    if key == LORA.key:
        # α is the rank of every module, so that ΔW is BA.
        config["alpha_pattern"] = config["rank_pattern"]
    return Adapter(tensors, config)
