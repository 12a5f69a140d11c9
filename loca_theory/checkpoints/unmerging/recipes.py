"""One recipe for a whole checkpoint, from what merges leave outside in all of its layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace

from loca_theory.checkpoints.form.layer import Layer
from loca_theory.checkpoints.unmerging.search import LayerChange, UnmergeCell, guess_of
from loca_theory.rounding import Misses, Recipe, best_merge, summed_misses


def agree_on_a_merge(
    layers: Sequence[Layer],
    changes: MutableMapping[str, LayerChange],
    dtype: str,
    run: Callable[[list[UnmergeCell]], Mapping[str, LayerChange]],
) -> None:
    """Replace the changes that another merge was found for than the one all layers together tell.

    In layers of small changes, merges by one rounding hold alike. The merge that leaves the fewest
    entries outside in all layers is verified in those; one where it does not hold, or leaves more
    outside by more than chance, keeps its own.

    Args:
        layers: The layers.
        changes: Their changes, by name; those that are verified are replaced.
        dtype: Type of the stored factors.
        run: Computes cells, with a guess each.
    """
    tried = list[tuple[Recipe, bool]]()
    while merge := best_merge(summed_misses(change.misses for change in changes.values())):
        agreed = merge.recipe, merge.base_was_rounded
        if agreed in tried:
            return
        tried.append(agreed)
        cells = [
            cell
            for layer in layers
            if layer.name in changes
            and (cell := _again(layer, changes[layer.name], dtype, merge)) is not None
        ]
        for name, change in run(cells).items():
            before = changes[name].row
            holds = change.row.recipe == merge.recipe and change.row.rank == before.rank
            misses = change.misses or changes[name].misses
            changes[name] = replace(change if holds else changes[name], misses=misses)


def _again(layer: Layer, change: LayerChange, dtype: str, merge: Misses) -> UnmergeCell | None:
    """The search in a layer with another merge as the guess; None if it already has that merge."""
    before = guess_of(change.row)
    if before is None or before.recipe is Recipe.ROUNDED_TWICE:
        return None
    guess = replace(before, recipe=merge.recipe, base_was_rounded=merge.base_was_rounded)
    if guess == before:
        return None
    return UnmergeCell(layer.name, layer, dtype, guess, change.row.form, with_cosines=False)
