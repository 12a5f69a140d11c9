"""Rules on made-up observations: every verdict is reached, and by the interval alone."""

import numpy as np
import pytest
from scipy import stats

from loca_theory.claims import FAMILY_WISE, Measurement, Part, Rule, Verdict, decide
from loca_theory.claims.rules import interval
from loca_theory.errors import InvalidArgumentError

INSIDE = Rule("inside", low=(0.0,), high=(1.0,))
NEAR = Rule("near", value=(0.5,), precision=0.1)
# Many replicates: t is nearly normal, and the interval of one comparison 2.58 errors wide.
N = 10**6


def verdict(rule, *parts, assumes=False, comparisons=1):
    return decide(rule, Measurement.of(parts), comparisons=comparisons, assumes=assumes).verdict


CASES = {
    "exact, inside": (INSIDE, Part("", 1.0), Verdict.SUPPORTED),
    "exact, outside": (INSIDE, Part("", 1.0 + 1e-12), Verdict.NOT_SUPPORTED),
    "inside by far": (INSIDE, Part("", 0.5, 0.1, N), Verdict.SUPPORTED),
    "across the bound": (INSIDE, Part("", 0.9, 0.1, N), Verdict.INCONCLUSIVE),
    "across from outside": (INSIDE, Part("", 1.2, 0.1, N), Verdict.INCONCLUSIVE),
    "outside by far": (INSIDE, Part("", 1.3, 0.1, N), Verdict.NOT_SUPPORTED),
    "few replicates": (INSIDE, Part("", 1.3, 0.1, 3), Verdict.INCONCLUSIVE),
    "all succeed, few": (INSIDE, Part.share(3, 3), Verdict.SUPPORTED),
    "half or more, few": (Rule("inside", low=(0.5,)), Part.share(3, 3), Verdict.INCONCLUSIVE),
    "half or more, many": (Rule("inside", low=(0.5,)), Part.share(30, 30), Verdict.SUPPORTED),
    "half or more, none": (Rule("inside", low=(0.5,)), Part.share(0, 30), Verdict.NOT_SUPPORTED),
    "near": (NEAR, Part("", 0.51, 0.01, N), Verdict.SUPPORTED),
    "near, excluded": (NEAR, Part("", 0.55, 0.01, N), Verdict.NOT_SUPPORTED),
    "near, too wide": (NEAR, Part("", 0.51, 0.1, N), Verdict.INCONCLUSIVE),
    "near, exact": (NEAR, Part("", 0.5), Verdict.SUPPORTED),
}


@pytest.mark.parametrize(("rule", "part", "expected"), CASES.values(), ids=CASES.keys())
def test_a_rule_decides_by_the_interval(rule, part, expected):
    assert verdict(rule, part) is expected


def test_added_assumptions_show_in_support_alone():
    good, bad, open_ = Part("", 0.5), Part("", 2.0), Part("", 0.9, 0.1, N)
    assert verdict(INSIDE, good, assumes=True) is Verdict.SUPPORTED_UNDER_ASSUMPTIONS
    assert verdict(INSIDE, bad, assumes=True) is Verdict.NOT_SUPPORTED
    assert verdict(INSIDE, open_, assumes=True) is Verdict.INCONCLUSIVE


def test_nothing_measured_is_not_run():
    found = decide(INSIDE, Measurement.missing("no table"), comparisons=1, assumes=False)
    assert found.verdict is Verdict.NOT_RUN
    assert found.part is None


def test_of_several_parts_the_worst_decides():
    good, open_, bad = Part("a", 0.5), Part("b", 0.9, 0.1, N), Part("c", 3.0)
    assert verdict(INSIDE, good, good) is Verdict.SUPPORTED
    assert verdict(INSIDE, good, open_) is Verdict.INCONCLUSIVE
    found = decide(INSIDE, Measurement.of((good, open_, bad)), comparisons=1, assumes=False)
    assert (found.verdict, found.part) == (Verdict.NOT_SUPPORTED, bad)
    close = Part("close", 0.95)
    assert decide(INSIDE, Measurement.of((good, close)), comparisons=1, assumes=False).part is close


