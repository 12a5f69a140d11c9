"""Entries of a fine-tune in few bits that PEFT gives back to the bit, by the way it merges."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from loca_theory.checkpoints.change.opening import open_pair
from loca_theory.checkpoints.change.selection import MatrixSelection
from loca_theory.checkpoints.extraction.loading import built, with_adapter, with_merged_adapter
from loca_theory.checkpoints.extraction.rows import ExtractedMatrix
from loca_theory.checkpoints.source.checkpoint import Checkpoint
from loca_theory.checkpoints.source.open import Source
from loca_theory.errors import InvalidArgumentError
from loca_theory.rounding import Format, find_format

_ROWS = 256
# Whether the adapter is widened to float32, and whether the merge is safe, by field of the row.
_RECIPES = {
    "identical": (True, False),
    "identical_half": (False, False),
    "identical_safe": (True, True),
    "identical_half_safe": (False, True),
}


def count_identical(
    rows: Sequence[ExtractedMatrix],
    adapters: str | Path,
    base: Source,
    tuned: Source,
    model: torch.nn.Module | None,
) -> dict[str, dict[str, float]]:
    """Fractions of identical entries by matrix and field, of the matrices with rounding cells.

    The model of the base is loaded in the format of the fine-tune, once for each recipe. A base
    that has more bits, or a format in which nothing is added, is merged in float32 and then cast.

    Args:
        rows: The matrices.
        adapters: Folder with a folder of each adapter.
        base: The base.
        tuned: The fine-tune.
        model: The model, if neither tells it.
    """
    counts: dict[str, dict[str, float]] = {}
    for name in sorted({row.format for row in rows if row.format}):
        pair = open_pair(base, tuned, MatrixSelection().of_extraction(), model)
        form = find_format(name)
        if pair.base is None:
            raise InvalidArgumentError(
                "an adapter has no entries to compare; pass the merged model as the fine-tune"
            )
        before, after = pair.base, pair.tuned
        matrices = [row.name for row in rows if row.format == name]
        is_held = form.dtype.itemsize == 2 and all(form.holds(before.load(m)) for m in matrices)
        dtype = form.dtype if is_held else torch.float32
        source = base if model is None else model
        for field, (wide, safe) in _RECIPES.items():
            adapted = built(pair.model, source, before, dtype)
            for folder in sorted(Path(adapters).iterdir()):
                adapted = with_merged_adapter(with_adapter(adapted, folder, wide=wide), safe=safe)
            weights = adapted.state_dict()
            for matrix in matrices:
                same = _identical(weights[matrix], after, matrix, form)
                counts.setdefault(matrix, {})[field] = same
    return counts


def _identical(weight: torch.Tensor, tuned: Checkpoint, name: str, form: Format) -> float:
    """Fraction of the entries that are those of a fine-tune, in its format."""
    goal = tuned.load(name)
    parts = zip(weight.split(_ROWS), goal.split(_ROWS), strict=True)
    same = sum(int((form.round(w.double()) == g.double()).count_nonzero()) for w, g in parts)
    return same / goal.numel()
