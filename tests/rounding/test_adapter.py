"""The form of an adapter: low rank or cosine components, and neither on the other."""

import numpy as np
import pytest
import torch

from loca_theory.rounding import (
    FORMATS,
    ComponentSearch,
    Guess,
    Outcome,
    RankSearch,
    Recipe,
    find_adapter,
    find_components,
    find_rank,
)
from loca_theory.sweeps import generator
from loca_theory.transforms import idct2

SHAPE = (128, 160)
FORM = FORMATS["bfloat16"]
DRAWS = 20


def pair(kind, draw, *, size, steps):
    """Base and fine-tune; the median change is ``steps`` median steps of the weights."""
    source = generator(0, "forms", kind, draw)
    base = FORM.round(torch.from_numpy(0.02 * source.standard_normal(SHAPE)))
    if kind == "LoRA":
        factors = (source.standard_normal(sides) for sides in ((SHAPE[0], size), (size, SHAPE[1])))
        b, a = map(torch.from_numpy, factors)
        change = b @ a
    else:
        spectrum = torch.zeros(SHAPE, dtype=torch.float64)
        chosen = torch.from_numpy(source.choice(spectrum.numel(), size, replace=False))
        spectrum.view(-1)[chosen] = torch.from_numpy(source.standard_normal(size))
        change = idct2(spectrum)
    change *= steps * FORM.steps(base).median() / change.abs().median()
    return base, FORM.round(base + change)


@pytest.mark.parametrize("draw", range(DRAWS))
def test_neither_is_claimed_of_the_other(draw):
    """Twenty of each, of sizes that differ: those with fewer components than rank have its rank."""
    steps = (0.1, 0.5, 2.0, 30.0)[draw % 4]
    base, tuned = pair("LoRA", draw, size=1 + draw % 5, steps=steps)
    assert find_components(base, tuned).outcome is Outcome.NOT_OF_FORM
    base, tuned = pair("LoCA", draw, size=150 + 20 * draw, steps=steps)
    assert find_rank(base, tuned).fit is None


@pytest.mark.parametrize(("kind", "size"), [("LoRA", 4), ("LoCA", 200), ("LoCA", 5)])
def test_the_form_is_read_off(kind, size):
    """Five components are a change of rank 5, of 10 unknowns and not of 1,440."""
    result = find_adapter(*pair(kind, 0, size=size, steps=1.0))
    assert isinstance(result, RankSearch if kind == "LoRA" else ComponentSearch)
    fitted = result.rank if isinstance(result, RankSearch) else result.components
    assert 0.93 * size <= fitted <= 1.03 * size


def test_components_are_looked_for_if_they_may_be():
    base, tuned = pair("LoCA", 0, size=200, steps=1.0)
    ranks = find_adapter(base, tuned, with_cosines=False)
    assert isinstance(ranks, RankSearch)
    assert ranks.fit is None
    guess = Guess(200, Recipe.EXACT)
    result = find_adapter(base, tuned, guess=guess, is_cosine=True, with_cosines=False)
    assert result.components == 200
    base, tuned = pair("LoRA", 0, size=4, steps=1.0)
    assert find_adapter(base, tuned, guess=guess, is_cosine=True).rank == 4
    assert np.isfinite(find_adapter(base, tuned, guess=Guess(4, Recipe.EXACT)).held_out)
