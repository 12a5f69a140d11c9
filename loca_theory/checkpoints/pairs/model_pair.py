"""A base and a fine-tune as the model has them that the fine-tune is loaded into."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from loca_theory.checkpoints.pairs.as_loaded import AsLoaded, as_loaded
from loca_theory.checkpoints.pairs.linear_layers import Layer, end_others, layers_of, module_names
from loca_theory.checkpoints.pairs.loaded_model import LoadedModel, UnknownModelError
from loca_theory.checkpoints.pairs.opening import adapter_folder, check_any, open_pair
from loca_theory.checkpoints.pairs.pair import CheckpointPair
from loca_theory.checkpoints.pairs.selection import Selection
from loca_theory.checkpoints.weights.checkpoint import Checkpoint
from loca_theory.checkpoints.weights.sources import Source, is_path, open_checkpoint
from loca_theory.errors import InvalidArgumentError


def open_model_pair(
    base: Source, tuned: Source, selection: Selection, module: torch.nn.Module | None
) -> tuple[CheckpointPair, LoadedModel | None, str | None]:
    """Open a base and a fine-tune under the names of their model.

    Without a model the names are those of the checkpoints. An adapter has the names of the model
    that it was trained in. The last value says why names are not checked; it is usually None.
    """
    if adapter_folder(tuned) is not None:
        return open_pair(base, tuned, selection), None, None
    sides = open_checkpoint(tuned), open_checkpoint(base)
    is_from_files = is_path(tuned) and is_path(base)
    model = unchecked = None
    try:
        mine, other, model = _as_loaded(sides, (tuned, base), module)
        sides, unchecked = (mine, other), model.unchecked
    except UnknownModelError as error:
        if module is not None:
            raise InvalidArgumentError(str(error)) from error
        unchecked = str(error)
    pair = CheckpointPair(*sides, selection, is_from_files)
    return check_any(pair), model, unchecked


@dataclass(frozen=True)
class ModelLayers:
    """The matrices of a pair as layers of the model that the fine-tune is loaded into.

    Attributes:
        layers: Each matrix of the pair.
        has_ambiguous_names: Whether PEFT may take a list of the modules to fit others as well. The
            names in an adapter do not show which other modules the model has.
        unchecked: Why names are not those of a model but of the checkpoint; usually None.
    """

    layers: list[Layer]
    has_ambiguous_names: bool
    unchecked: str | None

    @classmethod
    def of(cls, pair: CheckpointPair, base: Source, tuned: Source) -> ModelLayers:
        """The layers of a pair that has the names of the checkpoints."""
        model = names = unchecked = None
        try:
            # An adapter has the names of its model.
            if pair.base is not None:
                view, _, model = _as_loaded((pair.tuned, pair.base), (tuned, base), None)
                names = view.renamed
        except UnknownModelError as error:
            unchecked = str(error)
        found = layers_of(pair, model, names)
        own = {one.module for one in found}
        is_ambiguous = pair.base is None or end_others(own, module_names(pair, model))
        return cls(found, is_ambiguous, unchecked)


def _as_loaded(
    sides: tuple[Checkpoint, Checkpoint],
    sources: tuple[Source, Source],
    module: torch.nn.Module | None,
) -> tuple[AsLoaded, AsLoaded, LoadedModel]:
    """The fine-tune and the base as the model has them."""
    # The fine-tuned side comes first: it may have a head that the base lacks.
    likes = [
        source if isinstance(source, torch.nn.Module) else side.config
        for source, side in zip(sources, sides, strict=True)
    ]
    reasons = []
    for like in likes if module is None else [module]:
        try:
            return as_loaded(*sides, like)
        except UnknownModelError as error:
            reasons.append(str(error))
    raise UnknownModelError(reasons[0])
