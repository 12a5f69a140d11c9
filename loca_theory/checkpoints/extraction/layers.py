"""Which layers of a fine-tune get an adapter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loca_theory.checkpoints.change.comparable import nothing_left
from loca_theory.checkpoints.change.pair import CheckpointPair
from loca_theory.checkpoints.extraction.saved_modules import SavedModules
from loca_theory.checkpoints.form.layer import Layer, layers_of
from loca_theory.checkpoints.sizes.size import AdapterSize
from loca_theory.checkpoints.source.checkpoint import Skipped
from loca_theory.checkpoints.source.layouts import by
from loca_theory.errors import InvalidArgumentError


def choose_layers(
    pair: CheckpointPair, size: AdapterSize, saved: SavedModules
) -> tuple[list[Layer], list[Skipped]]:
    """The layers that can have an adapter of this size, and the tensors that are not part of it."""
    # A tensor that is stored whole is part of the adapter, so it is not skipped.
    skipped = [row for row in pair.skipped if row.name not in saved.tensors]
    layers = []
    for layer in layers_of(pair):
        if layer.weight in saved.tensors:
            continue
        if (obstacle := size.obstacle(layer)) is None:
            layers.append(layer)
        else:
            skipped.append(Skipped.of(layer.name, obstacle))
    check_any(layers, saved, skipped)
    if len(size.forms) == 1:
        size.forms[0].check_rank(size.rank or 0, layers)
    if pair.base is not None:
        _check_shapes(layers, pair)
    return layers, skipped


def check_any(left: Sequence[Any], saved: SavedModules, skipped: Sequence[Skipped]) -> None:
    """Refuse an extraction of which nothing is left."""
    if left:
        return
    if saved.tensors and not skipped:
        raise InvalidArgumentError(
            "save_modules stores every layer whole, so that none is left to adapt; match "
            "fewer modules"
        )
    raise nothing_left(skipped, "layer is left to extract")


def _check_shapes(layers: Sequence[Layer], pair: CheckpointPair) -> None:
    """Refuse a model with weights of other shapes."""
    model = pair.model
    stored = {layer.weight: pair.matrices[layer.name].entry.shape for layer in layers}
    wrong = [
        f"{name} ({by(shape)})" for name, shape in stored.items() if model.shapes.get(name) != shape
    ]
    if wrong:
        raise InvalidArgumentError(
            f"{model.title} has these weights in other shapes: {', '.join(wrong)}; "
            'pass the right model=..., or exclude="..."'
        )
