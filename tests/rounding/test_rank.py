"""Fits inside cells and ranks, of merges by PEFT and of changes that are not of low rank."""

import math

import numpy as np
import peft
import pytest
import torch
from torch import nn

from loca_theory.errors import InvalidArgumentError
from loca_theory.rounding import (
    FORMATS,
    Guess,
    Outcome,
    Recipe,
    count_signals,
    find_rank,
    fit_low_rank,
    format_of,
    identical_entries,
    merged,
    rounding_cells,
)
from loca_theory.rounding.search.pair import Pair
from loca_theory.sweeps import generator

SHAPE = (320, 256)


def normal(source, *shape):
    return torch.from_numpy(source.standard_normal(shape, dtype=np.float32))


def merge(config, dtype, steps, *, half=False, safe=False):
    """Base and fine-tune of a layer whose adapter, drawn at random, PEFT merged.

    The median change is ``steps`` median steps of the weights.
    """
    source = generator(0, "PEFT merges", str(config.peft_type))
    layer = nn.Linear(SHAPE[1], SHAPE[0], bias=False)
    layer.weight.data = 0.02 * normal(source, *SHAPE)
    model = nn.Sequential()
    model.add_module("layer", layer.to(dtype))
    base = layer.weight.detach().clone()
    model = peft.get_peft_model(model, config, autocast_adapter_dtype=not half)
    tuner = model.base_model.model.layer
    step = float(format_of(base).steps(base.double()).median())
    if isinstance(config, peft.ShiraConfig):
        weight = tuner.shira_weight["default"]
        weight.data = 3 * steps * step * normal(source, *weight.shape)
    else:
        b, a = (getattr(tuner, name)["default"].weight.data for name in ("lora_B", "lora_A"))
        for factor in (b, a):
            factor.copy_(normal(source, *factor.shape))
        size = float((b.float() @ a.float()).abs().median()) * tuner.scaling["default"]
        b *= steps * step / size
    return base, model.merge_and_unload(safe_merge=safe).layer.weight.detach()


def lora(rank, **changed):
    return peft.LoraConfig(r=rank, lora_alpha=rank, target_modules=["layer"], **changed)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("options", "steps", "recipe"),
    [
        ({}, 1, Recipe.EXACT),
        ({"safe": True}, 30, Recipe.ROUNDED_INCREMENT),
        ({"half": True}, 30, Recipe.ROUNDED_INCREMENT),
    ],
)
def test_the_rank_and_recipe_of_a_merge_by_peft(dtype, options, steps, recipe):
    base, tuned = merge(lora(6), dtype, steps, **options)
    result = find_rank(base, tuned)
    assert (result.outcome, result.rank) == (Outcome.FOUND, 6)
    assert result.form.dtype == dtype
    # In float16, steps of the increment are 1/30 of those of the weights: both recipes hold.
    assert result.recipe is recipe or (dtype is torch.float16 and steps == 30)
    assert identical_entries(base, tuned, result.fit.increment(), result.form, recipe) > 0.999


def exact_pair(rank, steps, name="bfloat16", shape=SHAPE):
    """Base, fine-tune and change of an exact merge."""
    form, source = FORMATS[name], generator(0, "exact pair", rank)
    base = form.round(0.02 * normal(source, *shape).double())
    change = (normal(source, shape[0], rank) @ normal(source, rank, shape[1])).double()
    change *= steps * form.steps(base).median() / change.abs().median()
    return base, form.round(base + change), change


@pytest.mark.parametrize("shape", [SHAPE, SHAPE[::-1]])
@pytest.mark.parametrize(
    ("name", "times"),
    # Half of the weights are subnormal in FP8, so that few cells are narrower than others.
    [("bfloat16", 20), ("float16", 20), ("float32", 20), ("float8_e4m3", 3)],
)
def test_the_fit_is_much_nearer_to_the_change_than_the_truncated_svd(name, times, shape):
    base, tuned, change = exact_pair(4, 1.0, name, shape)
    form, d = FORMATS[name], (tuned - base).float()
    cells = rounding_cells(base, tuned, form)
    fit, svd = fit_low_rank(d, cells, 4), fit_low_rank(d, cells, 4, steps=0)
    errors = [float((part.increment() - change).square().sum()) for part in (fit, svd)]
    assert errors[0] < errors[1] / times
    assert fit.inside == float(cells.contain(fit.increment()).double().mean())
    assert svd.inside < 0.98 < 0.999 < fit.inside
    assert identical_entries(base, tuned, fit.increment(), form) > 0.999