def test_each_part_has_its_own_bounds():
    rule = Rule("inside", low=(0.0, 10.0), high=(1.0, 11.0))
    assert verdict(rule, Part("", 0.5), Part("", 10.5)) is Verdict.SUPPORTED
    assert verdict(rule, Part("", 0.5), Part("", 0.5)) is Verdict.NOT_SUPPORTED


def test_more_comparisons_make_wider_intervals():
    part = Part("", 0.7, 0.1, N)
    assert verdict(INSIDE, part) is Verdict.SUPPORTED
    assert verdict(INSIDE, part, comparisons=100) is Verdict.INCONCLUSIVE


def test_intervals_are_students_and_the_exact_binomial_ones():
    part, alarm = Part("", 2.0, 0.5, 8), 0.003
    low, high = interval(part, alarm)
    assert (high - 2.0) / 0.5 == pytest.approx(stats.t(7).isf(alarm / 2))
    assert low + high == pytest.approx(4.0)
    expected = stats.binomtest(7, 20).proportion_ci(1 - alarm, method="exact")
    assert interval(Part.share(7, 20), alarm) == pytest.approx((expected.low, expected.high))
    with pytest.raises(InvalidArgumentError, match="between 0 and 1, not 1"):
        interval(part, 1.0)


def test_the_family_wise_rate_is_held():
    """Families of 20 claims at the very bound: some verdict is wrong in at most one of 100."""
    rng, families, size = np.random.default_rng(1), 4000, 20
    rule = Rule("inside", low=(0.0,))
    draws = rng.standard_normal((families, size, 30))
    means, errors = draws.mean(axis=2), draws.std(axis=2, ddof=1) / np.sqrt(30)
    half = stats.t(29).isf(FAMILY_WISE / size / 2)
    wrong = int((means < -half * errors).any(axis=1).sum())
    part = Part("", float(means[0, 0]), float(errors[0, 0]), 30)
    assert interval(part, FAMILY_WISE / size)[1] == pytest.approx(means[0, 0] + half * errors[0, 0])
    # Half of the rate, as one side alone can be wrong here; by chance above it once in a million.
    assert wrong <= stats.binom(families, FAMILY_WISE / 2).isf(1e-6)
    assert rule.judge(part, 0, FAMILY_WISE / size)[0] is not Verdict.SUPPORTED or means[0, 0] > 0


def test_rules_are_told_in_words():
    assert INSIDE.in_words() == "interval in [0, 1]"
    assert Rule("inside", low=(0.5,)).in_words() == "interval at least 0.5"
    assert Rule("inside", high=(0.5,)).in_words() == "interval at most 0.5"
    assert Rule("inside", low=(0.0,), high=(0.0,)).in_words() == "equals 0"
    assert Rule("inside", low=(0.0, 2.0), high=(1.0, 3.0)).in_words() == (
        "interval in [0, 1], [2, 3]"
    )
    assert NEAR.in_words() == "interval holds 0.5, half-width at most 0.1"


@pytest.mark.parametrize(
    ("value", "error", "n"),
    [(np.nan, 0.0, 1), (1.0, np.inf, 5), (1.0, -1.0, 5), (1.0, 0.1, 0)],
    ids=["no number", "infinite error", "negative error", "no replicates"],
)
def test_what_is_no_measurement_is_refused(value, error, n):
    with pytest.raises(InvalidArgumentError, match="which is no measurement"):
        Part("x", value, error, n)


def test_a_measurement_survives_json():
    found = Measurement.of((Part("a", 0.1, 0.2, 3), Part.share(1, 7, "b")), "note")
    assert Measurement.from_json(found.to_json()) == found
