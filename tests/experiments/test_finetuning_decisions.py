"""Verdicts: their definitions, and how often any verdict of a family is false."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from experiments.finetuning.statistics import holm
from experiments.finetuning.verdicts.decisions import decide, level_of, verdict_of
from experiments.finetuning.verdicts.design import Arm, Comparison
from experiments.finetuning.verdicts.estimates import Estimate, over_tasks, these_tasks
from experiments.finetuning.verdicts.paired import scores
from loca_theory.claims.rules import Verdict
from loca_theory.errors import InvalidArgumentError

YES, NO = Verdict.SUPPORTED, Verdict.NOT_SUPPORTED
SAME, OPEN = Verdict.EQUIVALENT, Verdict.INCONCLUSIVE
LEVEL = 0.0125


def with_bounds(low, high):
    """An estimate with these bounds at LEVEL."""
    half = (high - low) / 2
    return Estimate((low + high) / 2, half / float(stats.t.isf(LEVEL, 5)), 5)


@pytest.mark.parametrize(
    ("kind", "low", "high", "verdict"),
    [
        ("greater", 0.1, 2.0, YES),
        ("greater", 0.1, 0.4, YES),
        ("greater", -0.3, -0.1, NO),
        ("greater", -3.0, -1.0, NO),
        ("greater", -1.5, 0.9, NO),
        ("greater", -0.5, 0.9, SAME),
        ("greater", -0.5, 1.1, OPEN),
        ("greater", -1.5, 1.1, OPEN),
        ("equivalent", -0.9, 0.9, SAME),
        ("equivalent", 0.1, 0.9, SAME),
        ("equivalent", -1.1, 0.9, OPEN),
        ("equivalent", 0.5, 1.5, OPEN),
        ("equivalent", 2.0, 2.2, NO),
        ("equivalent", -2.2, -2.0, NO),
        # The bound at half the level is below 1.
        ("equivalent", 1.01, 1.51, OPEN),
        ("not-worse", -0.9, 3.0, YES),
        ("not-worse", -0.9, -0.1, YES),
        ("not-worse", -1.1, 3.0, OPEN),
        ("not-worse", -3.0, -1.1, NO),
    ],
)
def test_verdicts_are_those_of_the_design(kind, low, high, verdict):
    assert verdict_of(kind, 1.0, with_bounds(low, high), LEVEL) == verdict


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


def rate_of_any_false_verdict(truths, kinds, draws, *, between=0.0, within=1.0, seed=0):
    """Fraction of families with a false verdict; all comparisons share what they compare with."""
    rng = np.random.default_rng(seed)
    tasks, seeds, margin = 4, 3, 1.0
    level = level_of(len(truths))
    wrong = 0
    for _ in range(draws):
        shared = rng.normal(0, within, (tasks, seeds)) + rng.normal(0, between, (tasks, 1))
        found = False
        for truth, kind in zip(truths, kinds, strict=True):
            own = rng.normal(0, within, (tasks, seeds)) + rng.normal(0, between, (tasks, 1))
            estimate = over_tasks(truth + own - shared)
            verdict = verdict_of(kind, margin, estimate, level)
            found |= is_false(kind, margin, truth, verdict, estimate, level)
        wrong += found
    return wrong / draws


def most(draws):
    """5% and five standard errors of a simulated rate."""
    return 0.05 + 5 * (0.05 * 0.95 / draws) ** 0.5


# Standard deviations of the seeds of four tasks.
UNEQUAL = np.array([[5.0], [2.0], [1.0], [0.2]])
# True differences, in margins, and kinds of the comparisons of a family.
FAMILIES = {
    "nothing differs": ([0, 0, 0], ["greater"] * 3),
    "by the margin": ([1, 1, 1], ["greater", "greater", "equivalent"]),
    "by the margin, the other way": ([-1, -1, -1], ["greater", "equivalent", "not-worse"]),
    "mixed": ([0, 1, -1], ["greater", "greater", "not-worse"]),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_any_verdict_of_a_family_is_false_in_at_most_5_percent(name):
    draws = 4000
    assert rate_of_any_false_verdict(*FAMILIES[name], draws, within=0.5) <= most(draws)


@pytest.mark.deep
@pytest.mark.parametrize("within", [0.2, 1.0, 5.0, UNEQUAL], ids=["0.2", "1", "5", "unequal"])
@pytest.mark.parametrize("between", [0.0, 0.7])
@pytest.mark.parametrize(
    ("truths", "kinds"),
    [
        *FAMILIES.values(),
        ([0], ["greater"]),
        ([0.999] * 4, ["equivalent"] * 4),
        ([-0.999] * 4, ["not-worse"] * 4),
        ([0.001, 0.5, 0.999, 2, -2], ["greater"] * 5),
        ([1, 0, 1, 0, -1, 0, 1], ["greater"] * 7),
    ],
)
def test_any_verdict_is_false_in_at_most_5_percent_of_many_worlds(truths, kinds, between, within):
    draws = 10_000
    found = rate_of_any_false_verdict(truths, kinds, draws, between=between, within=within)
    assert found <= most(draws)


def test_alone_the_null_hypothesis_is_rejected_as_often_as_it_may_be():
    draws = 4000
    found = rate_of_any_false_verdict([0], ["greater"], draws)
    assert found == pytest.approx(0.05, abs=most(draws) - 0.05)


def test_holms_later_steps_would_exceed_5_percent():
    """One comparison with a true difference of the margin, seen precisely, and one with none."""
    draws, margin = 20_000, 1.0
    rng = np.random.default_rng(0)
    statistics = rng.normal(size=(draws, 2))
    first, second = margin + 0.01 * statistics[:, 0], statistics[:, 1]
    # The first is either "supported" (p near 0), or its margin is excluded: by chance.
    excluded = stats.norm.cdf((first - margin) / 0.01)
    p_first = np.minimum(stats.norm.sf(first / 0.01), excluded)
    adjusted = np.array([holm(pair) for pair in zip(p_first, stats.norm.sf(second), strict=True)])
    at_first_step = (excluded <= 0.025) | (stats.norm.sf(second) <= 0.025)
    stepped = (excluded <= 0.025) | (adjusted[:, 1] <= 0.05)
    assert at_first_step.mean() <= most(draws)
    assert stepped.mean() > most(draws)


def comparison(kind="greater", margin=1.0, tasks=("text",), seeds=4):
    return Comparison(
        "one", "family", "?", kind, (Arm("loca"),), (Arm("lora"),), margin, "", tasks, seeds, 1.0,
        "", (0.0,),
    )  # fmt: skip


def test_a_decision_has_the_bounds_of_both_analyses():
    d = np.random.default_rng(1).normal(0.5, 1.0, (5, 6))
    found = decide(comparison(), d, 4)
    assert (found.low, found.high) == over_tasks(d).bounds(0.0125)
    assert (found.fixed_low, found.fixed_high) == these_tasks(d).bounds(0.0125)
    assert found.within == max(abs(found.low), abs(found.high))
    assert found.verdict == verdict_of("greater", 1.0, over_tasks(d), 0.0125)
    assert found.standard_deviation == pytest.approx(np.mean(d.var(1, ddof=1)) ** 0.5)


def test_variants_of_a_kind_are_not_independent_if_kinds_are_random():
    tasks = ("digits-1", "digits-2", "source-1", "source-2", "turned-1", "turned-2")
    d = np.random.default_rng(1).normal(0.5, 1.0, (6, 3))
    found = decide(comparison(tasks=tasks), d, 4)
    kinds = [d[:2].mean(), d[2:4].mean(), d[4:].mean()]
    half = stats.t.isf(0.0125, 2) * np.std(kinds, ddof=1) / 3**0.5
    assert (found.kinds_low, found.kinds_high) == pytest.approx((d.mean() - half, d.mean() + half))
    for same in (("digits", "source", "turned"), ("digits-1", "digits-2", "digits-3")):
        assert math.isnan(decide(comparison(tasks=same), d[:3], 4).kinds_low)


def test_a_run_that_did_not_diverge_has_a_score():
    runs = pd.DataFrame([{"task": "a", "method": "lora", "seed": 3, "measure": "accuracy",
                          "metric": None, "loss": 1.0, "diverged": False}])  # fmt: skip
    with pytest.raises(InvalidArgumentError, match="the run task a, method lora, seed 3 has no"):
        scores(runs, "accuracy")
    assert scores(runs, "loss").tolist() == [0.0]


def test_the_standard_deviation_between_tasks_is_estimated():
    rng = np.random.default_rng(0)
    d = rng.normal(0, 2.0, (400, 1)) + rng.normal(0, 3.0, (400, 10))
    # Four standard errors of the standard deviation of 400 task means, √(4 + 0.9) / √800.
    assert decide(comparison(), d, 1).between == pytest.approx(2.0, abs=4 * 4.9**0.5 / 800**0.5)
    assert math.isnan(decide(comparison(), d[:1], 1).between)
