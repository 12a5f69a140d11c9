"""Verdicts: their definitions, bounds, power, and how often any of a family is false."""

import math

import numpy as np
import pytest
from scipy import stats

from experiments.finetuning.comparisons.differences import random_choice_of
from experiments.finetuning.tasks import generation, images, packages
from experiments.verdicts import (
    Estimate,
    over_draws,
    over_fixed_tasks,
    over_tasks,
    student,
    verdict_by_bounds,
)
from loca_theory.claims.rules import Verdict

YES, NO = Verdict.SUPPORTED, Verdict.NOT_SUPPORTED
SAME, OPEN = Verdict.EQUIVALENT, Verdict.INCONCLUSIVE
LEVEL = 0.0125


@pytest.mark.parametrize(
    ("kind", "low", "high", "verdict"),
    [
        ("greater", 0.1, 2.0, YES),
        ("greater", 0.1, 0.4, YES),
        ("greater", -0.3, -0.1, NO),
        ("greater", -1.5, 0.9, NO),
        ("greater", -0.5, 0.9, SAME),
        ("greater", -0.5, 1.1, OPEN),
        ("greater", -1.5, 1.1, OPEN),
        ("equivalent", 0.1, 0.9, SAME),
        ("equivalent", -1.1, 0.9, OPEN),
        ("equivalent", 0.5, 1.5, OPEN),
        ("equivalent", 2.0, 2.2, NO),
        ("equivalent", -2.2, -2.0, NO),
        # The bound at half the level is below 1.
        ("equivalent", 1.01, 1.51, OPEN),
        ("not-worse", -0.9, -0.1, YES),
        ("not-worse", -1.1, 3.0, OPEN),
        ("not-worse", -3.0, -1.1, NO),
    ],
)
def test_verdicts_are_those_of_the_design(kind, low, high, verdict):
    half = (high - low) / 2
    estimate = Estimate((low + high) / 2, half / float(stats.t.isf(LEVEL, 5)), 5)
    assert verdict_by_bounds(kind, 1.0, estimate, LEVEL) == verdict


def is_false(kind, margin, truth, verdict, estimate, level):
    """Whether what a verdict says is false, from the words of the design."""
    if verdict is OPEN:
        return False
    if verdict is SAME:
        return abs(truth) >= margin
    if kind == "equivalent":
        return abs(truth) < margin
    if kind == "not-worse":
        return (truth <= -margin) if verdict is YES else (truth > -margin)
    if verdict is YES:
        return truth <= 0
    return truth > 0 if estimate.bounds(level)[1] < 0 else truth >= margin


