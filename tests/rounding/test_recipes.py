"""Which recipe merged a change, from the entries that merges leave outside."""

import numpy as np
import pytest
import torch

from loca_theory.rounding import (
    FORMATS,
    Guess,
    Misses,
    Recipe,
    best_merge,
    find_components,
    find_rank,
    fit_low_rank,
    merged,
    rounding_cells,
    summed_misses,
)
from loca_theory.sweeps import generator
from loca_theory.transforms import idct2

EXACT, INCREMENT = Recipe.EXACT, Recipe.ROUNDED_INCREMENT
FORM, SHAPE = FORMATS["bfloat16"], (256, 224)


def misses(recipe, outside, *, base_was_rounded=False, entries=10_000):
    return Misses(recipe, base_was_rounded, outside, entries)


def test_equally_likely_recipes_are_told_apart_by_chance_in_one_of_forty():
    """Independent Poisson counts of one mean: two standard deviations on one side."""
    source, draws = generator(0, "misses"), 4000
    pairs = source.poisson(400, (draws, 2)).tolist()
    better = sum(misses(EXACT, a).is_clearly_better(misses(EXACT, b)) for a, b in pairs)
    # At most Φ(-2) = 0.0228 of them, and four standard deviations of the count.
    assert 0 < better < draws * 0.0228 + 4 * (draws * 0.0228) ** 0.5


def test_differences_within_the_end_of_a_descent_say_nothing():
    """A descent ends when 1e-4 of the entries are outside."""
    few, many = (misses(EXACT, count, entries=10**7) for count in (0, 1000))
    assert not few.is_clearly_better(many)
    assert few.is_clearly_better(misses(EXACT, 1100, entries=10**7))


def test_of_merges_that_leave_as_many_outside_the_first_is_taken():
    assert best_merge([]) is None
    assert best_merge([misses(EXACT, 8), misses(INCREMENT, 5)]).recipe is EXACT
    assert best_merge([misses(EXACT, 80), misses(INCREMENT, 5)]).recipe is INCREMENT


def test_counts_of_matrices_add_up_and_decide_together():
    """Four matrices, of which none tells the recipe."""
    layer = [misses(EXACT, 14), misses(INCREMENT, 5)]
    assert best_merge(layer).recipe is EXACT
    total = summed_misses([layer, [], layer, layer, layer])
    assert total == [misses(EXACT, 56, entries=40_000), misses(INCREMENT, 20, entries=40_000)]
    assert best_merge(total).recipe is INCREMENT


def test_a_base_of_few_bits_is_the_same_rounded_or_not():
    wide = [misses(EXACT, 90), misses(EXACT, 2, base_was_rounded=True)]
    total = summed_misses([wide, [misses(EXACT, 3)]])
    assert [merge.outside for merge in total] == [93, 5]
    assert best_merge(total).base_was_rounded


def low_rank(source):
    return source.standard_normal((SHAPE[0], 4)) @ source.standard_normal((4, SHAPE[1]))


def cosines(source):
    spectrum = torch.zeros(SHAPE, dtype=torch.float64)
    chosen = torch.from_numpy(source.choice(spectrum.numel(), 200, replace=False))
    spectrum.view(-1)[chosen] = torch.from_numpy(source.standard_normal(200))
    return idct2(spectrum).numpy()


def pair(change, steps, recipe):
    """A base and its merge with a change of this median in median steps of the weights."""
    source = generator(0, "recipes")
    base = FORM.round(0.02 * torch.from_numpy(source.standard_normal(SHAPE)))
    increment = torch.from_numpy(np.ascontiguousarray(change(source)))
    increment = increment * steps * FORM.steps(base).median() / increment.abs().median()
    return base, merged(base, increment, FORM, recipe)


@pytest.mark.parametrize("recipe", [EXACT, INCREMENT])
def test_the_recipe_of_small_changes_is_that_of_fewer_misses(recipe):
    """Increments of three steps: the other recipe leaves under 0.2% outside, too few to exclude."""
    base, tuned = pair(low_rank, 2.0, recipe)
    result = find_rank(base, tuned)
    assert (result.rank, result.recipe) == (4, recipe)
    counts = {merge.recipe: merge.outside for merge in result.misses}
    for other, outside in counts.items():
        cells = rounding_cells(base, tuned, FORM, other)
        fit = fit_low_rank((tuned - base).float(), cells, 4)
        assert outside == round((1 - fit.inside) * base.numel())
    assert min(counts, key=counts.get) is recipe
    wrong = INCREMENT if recipe is EXACT else EXACT
    guessed = find_rank(base, tuned, guess=Guess(4, wrong))
    assert (guessed.recipe, guessed.is_confirmed) == (recipe, False)


def test_components_compare_merges_too():
    base, tuned = pair(cosines, 3.0, INCREMENT)
    result = find_components(base, tuned)
    assert result.recipe is INCREMENT
    counts = {merge.recipe: merge.outside for merge in result.misses}
    assert counts[INCREMENT] < counts[EXACT]
    guessed = find_components(base, tuned, guess=Guess(result.components, EXACT))
    assert guessed.recipe is INCREMENT
