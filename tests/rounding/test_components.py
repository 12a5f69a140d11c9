"""Cosine components inside cells: values, locations, their number, and no claim on low rank."""

import numpy as np
import pytest
import torch

from loca_theory.errors import InvalidArgumentError
from loca_theory.rounding import (
    FORMATS,
    CosineFit,
    Guess,
    Outcome,
    Recipe,
    find_components,
    fit_cosines,
    identical_entries,
    rounding_cells,
)
from loca_theory.sweeps import generator
from loca_theory.transforms import dct2, idct2

SHAPE = (128, 192)
FORM = FORMATS["bfloat16"]


def pair(components, steps, *, is_rounded=False):
    """Base, fine-tune, change and true locations of a merge of LoCA in median steps."""
    source = generator(0, "cosine pair", components)
    base = FORM.round(torch.from_numpy(0.02 * source.standard_normal(SHAPE)))
    spectrum = torch.zeros(SHAPE, dtype=torch.float64)
    chosen = torch.from_numpy(source.choice(spectrum.numel(), components, replace=False))
    spectrum.view(-1)[chosen] = torch.from_numpy(source.standard_normal(components))
    change = idct2(spectrum)
    change *= steps * FORM.steps(base).median() / change.abs().median()
    added = FORM.round(change) if is_rounded else change
    return base, FORM.round(base + added), change, chosen


@pytest.mark.parametrize("steps", [0.3, 1, 10])
def test_the_fit_finds_the_locations_and_is_much_nearer_than_the_largest_of_d(steps):
    base, tuned, change, chosen = pair(150, steps)
    d, cells = (tuned - base).float(), rounding_cells(base, tuned, FORM)
    fit, largest = (fit_cosines(d, cells, 150, turns=turns) for turns in (12, 0))
    errors = [float((part.increment() - change).square().sum()) for part in (fit, largest)]
    assert errors[0] < errors[1] / 20
    assert fit.inside == float(cells.contain(fit.increment()).double().mean()) > 0.999
    locations = fit.indices[:, 0] * SHAPE[1] + fit.indices[:, 1]
    assert np.isin(chosen, locations).mean() > 0.95
    assert identical_entries(base, tuned, fit.increment(), FORM) > 0.999


def test_without_a_turn_they_are_the_largest_coefficients_of_d():
    base, tuned, _, _ = pair(40, 1)
    d = (tuned - base).float()
    fit = fit_cosines(d, rounding_cells(base, tuned, FORM), 40, turns=0)
    spectrum = dct2(d)
    threshold = spectrum.abs().flatten().sort(descending=True).values[39]
    retained = torch.where(spectrum.abs() >= threshold, spectrum, 0)
    assert torch.allclose(fit.increment(), idct2(retained), atol=1e-9)
    assert isinstance(fit, CosineFit)


@pytest.mark.parametrize(
    ("steps", "is_rounded", "recipe"),
    [(1, False, Recipe.EXACT), (30, True, Recipe.ROUNDED_INCREMENT)],
)
def test_the_number_of_components_is_read_off(steps, is_rounded, recipe):
    base, tuned, _, _ = pair(150, steps, is_rounded=is_rounded)
    result = find_components(base, tuned)
    assert (result.outcome, result.recipe) == (Outcome.FOUND, recipe)
    # The search resolves 2%, and the smallest coefficients move no entry.
    assert 0.93 * 150 <= result.components <= 1.03 * 150
    assert result.unknowns == 2 * result.components / int((base != tuned).count_nonzero())


def test_a_guess_gives_its_number_and_a_wrong_one_does_no_harm():
    base, tuned, _, _ = pair(150, 1)
    assert find_components(base, tuned, guess=Guess(150, Recipe.EXACT)).components == 150
    for size, recipe in ((75, Recipe.EXACT), (10**6, Recipe.EXACT)):
        result = find_components(base, tuned, guess=Guess(size, recipe))
        assert 0.93 * 150 <= result.components <= 1.03 * 150


@pytest.mark.parametrize("is_rounded", [False, True])
def test_a_base_of_more_bits_is_merged_as_it_is_or_rounded_first(is_rounded):
    source = generator(0, "wide base of cosines")
    wide = torch.from_numpy(0.02 * source.standard_normal(SHAPE, dtype=np.float32))
    _, _, change, _ = pair(40, 3)
    start = FORM.round(wide.double()) if is_rounded else wide.double()
    result = find_components(wide, FORM.round(start + change))
    assert result.base_was_rounded == is_rounded
    assert 0.93 * 40 <= result.components <= 1.03 * 40


def test_too_many_components_cannot_be_told():
    base, tuned, _, _ = pair(2500, 1)
    assert find_components(base, tuned).outcome is Outcome.TOO_FEW_CHANGED


@pytest.mark.parametrize("kind", ["low rank", "independent"])
def test_other_changes_are_not_claimed(kind):
    source = generator(0, "no cosines", kind)
    base = FORM.round(torch.from_numpy(0.02 * source.standard_normal(SHAPE)))
    sides = (2, SHAPE[1]) if kind == "low rank" else SHAPE
    change = 1e-4 * torch.from_numpy(source.standard_normal(sides))
    if kind == "low rank":
        change = torch.from_numpy(source.standard_normal((SHAPE[0], 2))) @ change
    result = find_components(base, FORM.round(base + change))
    assert result.outcome is not Outcome.FOUND
    assert result.components is None


def test_what_cannot_be_searched_is_one_line():
    w = torch.ones(2, 3)
    with pytest.raises(InvalidArgumentError, match="no entry changed between base and tuned"):
        find_components(w, w)
    for components in (0, 7):
        with pytest.raises(InvalidArgumentError, match=r"components must be from 1 to 6 .*not"):
            fit_cosines(w, rounding_cells(w, w, FORM), components)
