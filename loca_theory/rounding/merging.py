"""Merge an increment as a recipe says, and count the entries that come out as stored."""

from __future__ import annotations

import torch

from loca_theory.rounding.cells import Recipe
from loca_theory.rounding.formats import Format

_ROWS = 256


def merged(
    base: torch.Tensor, increment: torch.Tensor, form: Format, recipe: Recipe = Recipe.EXACT
) -> torch.Tensor:
    """rd(W + Δ), or rd(W + rd(Δ)) for every recipe but *exact*.

    Args:
        base: W, shape (p, q), of any floating type.
        increment: Δ, of the same shape.
        form: The format to round to.
        recipe: How to round.

    Returns:
        Numbers of the format in float64, rounded from exact sums up to the rounding of float64.
    """
    addend = increment.double()
    if recipe is not Recipe.EXACT:
        addend = form.round(addend)
    return form.round(base.double() + addend)


def identical_entries(
    base: torch.Tensor,
    tuned: torch.Tensor,
    increment: torch.Tensor,
    form: Format,
    recipe: Recipe = Recipe.EXACT,
) -> float:
    """Fraction of the entries that a merge of an increment gives back to the bit.

    Args:
        base: W, shape (p, q).
        tuned: W' as stored.
        increment: Δ as the merge computes it, of the same shape.
        form: The format of the fine-tune.
        recipe: How to merge.
    """
    parts = zip(base.split(_ROWS), tuned.split(_ROWS), increment.split(_ROWS), strict=True)
    count = sum(
        int((merged(w, rows, form, recipe) == image.double()).count_nonzero())
        for w, image, rows in parts
    )
    return count / tuned.numel()
