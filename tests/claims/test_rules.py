"""Rules on made-up observations: every verdict is reached, and by the interval alone."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from loca_theory.claims import Estimate, load_ledger
from loca_theory.claims.estimates import observed
from loca_theory.claims.ledger import Ledger
from loca_theory.claims.observation import read_estimates, stored
from loca_theory.claims.rules import FAMILY_WISE, Rule, Verdict, decide
from loca_theory.errors import InvalidArgumentError

INSIDE = Rule(low=0.0, high=1.0)
NEAR = Rule(value=0.5, precision=0.1)
# Many replicates: t is nearly normal, and the interval of one comparison 2.58 errors wide.
N = 10**6


def verdict(rule, *parts, assumes=False, error_rate=FAMILY_WISE):
    return decide(rule, parts, error_rate=error_rate, assumes=assumes)[0]


CASES = {
    "exact, inside": (INSIDE, Estimate(1.0), Verdict.SUPPORTED),
    "exact, outside": (INSIDE, Estimate(1.0 + 1e-12), Verdict.NOT_SUPPORTED),
    "inside by far": (INSIDE, Estimate(0.5, 0.1, N), Verdict.SUPPORTED),
    "across the bound": (INSIDE, Estimate(0.9, 0.1, N), Verdict.INCONCLUSIVE),
    "across from outside": (INSIDE, Estimate(1.2, 0.1, N), Verdict.INCONCLUSIVE),
    "outside by far": (INSIDE, Estimate(1.3, 0.1, N), Verdict.NOT_SUPPORTED),
    "few replicates": (INSIDE, Estimate(1.3, 0.1, 3), Verdict.INCONCLUSIVE),
    "all succeed, few": (INSIDE, Estimate.fraction(3, 3), Verdict.SUPPORTED),
    "half or more, few": (
        Rule(low=0.5),
        Estimate.fraction(3, 3),
        Verdict.INCONCLUSIVE,
    ),
    "half or more, many": (
        Rule(low=0.5),
        Estimate.fraction(30, 30),
        Verdict.SUPPORTED,
    ),
    "half or more, none": (
        Rule(low=0.5),
        Estimate.fraction(0, 30),
        Verdict.NOT_SUPPORTED,
    ),
    "near": (NEAR, Estimate(0.51, 0.01, N), Verdict.SUPPORTED),
    "near, excluded": (NEAR, Estimate(0.55, 0.01, N), Verdict.NOT_SUPPORTED),
    "near, too wide": (NEAR, Estimate(0.51, 0.1, N), Verdict.INCONCLUSIVE),
    "near, exact": (NEAR, Estimate(0.5), Verdict.SUPPORTED),
}


@pytest.mark.parametrize(("rule", "part", "expected"), CASES.values(), ids=CASES.keys())
def test_a_rule_decides_by_the_interval(rule, part, expected):
    assert verdict(rule, part) is expected


def test_added_assumptions_show_in_support_alone():
    good, bad, open_ = Estimate(0.5), Estimate(2.0), Estimate(0.9, 0.1, N)
    assert verdict(INSIDE, good, assumes=True) is Verdict.SUPPORTED_UNDER_ASSUMPTIONS
    assert verdict(INSIDE, bad, assumes=True) is Verdict.NOT_SUPPORTED
    assert verdict(INSIDE, open_, assumes=True) is Verdict.INCONCLUSIVE


def test_nothing_measured_is_not_run():
    assert decide(INSIDE, (), error_rate=FAMILY_WISE) == (Verdict.NOT_RUN, None)


def test_of_several_parts_the_worst_decides():
    good, open_, bad = Estimate(0.5), Estimate(0.9, 0.1, N), Estimate(3.0)
    assert verdict(INSIDE, good, good) is Verdict.SUPPORTED
    assert verdict(INSIDE, good, open_) is Verdict.INCONCLUSIVE
    found = decide(INSIDE, (good, open_, bad), error_rate=FAMILY_WISE)
    assert found == (Verdict.NOT_SUPPORTED, 2)
    assert decide(INSIDE, (good, Estimate(0.95)), error_rate=FAMILY_WISE)[1] == 1


def test_each_part_has_its_own_bounds():
    rule = Rule(low=(0.0, 10.0), high=(1.0, 11.0))
    assert verdict(rule, Estimate(0.5), Estimate(10.5)) is Verdict.SUPPORTED
    assert verdict(rule, Estimate(0.5), Estimate(0.5)) is Verdict.NOT_SUPPORTED


@pytest.mark.parametrize("count", [1, 3], ids=["too few", "too many"])
def test_a_rule_for_other_parts_is_refused(count):
    rule = Rule(low=(0.0, 10.0))
    with pytest.raises(InvalidArgumentError, match=f"bounds for 2 .*, but there are {count}"):
        verdict(rule, *[Estimate(0.5)] * count)


def test_a_smaller_share_of_the_rate_makes_wider_intervals():
    part = Estimate(0.7, 0.1, N)
    assert verdict(INSIDE, part) is Verdict.SUPPORTED
    assert verdict(INSIDE, part, error_rate=FAMILY_WISE / 100) is Verdict.INCONCLUSIVE


def test_intervals_are_students_and_the_exact_binomial_ones():
    part, error_rate = Estimate(2.0, 0.5, 8), 0.003
    low, high = part.interval(error_rate)
    assert (high - 2.0) / 0.5 == pytest.approx(stats.t(7).isf(error_rate / 2))
    assert low + high == pytest.approx(4.0)
    expected = stats.binomtest(7, 20).proportion_ci(1 - error_rate, method="exact")
    assert Estimate.fraction(7, 20).interval(error_rate) == (expected.low, expected.high)
    with pytest.raises(InvalidArgumentError, match="between 0 and 1, not 1"):
        part.interval(1.0)


def test_the_family_wise_rate_is_held():
    """Families of 20 true claims, half of them empirical: any is refused in one of 100 at most.

    Replicates are normal, so that t-intervals are exact, and a rule of kind ``near`` is refused on
    both sides: then nothing but Bonferroni's inequality lies between the rate and what is stated.
    """
    claim, kinds = load_ledger().claims[0], ["empirical"] * 4 + ["asymptotic"] * 16
    ledger = Ledger(tuple(of_kind(claim, kind, 1) for kind in kinds))
    rule = Rule(value=0, precision=1e9)
    rng, families = np.random.default_rng(1), 4000
    wrong = 0
    for draws in rng.standard_normal((families, len(kinds), 30)):
        wrong += any(
            verdict(rule, Estimate.mean(one), error_rate=ledger.error_rate(mine))
            is Verdict.NOT_SUPPORTED
            for mine, one in zip(ledger.claims, draws, strict=True)
        )
    # Outside by chance once in a million; below, intervals would be wider than they need be.
    error_rates = [ledger.error_rate(one) for one in ledger.claims]
    assert sum(error_rates) == pytest.approx(FAMILY_WISE)
    exact = stats.binom(families, 1 - np.prod(1 - np.array(error_rates)))
    assert exact.ppf(5e-7) <= wrong <= exact.isf(5e-7)


def of_kind(claim, kind, comparisons):
    tables = ("x",) if kind == "empirical" else ()
    return replace(claim, kind=kind, comparisons=comparisons, tables=tables)


def test_half_of_the_rate_is_for_empirical_claims():
    claim = load_ledger().claims[0]
    few, many = of_kind(claim, "empirical", 2), of_kind(claim, "Monte Carlo", 5)
    ledger = Ledger((few, few, *[many] * 10))
    assert ledger.error_rate(few) == FAMILY_WISE / 2 / 4
    assert ledger.error_rate(many) == FAMILY_WISE / 2 / 50
    assert ledger.comparisons == 54
    assert Ledger((of_kind(claim, "bound", 0),)).error_rate(claim) <= FAMILY_WISE


def test_rules_are_told_in_words():
    assert INSIDE.in_words() == "whole interval in [0, 1]"
    assert Rule(low=0.5).in_words() == "whole interval ≥ 0.5"
    assert Rule(high=0.5).in_words() == "whole interval ≤ 0.5"
    assert Rule(low=0.0, high=0.0).in_words() == "equals 0"
    assert NEAR.in_words() == "interval holds 0.5, half-width ≤ 0.1"
    assert Rule(high=1.000001).in_words() == "whole interval ≤ 1.000001"
    two = Rule(low=(0.0, -np.inf), high=(1.0, 3.0))
    assert two.in_words() == "whole interval in [0, 1], ≤ 3"
    assert two.in_words(1) == "whole interval ≤ 3"


@pytest.mark.parametrize(
    ("value", "error", "n"),
    [(np.nan, 0.0, 1), (1.0, np.inf, 5), (1.0, -1.0, 5), (1.0, 0.1, 0)],
    ids=["no number", "infinite error", "negative error", "no replicates"],
)
def test_what_is_no_measurement_is_refused(value, error, n):
    with pytest.raises(InvalidArgumentError, match="which is not a measurement"):
        Estimate(value, error, n)


def test_what_a_check_returns_is_read_as_named_estimates():
    assert observed(0.5) == ((Estimate(0.5),), "", "")
    assert observed((Estimate(1.0, 0.1, 3), "why")) == ((Estimate(1.0, 0.1, 3),), "why", "")
    found = observed(({"a": 1, "b": Estimate.fraction(1, 7)}, "", "supported"))
    assert found[0] == (Estimate(1.0, name="a"), replace(Estimate.fraction(1, 7), name="b"))
    assert found[2] == "supported"
    assert observed(({}, "no table")) == ((), "no table", "")


def test_estimates_survive_json():
    found = (Estimate(0.1, 0.2, 3, name="a"), Estimate(0.2, 0.1, 384, bounds=(-0.3, 0.7)))
    plain = json.loads(json.dumps(stored(found, "note", "")))
    assert read_estimates(plain["estimates"]) == found


def test_the_design_gives_verdict_and_bounds():
    part = Estimate(0.2, 0.1, 384, bounds=(-0.3, 0.7))
    assert not part.is_random
    assert part.interval(0.01) == (-0.3, 0.7)
    rule = Rule(designed=True)
    given = {"error_rate": 0.01, "designed": "equivalent within a margin"}
    assert decide(rule, (part,), **given) == (Verdict.EQUIVALENT, 0)
    assert decide(rule, (), error_rate=0.01)[0] is Verdict.NOT_RUN
    with pytest.raises(InvalidArgumentError, match="unknown verdict ''; choose from"):
        decide(rule, (part,), error_rate=0.01)