def test_ranks_of_steep_spectra_are_found():
    """Singular values from 1 to 1/32: the descent takes more steps than with equal ones."""
    form, source = FORMATS["bfloat16"], generator(0, "steep spectrum")
    base = form.round(0.02 * normal(source, *SHAPE).double())
    u, v = (torch.linalg.qr(normal(source, side, 6).double()).Q for side in SHAPE)
    change = u * 2.0 ** -torch.arange(6) @ v.mT
    change *= form.steps(base).median() / change.abs().median()
    assert find_rank(base, form.round(base + change)).rank == 6


@pytest.mark.parametrize("steps", [10, 100])
def test_steep_spectra_of_many_steps_are_believed(steps):
    """In float16, where the fit without the held-out entries stays at one distance for long."""
    form, source = FORMATS["float16"], generator(0, "steep in float16", 8)
    base = form.round(0.02 * normal(source, 384, 384).double())
    u, v = (torch.linalg.qr(normal(source, 384, 8).double()).Q for _ in range(2))
    change = u * torch.logspace(0, -2, 8).double() @ v.mT
    change *= steps * form.steps(base).median() / change.abs().median()
    result = find_rank(base, form.round(base + change))
    assert (result.rank, result.recipe) == (8, Recipe.EXACT)


def test_a_spectrum_too_steep_to_tell_is_not_taken_for_two_roundings():
    """Wide cells hold it at rank 18; narrow ones have signals left there."""
    form, source = FORMATS["bfloat16"], generator(0, "spectrum of 32")
    base = form.round(0.02 * normal(source, 384, 384).double())
    u, v = (torch.linalg.qr(normal(source, 384, 32).double()).Q for _ in range(2))
    change = u * torch.logspace(0, -math.log10(30), 32).double() @ v.mT
    change *= 0.5 * form.steps(base).median() / change.abs().median()
    result = find_rank(base, form.round(base + change))
    assert result.recipe is not Recipe.ROUNDED_TWICE


def test_a_base_of_more_bits_is_merged_as_it_is_or_rounded_first():
    form, source = FORMATS["bfloat16"], generator(0, "bases")
    base = 0.02 * normal(source, *SHAPE)
    change = 1e-4 * normal(source, SHAPE[0], 3) @ normal(source, 3, SHAPE[1])
    for is_rounded in (False, True):
        start = form.round(base.double()) if is_rounded else base
        result = find_rank(base, form.round(start + change.double()))
        assert (result.rank, result.base_was_rounded) == (3, is_rounded)
        assert result.recipe is Recipe.EXACT


def test_two_merges_are_one_of_the_sum_of_their_ranks():
    form = FORMATS["bfloat16"]
    base, once, _ = exact_pair(2, 3.0)
    twice = form.round(once + exact_pair(3, 3.0)[2])
    result = find_rank(base, twice)
    assert (result.rank, result.recipe) == (5, Recipe.ROUNDED_TWICE)
    cells = rounding_cells(base, twice, form)
    assert fit_low_rank((twice - base).float(), cells, 5).inside < 0.85


def test_the_rank_of_a_large_pair_is_searched_in_a_part_and_verified_in_all(monkeypatch):
    monkeypatch.setattr("loca_theory.rounding.search.pair._SEARCHED", 100)
    base, tuned, _ = exact_pair(3, 1.0)
    result = find_rank(base, tuned)
    assert (result.rank, result.recipe) == (3, Recipe.EXACT)
    assert result.fit.increment().shape == SHAPE
    assert result.changed == float((base != tuned).double().mean())
    # A second change, in a corner that the part misses, has another rank.
    row, column = torch.arange(1, 21).double(), torch.arange(1, 31).double()
    corner = tuned.clone()
    corner[:20, :30] += 1e-3 * row[:, None] * column
    assert find_rank(base, FORMATS["bfloat16"].round(corner)).rank in (None, 4)


@pytest.mark.parametrize("is_part", [False, True])
def test_rows_and_columns_without_a_change_are_left_out(is_part, monkeypatch):
    """As in a fused query, key and value of which one has an adapter."""
    if is_part:
        monkeypatch.setattr("loca_theory.rounding.search.pair._SEARCHED", 60)
    form = FORMATS["bfloat16"]
    base, _, change = exact_pair(3, 1.0)
    change[:150], change[:, :60] = 0, 0
    result = find_rank(base, form.round(base + change))
    assert (result.rank, result.recipe) == (3, Recipe.EXACT)
    fit = result.fit.increment()
    assert fit.shape == SHAPE
    assert not fit[:150].any()
    assert not fit[:, :60].any()
    cells = rounding_cells(base, form.round(base + change), form)
    assert fit_inside(fit, cells) == pytest.approx(result.fit.inside, abs=1e-12)
    changed = int((form.round(base + change) != base).count_nonzero())
    assert result.unknowns == 3 * (170 + 196) / changed


