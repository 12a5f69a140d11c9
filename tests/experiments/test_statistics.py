"""Intervals, tests and estimates over tasks against SciPy, naive versions and simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from experiments.finetuning.statistics import interval, paired_p_value, summary
from experiments.finetuning.verdicts.estimates import over_tasks, these_tasks


def rows(metrics, method="a"):
    base = {"measure": "accuracy", "trained": 3, "stored": 5, "task": "t"}
    base |= {"method": method, "title": method.upper()}
    return [
        {**base, "seed": seed, "metric": value, "diverged": value is None}
        for seed, value in enumerate(metrics)
    ]


def test_values_without_spread():
    assert interval([2.5]) == (2.5, -math.inf, math.inf)
    assert interval([2.5, 2.5]) == (2.5, 2.5, 2.5)
    found = [paired_p_value(one) for one in ([0.0, 0.0], [0.3], [0.5, 0.5])]
    assert found == [1, 1, 0]


def naive_holm(p_values):
    """The smallest level at which the step-down procedure rejects each."""
    adjusted = []
    for mine in p_values:
        before = sorted(p for p in p_values if p <= mine)
        steps = [(len(p_values) - k) * p for k, p in enumerate(before)]
        adjusted.append(min(1.0, max(steps)))
    return adjusted


def test_a_summary_pairs_by_seed_and_adjusts_over_all_groups():
    """Diverged runs, of seeds 4 and 5, are counted and left out on both sides."""
    sets = {"a": [0.5, 0.7, 0.9, 0.4, None, 1.0], "b": [0.4, 0.65, 0.7, 0.35, 0.1, None],
            "c": [0.45, 0.7, 0.85, 0.4]}  # fmt: skip
    entries = [row for name, found in sets.items() for row in rows(found, name)[::-1]]
    lines = summary(entries, ("task", "method"), reference={"method": "b"})
    sides = {name: found[:4] for name, found in sets.items()}
    test = stats.ttest_rel(sides["a"], sides["b"])
    ends = test.confidence_interval(0.95)
    found = [lines[0][f"difference{end}"] for end in ("", "_low", "_high")]
    assert found == pytest.approx([np.mean(sides["a"]) - np.mean(sides["b"]), ends.low, ends.high])
    raw = [stats.ttest_rel(sides[name], sides["b"]).pvalue for name in "ac"]
    assert [lines[0]["p_value"], lines[2]["p_value"]] == pytest.approx(naive_holm(raw))
    assert lines[1]["p_value"] is None
    assert (lines[0]["seeds"], lines[0]["diverged"]) == (5, 1)
    assert lines[0]["mean"] == pytest.approx(np.mean([0.5, 0.7, 0.9, 0.4, 1.0]))
    (line,) = summary(rows([None, None]), ("method",), reference={"method": "a"})
    assert (line["mean"], line["low"], line["seeds"], line["diverged"]) == (None, None, 0, 2)


# --- means over tasks and seeds -------------------------------------------------------------


def made_up(tasks, seeds, between=0.8, within=1.5, seed=0):
    rng = np.random.default_rng(seed)
    effects = rng.normal(0.4, between, (tasks, 1))
    return effects + rng.normal(size=(tasks, seeds)) * np.broadcast_to(within, (tasks, 1))


# Unequal variances make the bounds miss less often.
@pytest.mark.parametrize(("between", "within"), [(0.8, 1.5), (0, np.c_[[9, 1, 1, 1]])])
def test_bounds_over_tasks_miss_as_often_as_they_say(between, within):
    draws, level = 3000, 0.025
    found = [over_tasks(made_up(4, 5, between, within, s)).bounds(level) for s in range(draws)]
    for missed in ([low > 0.4 for low, _ in found], [high < 0.4 for _, high in found]):
        spread = 5 * (level * (1 - level) / draws) ** 0.5
        assert np.mean(missed) < level + spread
        assert np.mean(missed) > level - spread or between == 0


def test_these_tasks_are_welchs_test_for_two_tasks():
    first, second = made_up(2, 7, within=np.array([[0.3], [2.0]]))
    # (mean of first + mean of second) / 2 is half the difference of first and -second.
    test = stats.ttest_ind(first, -second, equal_var=False)
    ends = test.confidence_interval(0.9)
    found = these_tasks(np.array([first, second]))
    assert found.degrees_of_freedom == pytest.approx(test.df)
    assert found.bounds(0.05) == pytest.approx((ends.low / 2, ends.high / 2))


@pytest.mark.parametrize("estimate", [over_tasks, these_tasks])
def test_one_task_and_differences_that_never_vary(estimate):
    d = made_up(1, 9)
    ends = stats.ttest_1samp(d[0], 0).confidence_interval(0.9)
    assert estimate(d).bounds(0.05) == pytest.approx((ends.low, ends.high))
    assert estimate(np.full((3, 4), 0.5)).bounds(0.01) == (0.5, 0.5)
