"""Intervals, tests and estimates over tasks against SciPy, naive versions and simulation."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from experiments.finetuning.statistics import holm, interval, paired_p_value, summary
from experiments.finetuning.verdicts.estimates import over_tasks, these_tasks
from loca_theory import InvalidArgumentError

reproducible = settings(deadline=None, derandomize=True, database=None)
VALUES = st.lists(st.floats(-100, 100), min_size=2, max_size=12)
P_VALUES = st.lists(st.floats(0, 1), max_size=8)


def rows(metrics, method="a", **more):
    base = {"measure": "accuracy", "trained": 3, "stored": 5, "task": "t"}
    base |= {"method": method, "title": method.upper()}
    return [
        {**base, "seed": seed, "metric": value, "diverged": value is None, **more}
        for seed, value in enumerate(metrics)
    ]


@pytest.mark.parametrize("n", [2, 3, 5, 30])
def test_the_interval_is_that_of_scipy(n):
    values = np.random.default_rng(n).normal(3.0, 2.0, n)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    mean, low, high = interval(list(values))
    assert (mean, low, high) == pytest.approx((values.mean(), expected.low, expected.high))


def test_of_one_value_the_interval_is_unbounded():
    assert interval([2.5]) == (2.5, -math.inf, math.inf)


@pytest.mark.parametrize("n", [2, 5])
def test_the_interval_covers_as_often_as_it_says(n):
    draws, level = 4000, 0.95
    values = np.random.default_rng(1).normal(size=(draws, n))
    covered = sum(low <= 0 <= high for _, low, high in map(interval, values.tolist()))
    # Five standard deviations of a binomial share.
    assert covered / draws == pytest.approx(level, abs=5 * (level * (1 - level) / draws) ** 0.5)


@pytest.mark.parametrize("n", [2, 5, 12])
def test_the_paired_test_is_that_of_scipy(n):
    rng = np.random.default_rng(n)
    a, b = rng.normal(size=n), rng.normal(0.3, 1, n)
    assert paired_p_value(list(a - b)) == pytest.approx(stats.ttest_rel(a, b).pvalue)


@pytest.mark.parametrize(("differences", "p"), [([0.0, 0.0], 1), ([0.3], 1), ([0.5, 0.5], 0)])
def test_differences_without_spread(differences, p):
    assert paired_p_value(differences) == p


@reproducible
@given(VALUES, st.floats(0.5, 4))
def test_units_do_not_change_the_p_value(values, factor):
    scaled = [value * factor for value in values]
    if np.std(values) > 1e-6:
        assert paired_p_value(scaled) == pytest.approx(paired_p_value(values), abs=1e-6)
        assert paired_p_value([-v for v in values]) == pytest.approx(paired_p_value(values))


def naive_holm(p_values):
    """The smallest level at which the step-down procedure rejects each."""
    adjusted = []
    for mine in p_values:
        before = sorted(p for p in p_values if p <= mine)
        steps = [(len(p_values) - k) * p for k, p in enumerate(before)]
        adjusted.append(min(1.0, max(steps)))
    return adjusted


@reproducible
@given(P_VALUES)
def test_holm_is_the_step_down_procedure(p_values):
    assert holm(p_values) == pytest.approx(naive_holm(p_values))


@reproducible
@given(P_VALUES)
def test_holm_never_lowers_and_keeps_the_order(p_values):
    adjusted = holm(p_values)
    assert all(p <= a <= 1 for p, a in zip(p_values, adjusted, strict=True))
    pairs = sorted(zip(p_values, adjusted, strict=True))
    assert all(x[1] <= y[1] for x, y in pairwise(pairs))


def test_holm_errs_at_all_with_its_chance_only():
    draws, level = 4000, 0.05
    found = np.random.default_rng(0).uniform(size=(draws, 6))
    wrong = sum(min(holm(list(p))) < level for p in found) / draws
    exact = 1 - (1 - level / 6) ** 6
    assert wrong == pytest.approx(exact, abs=5 * (exact * (1 - exact) / draws) ** 0.5)


def test_a_summary_pairs_by_seed_and_not_by_order():
    a, b = [0.5, 0.7, 0.9, 0.4], [0.4, 0.65, 0.7, 0.35]
    lines = summary(rows(a) + rows(b, "b")[::-1], ("task", "method"), reference={"method": "b"})
    test = stats.ttest_rel(a, b)
    ends = test.confidence_interval(0.95)
    assert lines[0]["difference"] == pytest.approx(np.mean(a) - np.mean(b))
    assert lines[0]["p_value"] == pytest.approx(test.pvalue)
    assert lines[0]["difference_low"] == pytest.approx(ends.low)
    assert lines[0]["difference_high"] == pytest.approx(ends.high)
    assert lines[1]["p_value"] is None


def test_diverged_runs_are_counted_and_left_out_on_both_sides():
    a, b = [0.5, None, 0.9, 0.4], [0.4, 0.65, None, 0.35]
    lines = summary(rows(a) + rows(b, "b"), ("method",), reference={"method": "b"})
    assert (lines[0]["seeds"], lines[0]["diverged"]) == (3, 1)
    assert lines[0]["mean"] == pytest.approx(0.6)
    assert lines[0]["difference"] == pytest.approx((0.1 + 0.05) / 2)


def test_a_group_that_always_diverged_has_no_mean():
    line = summary(rows([None, None]), ("method",), reference={"method": "a"})[0]
    assert (line["mean"], line["low"], line["seeds"], line["diverged"]) == (None, None, 0, 2)


def test_p_values_are_adjusted_over_all_groups():
    sets = {"a": [0.5, 0.7, 0.9], "b": [0.4, 0.65, 0.7], "c": [0.45, 0.7, 0.85]}
    entries = [row for name, found in sets.items() for row in rows(found, name)]
    lines = summary(entries, ("method",), reference={"method": "c"})
    raw = [stats.ttest_rel(sets[name], sets["c"]).pvalue for name in "ab"]
    assert [line["p_value"] for line in lines[:2]] == pytest.approx(naive_holm(raw))


def test_a_method_that_never_differs_has_a_difference_of_zero():
    same = [0.5, 0.7, 0.9]
    line = summary(rows(same) + rows(same, "b"), ("method",), reference={"method": "b"})[0]
    assert (line["difference"], line["p_value"]) == (0.0, 1.0)


# --- means over tasks and seeds -------------------------------------------------------------


def made_up(tasks, seeds, between=0.8, within=1.5, mean=0.4, seed=0):
    rng = np.random.default_rng(seed)
    effects = rng.normal(mean, between, (tasks, 1))
    return effects + rng.normal(size=(tasks, seeds)) * np.broadcast_to(within, (tasks, 1))


def negative_restricted_likelihood(parameters, differences):
    """Minus the logarithm of the restricted likelihood, from the full covariance matrix."""
    between, within = np.exp(parameters)
    tasks, seeds = differences.shape
    blocks = np.kron(np.eye(tasks), np.ones((seeds, seeds)))
    covariance = between * blocks + within * np.eye(tasks * seeds)
    inverse = np.linalg.inv(covariance)
    ones, d = np.ones(tasks * seeds), differences.ravel()
    information = ones @ inverse @ ones
    rest = d - ones @ inverse @ d / information
    return 0.5 * (np.linalg.slogdet(covariance)[1] + np.log(information) + rest @ inverse @ rest)


def test_over_tasks_is_the_mixed_model_fitted_by_restricted_likelihood():
    d = made_up(5, 4, between=1.5, seed=2)
    fit = optimize.minimize(
        negative_restricted_likelihood, [0.0, 0.0], (d,), "Nelder-Mead",
        options={"xatol": 1e-8, "fatol": 1e-12},
    )  # fmt: skip
    between, within = np.exp(fit.x)
    found = over_tasks(d)
    # The generalised least squares estimate of balanced data and its standard error.
    assert found.difference == pytest.approx(d.mean())
    assert found.standard_error == pytest.approx(((between + within / 4) / 5) ** 0.5, rel=1e-5)


@pytest.mark.parametrize(("tasks", "seeds"), [(2, 2), (6, 8)])
def test_over_tasks_is_the_analysis_of_variance(tasks, seeds):
    d = made_up(tasks, seeds, seed=tasks)
    # Under the null hypothesis of no mean, F = n T mean² / (mean square between tasks) = t².
    square_between = seeds * sum((row.mean() - d.mean()) ** 2 for row in d) / (tasks - 1)
    f = tasks * seeds * d.mean() ** 2 / square_between
    found = over_tasks(d)
    assert (found.difference / found.standard_error) ** 2 == pytest.approx(f)
    assert found.degrees_of_freedom == tasks - 1


@pytest.mark.parametrize("between", [0.0, 0.8])
def test_bounds_over_tasks_miss_as_often_as_they_say(between):
    draws, level = 3000, 0.05
    found = [over_tasks(made_up(4, 5, between, seed=s)).bounds(level) for s in range(draws)]
    spread = 5 * (level * (1 - level) / draws) ** 0.5
    assert np.mean([low > 0.4 for low, _ in found]) == pytest.approx(level, abs=spread)
    assert np.mean([high < 0.4 for _, high in found]) == pytest.approx(level, abs=spread)


@pytest.mark.parametrize("within", [(9, 1, 1, 1, 1, 1), (5, 4, 3, 2, 1, 0.1)])
def test_unequal_variances_make_bounds_over_tasks_miss_less_often(within):
    draws, level = 3000, 0.025
    within = np.array(within)[:, None]
    lows = [over_tasks(made_up(6, 4, 0, within, seed=s)).bounds(level)[0] for s in range(draws)]
    assert np.mean([low > 0.4 for low in lows]) < level + 5 * (level / draws) ** 0.5


def test_these_tasks_are_welchs_test_for_two_tasks():
    first, second = made_up(2, 7, within=np.array([[0.3], [2.0]]))
    # (mean of first + mean of second) / 2 is half the difference of first and -second.
    test = stats.ttest_ind(first, -second, equal_var=False)
    ends = test.confidence_interval(0.9)
    found = these_tasks(np.array([first, second]))
    assert found.degrees_of_freedom == pytest.approx(test.df)
    assert found.bounds(0.05) == pytest.approx((ends.low / 2, ends.high / 2))


def test_of_one_task_all_estimates_are_students():
    d = made_up(1, 9)
    ends = stats.ttest_1samp(d[0], 0).confidence_interval(0.9)
    assert over_tasks(d).bounds(0.05) == pytest.approx((ends.low, ends.high))
    assert these_tasks(d).bounds(0.05) == pytest.approx((ends.low, ends.high))


def test_differences_that_never_vary_are_known_exactly():
    assert over_tasks(np.full((3, 4), 0.5)).bounds(0.01) == (0.5, 0.5)
    assert these_tasks(np.full((3, 4), 0.5)).bounds(0.01) == (0.5, 0.5)


@pytest.mark.parametrize("estimate", [over_tasks, these_tasks])
@pytest.mark.parametrize("wrong", [np.ones((3, 1)), np.ones(4), np.array([[1.0, np.nan]])])
def test_differences_without_variance_or_with_gaps_are_refused(estimate, wrong):
    with pytest.raises(InvalidArgumentError, match=r"2 seeds or more|run what is missing"):
        estimate(wrong)