# True differences, in margins, and kinds of the comparisons of a family.
FAMILIES = {
    "nothing differs": ([0, 0, 0], ["greater"] * 3),
    "by the margin": ([1, 1, 1], ["greater", "greater", "equivalent"]),
    "mixed": ([0, 1, -1], ["greater", "greater", "not-worse"]),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_any_verdict_of_a_family_is_false_in_at_most_5_percent(name):
    """Where all comparisons share what they compare with."""
    (truths, kinds), draws, within = FAMILIES[name], 2000, 0.5
    rng = np.random.default_rng(0)
    tasks, seeds, margin = 4, 3, 1.0
    level = 0.05 / len(truths)
    wrong = 0
    for _ in range(draws):
        shared = rng.normal(0, within, (tasks, seeds))
        is_any_false = False
        for truth, kind in zip(truths, kinds, strict=True):
            noise = rng.normal(0, within, (tasks, seeds))
            estimate = over_tasks(truth + noise - shared)
            verdict = verdict_by_bounds(kind, margin, estimate, level)
            is_any_false |= is_false(kind, margin, truth, verdict, estimate, level)
        wrong += is_any_false
    # 5% and five standard errors of a simulated rate.
    assert wrong / draws <= 0.05 + 5 * (0.05 * 0.95 / draws) ** 0.5


def test_tasks_of_one_draw_count_as_one():
    d = np.random.default_rng(2).normal(0.5, 1.0, (5, 3))
    estimate = over_draws(d, "aabcc")
    # The sandwich of a regression on a constant, whose scores add up within a draw.
    x, scores = np.ones(5), d.mean(1) - d.mean()
    meat = sum(np.outer(s, s).sum() for s in (scores[:2], scores[2:3], scores[3:]))
    assert estimate.standard_error == pytest.approx((meat / (x @ x) ** 2 * 3 / 2) ** 0.5)
    assert (estimate.difference, estimate.degrees_of_freedom) == (pytest.approx(d.mean()), 2)
    alone, plain = over_draws(d, "abcde"), over_tasks(d)
    assert alone.standard_error == pytest.approx(plain.standard_error)
    assert alone.degrees_of_freedom == plain.degrees_of_freedom
    copies = over_draws(np.repeat(d, 2, axis=0), "aabbccddee")
    assert copies.standard_error == pytest.approx(plain.standard_error)


def test_variants_share_what_their_tasks_draw():
    """The choice is that of the modules that make the tasks, where variants of a kind differ."""
    assert random_choice_of("digits-3") == random_choice_of("small-digits-3")
    assert random_choice_of("digits-3") != random_choice_of("digits-4")
    assert random_choice_of("docstrings-3") == random_choice_of("source-3")
    assert random_choice_of("source-3") != random_choice_of("generation-3")
    assert random_choice_of("digits-3") == f"digits {images._new_digits(3)}"
    half, _ = packages._halves(3)
    assert random_choice_of("source-3") == f"packages {sorted(half)}"
    assert random_choice_of("generation-3").removeprefix("text of ") in str(generation._root(3))
    assert random_choice_of("digits") == "digits"


def test_values_without_spread():
    assert student([2.5]) == (2.5, -math.inf, math.inf, 1)
    assert student([2.5, 2.5]) == (2.5, 2.5, 2.5, 0)
    assert student([0.0, 0.0]) == (0, 0, 0, 1)


def made_up(tasks, seeds, between=0.8, within=1.5, seed=0):
    rng = np.random.default_rng(seed)
    effects = rng.normal(0.4, between, (tasks, 1))
    return effects + rng.normal(size=(tasks, seeds)) * np.broadcast_to(within, (tasks, 1))


# Unequal variances make the bounds miss less often.
@pytest.mark.parametrize(("between", "within"), [(0.8, 1.5), (0, np.c_[[9, 1, 1, 1]])])
def test_bounds_over_tasks_miss_as_often_as_they_say(between, within):
    draws, level = 3000, 0.025
    bounds = [over_tasks(made_up(4, 5, between, within, s)).bounds(level) for s in range(draws)]
    for misses in ([low > 0.4 for low, _ in bounds], [high < 0.4 for _, high in bounds]):
        spread = 5 * (level * (1 - level) / draws) ** 0.5
        assert np.mean(misses) < level + spread
        assert np.mean(misses) > level - spread or between == 0


def test_over_fixed_tasks_are_welchs_test_for_two_tasks():
    first, second = made_up(2, 7, within=np.array([[0.3], [2.0]]))
    # (mean of first + mean of second) / 2 is half the difference of first and -second.
    test = stats.ttest_ind(first, -second, equal_var=False)
    ends = test.confidence_interval(0.9)
    estimate = over_fixed_tasks(np.array([first, second]))
    assert estimate.degrees_of_freedom == pytest.approx(test.df)
    assert estimate.bounds(0.05) == pytest.approx((ends.low / 2, ends.high / 2))


@pytest.mark.parametrize("estimate", [over_tasks, over_fixed_tasks])
def test_one_task_and_differences_that_never_vary(estimate):
    d = made_up(1, 9)
    ends = stats.ttest_1samp(d[0], 0).confidence_interval(0.9)
    assert estimate(d).bounds(0.05) == pytest.approx((ends.low, ends.high))
    assert estimate(np.full((3, 4), 0.5)).bounds(0.01) == (0.5, 0.5)
