r"""Which recipe merged a change, from how many entries each fails to reproduce.

A merge by a recipe gives back the entries in its cells, and no others. The cells of an exact and of
a rounded increment are equally wide, so fits of one size in both can be compared. Let them leave k₁
and k₂ of n entries outside their cells. If both recipes were as likely, an entry that only one of
them leaves outside would be either's with equal probability, so k₁ - k₂ has a standard deviation of
at most √(k₁ + k₂). A descent ends when 10⁻⁴ n entries are outside, so smaller differences are not
evidence. A recipe is clearly better if it leaves fewer outside by more than 2√(k₁ + k₂) + 10⁻⁴ n.

Counts of independent matrices add up: what one matrix leaves open, a checkpoint may tell.

Source: Q. McNemar, Psychometrika 12 (1947), 153-157, for the comparison of paired proportions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loca_theory.rounding.cells import Recipe
from loca_theory.rounding.fit.low_rank import ENOUGH

_SIGNIFICANT = 2


@dataclass(frozen=True)
class Misses:
    """Entries that a merge does not give back, after a fit in its cells.

    Attributes:
        recipe: How the merge rounds.
        base_was_rounded: Whether it begins from a base rounded to the format.
        outside: Number of entries outside of their cells.
        entries: Number of entries that were looked at.
    """

    recipe: Recipe
    base_was_rounded: bool
    outside: int
    entries: int

    def is_clearly_better(self, other: Misses) -> bool:
        """Whether fewer entries are outside than by another merge, by more than chance."""
        margin = _SIGNIFICANT * math.sqrt(self.outside + other.outside) + ENOUGH * self.entries
        return other.outside - self.outside > margin


def best_merge(misses: Sequence[Misses]) -> Misses | None:
    """The first merge that is not clearly worse than another; None if there are none."""
    if not misses:
        return None
    fewest = min(misses, key=lambda merge: merge.outside)
    return next(merge for merge in misses if not fewest.is_clearly_better(merge))


def summed_misses(matrices: Iterable[Sequence[Misses]]) -> list[Misses]:
    """The misses of each merge, over all matrices in which merges were compared.

    Where a base has no more bits than the fine-tune, it is the same rounded or not.
    """
    compared = [misses for misses in matrices if misses]
    merges = dict.fromkeys((m.recipe, m.base_was_rounded) for misses in compared for m in misses)
    totals = []
    for recipe, base_was_rounded in merges:
        outside = entries = 0
        for misses in compared:
            of_recipe = {m.base_was_rounded: m for m in misses if m.recipe is recipe}
            merge = of_recipe.get(base_was_rounded) or of_recipe[False]
            outside, entries = outside + merge.outside, entries + merge.entries
        totals.append(Misses(recipe, base_was_rounded, outside, entries))
    return totals