def test_a_change_in_an_eighth_of_the_rows_of_a_large_pair_was_rounded_once(monkeypatch):
    """A part of all rows would hold 12 changed ones."""
    monkeypatch.setattr("loca_theory.rounding.search.pair._SEARCHED", 100)
    base, _, change = exact_pair(3, 1.0, shape=(640, 256))
    change[80:] = 0
    result = find_rank(base, FORMATS["bfloat16"].round(base + change))
    assert (result.rank, result.recipe) == (3, Recipe.EXACT)
    assert result.unknowns < 0.1


def fit_inside(increment, cells):
    return float(cells.contain(increment).double().mean())


def test_a_few_unchanged_rows_by_chance_are_kept():
    """With some changed entries per row, the cells of a row without any say something, too."""
    base, tuned, _ = exact_pair(1, 0.01)
    pair = Pair.of(base, tuned)
    assert not (base != tuned).any(dim=1).all()
    rows, columns = pair.changed_sides()
    assert (len(rows), len(columns)) == SHAPE


@pytest.mark.parametrize("shape", [(24, 24), (600, 9)])
def test_of_small_matrices_it_cannot_be_told(shape):
    """Ranks to 6 could be told at most: those above, and other changes, look alike."""
    for rank in (8, 9):
        base, tuned, _ = exact_pair(rank, 3.0, shape=shape)
        assert find_rank(base, tuned).outcome is Outcome.TOO_SMALL
    base, tuned, _ = exact_pair(1, 3.0, shape=(64, 64))
    assert find_rank(base, tuned).rank == 1


@pytest.mark.parametrize(("rank", "is_confirmed"), [(3, True), (2, False), (4, False), (90, False)])
def test_a_guess_is_verified_and_a_wrong_one_does_no_harm(rank, is_confirmed):
    base, tuned, _ = exact_pair(3, 1.0)
    result = find_rank(base, tuned, guess=Guess(rank, Recipe.EXACT))
    assert (result.rank, result.is_confirmed) == (3, is_confirmed)
    assert result.held_out > 0.6
    other = find_rank(base, tuned, guess=Guess(3, Recipe.ROUNDED_TWICE))
    assert (other.rank, other.recipe, other.is_confirmed) == (3, Recipe.EXACT, False)


def test_a_guess_is_verified_in_a_part_and_then_in_all(monkeypatch):
    monkeypatch.setattr("loca_theory.rounding.search.pair._SEARCHED", 100)
    base, tuned, _ = exact_pair(3, 1.0)
    result = find_rank(base, tuned, guess=Guess(3, Recipe.EXACT))
    assert result.is_confirmed
    assert result.fit.increment().shape == SHAPE
    row, column = torch.arange(1, 21).double(), torch.arange(1, 31).double()
    corner = tuned.clone()
    corner[:20, :30] += 1e-3 * row[:, None] * column
    guess = Guess(3, Recipe.EXACT)
    checked = find_rank(base, FORMATS["bfloat16"].round(corner), guess=guess)
    assert not checked.is_confirmed


# --- without a claim ---


def independent(source, base):
    return 1e-4 * normal(source, *SHAPE)


def power_law(source, base):
    u, v = (torch.linalg.qr(normal(source, side, 256)).Q for side in SHAPE)
    return 0.02 * u * torch.arange(1, 257) ** -0.7 @ v.mT


def cosines(source, base):
    from loca_theory.transforms import idct2

    spectrum = torch.zeros(SHAPE)
    chosen = torch.from_numpy(source.choice(spectrum.numel(), 500, replace=False))
    spectrum.view(-1)[chosen] = 2e-3 * normal(source, 500)
    return idct2(spectrum)


@pytest.mark.parametrize("make", [independent, power_law, cosines])
def test_other_changes_are_not_claimed(make):
    form, source = FORMATS["bfloat16"], generator(0, "other changes", make.__name__)
    base = form.round(0.02 * normal(source, *SHAPE).double())
    result = find_rank(base, form.round(base + make(source, base).double()))
    assert result.rank is None
    assert result.fit is None
    assert result.outcome is not Outcome.FOUND


