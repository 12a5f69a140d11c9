"""The exact interval of a probability."""

import pytest
from scipy import stats

from loca_theory.convergence import binomial_interval
from loca_theory.errors import InvalidArgumentError


@pytest.mark.parametrize("level", [0.5, 0.95, 0.9999], ids="level {}".format)
@pytest.mark.parametrize("trials", [1, 2, 17, 200, 4000], ids="{} trials".format)
def test_it_is_the_interval_of_scipy(trials, level):
    for successes in {0, 1, trials // 3, trials // 2, trials - 1, trials}:
        expected = stats.binomtest(successes, trials).proportion_ci(level, method="exact")
        # SciPy inverts the same laws by root finding or by another series.
        assert binomial_interval(successes, trials, level) == pytest.approx(
            (expected.low, expected.high), rel=1e-9, abs=1e-12
        )


@pytest.mark.parametrize(("trials", "level"), [(5, 0.95), (30, 0.8)])
def test_it_covers_every_probability_at_least_as_often_as_it_says(trials, level):
    intervals = [binomial_interval(k, trials, level) for k in range(trials + 1)]
    for n in range(1, 200):
        p = n / 200
        law = stats.binom(trials, p)
        covered = sum(law.pmf(k) for k, (low, high) in enumerate(intervals) if low <= p <= high)
        assert covered >= level - 1e-12


@pytest.mark.parametrize("trials", [1, 8, 50], ids="{} trials".format)
def test_more_successes_and_fewer_are_mirror_images(trials):
    for successes in range(trials + 1):
        low, high = binomial_interval(successes, trials)
        mirrored_low, mirrored_high = binomial_interval(trials - successes, trials)
        # One unit of the last place of 1 is lost in 1 − high.
        assert (low, high) == pytest.approx((1 - mirrored_high, 1 - mirrored_low), abs=1e-14)
        assert low <= successes / trials <= high


def test_a_higher_level_is_wider():
    narrow, wide = binomial_interval(3, 40, 0.9), binomial_interval(3, 40, 0.99)
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 0), "no interval at level 0.95 for 0 successes in 0 trials"),
        ((-1, 3), "for -1 successes in 3 trials"),
        ((4, 3), "for 4 successes in 3 trials"),
        ((1, 3, 0.0), "no interval at level 0 for"),
        ((1, 3, 1.0), "no interval at level 1 for"),
        ((1, 3, float("nan")), "no interval at level nan for"),
    ],
    ids=["no trial", "below zero", "more than trials", "level 0", "level 1", "level nan"],
)
def test_refusals(arguments, message):
    with pytest.raises(InvalidArgumentError, match=message):
        binomial_interval(*arguments)
