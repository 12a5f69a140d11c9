"""A base and a fine-tune as the model has them that the fine-tune is loaded into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from loca_theory.checkpoints.as_loaded import as_loaded
from loca_theory.checkpoints.checkpoint import Checkpoint
from loca_theory.checkpoints.loaded_model import LoadedModel, UnknownModelError
from loca_theory.checkpoints.pairs import CheckpointPair, adapter_folder, check_any
from loca_theory.checkpoints.selection import Selection
from loca_theory.checkpoints.sources import Source, is_path, open_checkpoint
from loca_theory.errors import InvalidArgumentError

if TYPE_CHECKING:
    import torch


def open_model_pair(
    base: Source, tuned: Source, selection: Selection, module: torch.nn.Module | None
) -> tuple[CheckpointPair, LoadedModel | None, str | None]:
    """Open two checkpoints of full weights.

    Args:
        base: The base.
        tuned: The fine-tuned checkpoint.
        selection: Which matrices to compare, by the names in the model.
        module: The model, if the caller passed it.

    Returns:
        The pair; the model, or None, and then the names are those of the checkpoints; why they are
        not checked, usually None.

    Raises:
        InvalidArgumentError: the fine-tuned checkpoint is an adapter, ``module`` is another model,
            or no matrix is left.
    """
    if adapter_folder(tuned) is not None:
        msg = "the fine-tuned checkpoint (tuned) is an adapter already; pass one with full weights"
        raise InvalidArgumentError(msg)
    sides = open_checkpoint(tuned), open_checkpoint(base)
    is_from_files = is_path(tuned) and is_path(base)
    # The fine-tuned side comes first: it may have a head that the base lacks.
    likes = [module] if module is not None else [_like(tuned, sides[0]), _like(base, sides[1])]
    reasons = []
    for like in likes:
        try:
            mine, other, model = as_loaded(*sides, like)
        except UnknownModelError as error:
            reasons.append(str(error))
        else:
            pair = check_any(CheckpointPair(mine, other, selection, is_from_files))
            return pair, model, model.unchecked
    if module is not None:
        raise InvalidArgumentError(reasons[0])
    pair = check_any(CheckpointPair(sides[0], sides[1], selection, is_from_files))
    return pair, None, reasons[0]


def _like(source: Source, checkpoint: Checkpoint) -> torch.nn.Module | Mapping[str, Any]:
    """What a source says of the model."""
    import torch

    return source if isinstance(source, torch.nn.Module) else checkpoint.config