@pytest.mark.parametrize(
    "config", [lora(4, use_dora=True), peft.ShiraConfig(r=4, target_modules=["layer"])]
)
@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")  # PEFT's SHiRA
def test_other_adapters_of_peft_are_not_claimed(config):
    base, tuned = merge(config, torch.bfloat16, 1)
    assert find_rank(base, tuned).outcome is not Outcome.FOUND


def test_training_that_rounds_every_step_is_not_claimed():
    source, form = generator(0, "rounded steps"), FORMATS["bfloat16"]
    base = tuned = form.round(0.02 * normal(source, *SHAPE).double())
    b, a = normal(source, SHAPE[0], 2).double(), normal(source, 2, SHAPE[1]).double()
    for _ in range(20):
        tuned = form.round(tuned + 4e-5 * b @ a)
    assert find_rank(base, tuned).outcome is not Outcome.FOUND


def test_too_few_changed_entries_leave_the_rank_open():
    base, tuned, _ = exact_pair(60, 0.3)
    assert find_rank(base, tuned).outcome is Outcome.UNDECIDED


@pytest.mark.parametrize("steps", [0.3, 3.0, 30.0])
def test_changes_that_their_entries_leave_open_are_not_said_to_be_of_too_few(steps):
    """At width 128, all weights and two merges look like a change of a high rank."""
    shape, form = (128, 128), FORMATS["bfloat16"]
    base, once, _ = exact_pair(4, steps, shape=shape)
    twice = form.round(once + exact_pair(5, steps, shape=shape)[2])
    source = generator(0, "all weights", 128)
    u, v = (torch.linalg.qr(normal(source, *shape)).Q for _ in range(2))
    change = (u * torch.arange(1, 129) ** -0.7 @ v.mT).double()
    change *= steps * form.steps(base).median() / change.abs().median()
    undecided = (Outcome.UNDECIDED, None)
    result = find_rank(base, twice)
    assert (result.outcome, result.rank) in (undecided, (Outcome.FOUND, 9))
    result = find_rank(base, form.round(base + change))
    assert (result.outcome, result.rank) == undecided


# --- parts ---


def test_signals_are_singular_values_above_those_of_noise():
    source = generator(0, "signals")
    noise = normal(source, 300, 200)
    u, v = (torch.linalg.qr(normal(source, side, 3)).Q for side in (300, 200))
    before = noise.clone()
    assert count_signals(noise) == 0
    assert torch.equal(noise, before)
    # Twice and three times the edge of the noise; and a third of it.
    edge = 300**0.5 + 200**0.5
    assert count_signals(noise + u * torch.tensor([3.0, 2.0, 0.3]) * edge @ v.mT) == 2


def test_a_merge_rounds_as_its_recipe_says():
    form = FORMATS["bfloat16"]
    base, increment = torch.tensor([[1.0]]), torch.tensor([[2.0**-8 + 2.0**-17]])
    assert float(merged(base, increment, form)) == 1 + 2.0**-7
    assert float(merged(base, increment, form, Recipe.ROUNDED_INCREMENT)) == 1
    assert identical_entries(base, base, increment, form) == 0
    assert identical_entries(base, base, increment, form, Recipe.ROUNDED_INCREMENT) == 1


def test_what_cannot_be_compared_is_one_line():
    w = torch.full((3, 4), 1.0)
    nan = w.clone()
    nan[0, 0] = math.nan
    third = torch.full((3, 4), 1 / 3)
    for base, tuned, message in (
        (nan, w, "base must be finite: 1 of 12 entries are NaN"),
        (w, nan, "tuned must be finite: 1 of 12"),
        (w, w.to(torch.int8), "tuned must be of a floating type, not torch.int8; dequantise"),
        (w, w.mT, r"one shape, not \(3, 4\) and \(4, 3\); pass the same matrix"),
        (w[0], w[0], r"base must be a matrix with entries, not of shape \(4,\)"),
        (w, w.bfloat16(), "no entry changed between base and tuned, both rounded to"),
        (
            third.bfloat16(),
            third,
            "tuned has the 24 bits of float32 and base those of bfloat16",
        ),
        (third, third.double() + 1e-12, "tuned has more than 24 significant bits"),
    ):
        with pytest.raises(InvalidArgumentError, match=message) as raised:
            find_rank(base, tuned)
        assert "\n" not in str(raised.value)
    cells = rounding_cells(w, w, FORMATS["bfloat16"])
    for rank in (0, 4):
        with pytest.raises(InvalidArgumentError, match=r"rank must be from 1 to 3 .*not"):
            fit_low_rank(w, cells, rank)
