"""Guards of a claim: the jump, scaled rows, and held-out entries."""

import numpy as np
import pytest
import torch

from loca_theory.rounding import FORMATS, Recipe, find_rank, fit_low_rank, rounding_cells
from loca_theory.rounding.cells import difference
from loca_theory.rounding.search.candidates import Candidate
from loca_theory.rounding.search.held_out import hold_out
from loca_theory.rounding.search.signals import scaling_signal
from loca_theory.sweeps import generator

SHAPE = (320, 256)
FORM = FORMATS["bfloat16"]


def normal(source, *shape):
    return torch.from_numpy(source.standard_normal(shape))


def pair(rank, steps):
    """Base and change of low rank in median steps."""
    source = generator(0, "candidates", rank)
    base = FORM.round(0.02 * normal(source, *SHAPE))
    change = normal(source, SHAPE[0], rank) @ normal(source, rank, SHAPE[1])
    return base, change * steps * FORM.steps(base).median() / change.abs().median()


def candidate(base, tuned, recipe=Recipe.EXACT):
    return Candidate(base, tuned, FORM, recipe, base_was_rounded=False)


def test_a_claim_is_of_the_smallest_rank_with_a_jump():
    base, change = pair(3, 1.0)
    merge = candidate(base, FORM.round(base + change))
    assert merge.claim(merge.fit(5)).fit.rank == 3
    unchanged = candidate(base, base)
    assert unchanged.claim(unchanged.fit(1)) is None, "all entries are inside without a change"


def test_a_fit_that_creeps_up_is_not_claimed():
    """Cells of the wrong recipe: further ranks fit what it leaves outside, a little each."""
    base, change = pair(2, 2.0)
    merge = candidate(base, FORM.round(base + FORM.round(change)))
    assert merge.fit(2).inside < 0.998
    ranks = range(3, 30)
    fit = next(fit for fit in map(merge.fit, ranks) if fit.inside >= 0.998)
    assert merge.claim(fit) is None


def scaled_pair():
    base, change = pair(4, 1.0)
    scales = 1 + torch.from_numpy(generator(0, "scales").uniform(-1, 1, (SHAPE[0], 1))) / 600
    return base, FORM.round((base + change) * scales)


def test_rows_scaled_by_numbers_near_one_are_not_a_second_rounding():
    """Their increments fit into the widest cells, but lie along the weights."""
    base, tuned = scaled_pair()
    merge = candidate(base, tuned, Recipe.ROUNDED_TWICE)
    fit = merge.fit(4)
    assert fit.inside > 0.998
    assert merge.claim(fit) is None
    assert find_rank(base, tuned).rank is None


@pytest.mark.parametrize("turned", [False, True])
def test_the_signal_of_a_scaling_is_the_mean_squared_cosine_above_chance(turned):
    source = generator(0, "scaling signal")
    weight, noise = normal(source, *SHAPE), normal(source, *SHAPE)
    scales = normal(source, SHAPE[0], 1)
    gap = scales * weight + 2 * noise
    rows = zip(gap.numpy(), weight.numpy(), strict=True)
    cosines = [g @ w / np.linalg.norm(g) / np.linalg.norm(w) for g, w in rows]
    expected = float(np.mean(np.square(cosines))) - 1 / SHAPE[1]
    signal = scaling_signal(gap.mT, weight.mT) if turned else scaling_signal(gap, weight)
    assert signal == pytest.approx(expected, rel=1e-9)
    # Without a scaling: a mean of 320 terms of mean 1/256 and standard deviation √2/256.
    assert scaling_signal(noise, weight) < 5 * 2**0.5 / 256 / 256**0.5


def test_held_out_entries_are_hidden_and_judge_a_fit():
    base, change = pair(3, 1.0)
    tuned = FORM.round(base + change)
    d, cells = difference(base, tuned), rounding_cells(base, tuned, FORM)
    hidden = hold_out(base, tuned, FORM, d, cells)
    is_hidden = cells.low.isinf()
    # A twentieth of the entries, within five standard deviations.
    assert abs(float(is_hidden.double().mean()) - 0.05) < 5 * (0.05 * 0.95 / base.numel()) ** 0.5
    assert torch.equal(is_hidden, cells.high.isinf())
    assert not d[is_hidden].any()
    assert len(hidden.rows) == int((is_hidden & (tuned != base)).count_nonzero())
    at = hidden.rows, hidden.columns
    assert hidden.fraction_met(change[at])[0] == 1
    assert hidden.fraction_met(torch.zeros_like(change[at]))[0] == 0
    fraction, standard_error = hidden.fraction_met(fit_low_rank(d, cells, 3).increment()[at])
    assert fraction > 0.9
    assert standard_error == pytest.approx((fraction * (1 - fraction) / len(at[0])) ** 0.5)
