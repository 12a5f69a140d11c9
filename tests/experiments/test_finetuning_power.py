"""Power against simulation of the whole data, and the seeds and differences that follow from it."""

import numpy as np
import pytest
from scipy import stats

from experiments.finetuning.verdicts.estimates import over_tasks
from experiments.finetuning.verdicts.power import Plan
from loca_theory import InvalidArgumentError

# Tasks, seeds, standard deviation within and between tasks, level.
PLANS = [Plan(6, 8, 2.0, 0.5, 0.0125), Plan(3, 4, 1.0, 0.0, 0.05), Plan(1, 12, 1.5, 0.7, 0.025)]


def simulated(plan, difference, draws=4000):
    """Bounds of draws of the whole data; with one task there is nothing between tasks."""
    rng = np.random.default_rng(0)
    between = plan.between if plan.tasks > 1 else 0.0
    effects = rng.normal(difference, between, (draws, plan.tasks, 1))
    noise = rng.normal(0, plan.standard_deviation, (draws, plan.tasks, plan.seeds))
    return np.array([over_tasks(d).bounds(plan.level) for d in effects + noise]).T


def within_error(power, found):
    draws = len(found)
    return abs(power - np.mean(found)) < 5 * (max(power * (1 - power), 1 / draws) / draws) ** 0.5


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_power_of_superiority_is_that_of_simulated_data(plan):
    difference = 2.5 * plan.standard_error
    low, _ = simulated(plan, difference)
    assert within_error(plan.superiority(difference), low > 0)


@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_power_of_equivalence_is_that_of_simulated_data(plan, offset):
    margin, difference = 4 * plan.standard_error, offset * plan.standard_error
    low, high = simulated(plan, difference)
    power = plan.equivalence(margin, difference)
    assert 0.05 < power < 0.95
    assert within_error(power, (low > -margin) & (high < margin))


@pytest.mark.deep
@pytest.mark.parametrize("width", [2.0, 3.0, 5.0, 8.0])
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_power_of_simulated_data_over_many_margins(plan, width):
    margin = width * plan.standard_error
    low, high = simulated(plan, 0.0, 40_000)
    assert within_error(plan.equivalence(margin), (low > -margin) & (high < margin))
    low, _ = simulated(plan, margin, 40_000)
    assert within_error(plan.superiority(margin), low > 0)


def test_with_many_degrees_of_freedom_power_is_that_of_the_normal_law():
    plan = Plan(1, 4000, 1.0, 0.0, 0.05)
    quantile, se = stats.norm.isf(0.05), plan.standard_error
    # Student's quantile differs from the normal one by about (1 + q²) q / 4ν = 4e-4.
    normal = stats.norm.sf(quantile - 2.0)
    assert plan.superiority(2 * se) == pytest.approx(normal, abs=5e-4)
    both = 2 * stats.norm.cdf(3 - quantile) - 1
    assert plan.equivalence(3 * se) == pytest.approx(both, abs=1e-3)


def test_power_at_the_null_hypothesis_is_the_level():
    for plan in PLANS:
        assert plan.superiority(0.0) == pytest.approx(plan.level, rel=1e-6)
        # At the margin, only the tests at the other end fail.
        assert plan.equivalence(50.0, 50.0) == pytest.approx(plan.level, rel=1e-6)


@pytest.mark.parametrize("equivalence", [False, True])
def test_one_seed_less_than_needed_has_less_power(equivalence):
    def power(seeds):
        plan = Plan(6, seeds, 2.0, 0.1, 0.0125)
        return plan.equivalence(0.6) if equivalence else plan.superiority(0.6)

    needed = Plan(6, 2, 2.0, 0.1, 0.0125).seeds_needed(0.6, 0.9, equivalence=equivalence)
    assert power(needed - 1) < 0.9 <= power(needed)


def test_no_number_of_seeds_overcomes_differences_between_tasks():
    assert Plan(6, 64, 2.0, 1.0, 0.0125).seeds_needed(0.5, 0.9) is None


@pytest.mark.parametrize(
    "wrong",
    [(0, 8, 1.0, 0.0, 0.05), (6, 1, 1.0, 0.0, 0.05), (6, 8, 0.0, 0.0, 0.05), (6, 8, 1.0, -1, 0.05),
     (6, 8, 1.0, 0.0, 0.5)],
)  # fmt: skip
def test_a_plan_without_a_test_is_refused(wrong):
    with pytest.raises(InvalidArgumentError, match="use"):
        Plan(*wrong)
