"""Intervals, tests and estimates over tasks against SciPy, naive versions and simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from experiments.finetuning.statistics import interval, paired_p_value
from experiments.finetuning.verdicts.estimates import over_tasks, these_tasks


def test_values_without_spread():
    assert interval([2.5]) == (2.5, -math.inf, math.inf)
    assert interval([2.5, 2.5]) == (2.5, 2.5, 2.5)
    found = [paired_p_value(one) for one in ([0.0, 0.0], [0.3], [0.5, 0.5])]
    assert found == [1, 1, 0]


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
