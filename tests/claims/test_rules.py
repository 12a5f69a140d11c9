"""Rules on made-up estimates: every verdict is reached, and by the interval alone."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from loca_theory.claims import Estimate, load_ledger
from loca_theory.claims.estimates import Measured, observed
from loca_theory.claims.ledger import Ledger
from loca_theory.claims.rules import FAMILY_WISE, Rule, Verdict, decide
from loca_theory.errors import InvalidArgumentError

INSIDE, NEAR = Rule(low=0.0, high=1.0), Rule(value=0.5, precision=0.1)
HALF, TWO = Rule(low=0.5), Rule(low=(0.0, 10.0), high=(1.0, np.inf))
# Many replicates: t is nearly normal, and the interval of one comparison 2.58 errors wide.
N = 10**6
GOOD, OPEN, BAD = Estimate(0.5), Estimate(0.9, 0.1, N), Estimate(3.0)
SUPPORTED, REFUSED, UNDECIDED = Verdict.SUPPORTED, Verdict.NOT_SUPPORTED, Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("rule", "parts", "expected"),
    [
        pytest.param(INSIDE, [Estimate(1.0)], (SUPPORTED, 0), id="exact, inside"),
        pytest.param(INSIDE, [Estimate(1.0 + 1e-12)], (REFUSED, 0), id="exact, outside"),
        pytest.param(INSIDE, [Estimate(0.5, 0.1, N)], (SUPPORTED, 0), id="inside by far"),
        pytest.param(INSIDE, [OPEN], (UNDECIDED, 0), id="across the bound"),
        pytest.param(INSIDE, [Estimate(1.2, 0.1, N)], (UNDECIDED, 0), id="across from outside"),
        pytest.param(INSIDE, [Estimate(1.3, 0.1, N)], (REFUSED, 0), id="outside by far"),
        pytest.param(INSIDE, [Estimate(1.3, 0.1, 3)], (UNDECIDED, 0), id="few replicates"),
        pytest.param(HALF, [Estimate.fraction(3, 3)], (UNDECIDED, 0), id="all of few"),
        pytest.param(HALF, [Estimate.fraction(30, 30)], (SUPPORTED, 0), id="all of many"),
        pytest.param(HALF, [Estimate.fraction(0, 30)], (REFUSED, 0), id="none of many"),
        pytest.param(NEAR, [Estimate(0.51, 0.01, N)], (SUPPORTED, 0), id="near"),
        pytest.param(NEAR, [Estimate(0.55, 0.01, N)], (REFUSED, 0), id="near, excluded"),
        pytest.param(NEAR, [Estimate(0.51, 0.1, N)], (UNDECIDED, 0), id="near, too wide"),
        pytest.param(NEAR, [GOOD], (SUPPORTED, 0), id="near, exact"),
        pytest.param(INSIDE, [GOOD, Estimate(0.95)], (SUPPORTED, 1), id="smallest margin"),
        pytest.param(INSIDE, [GOOD, OPEN], (UNDECIDED, 1), id="one is open"),
        pytest.param(INSIDE, [GOOD, BAD, OPEN], (REFUSED, 1), id="one fails"),
        pytest.param(TWO, [GOOD, Estimate(10.5)], (SUPPORTED, 0), id="a bound each"),
        pytest.param(TWO, [GOOD, GOOD], (REFUSED, 1), id="the other bound"),
        pytest.param(INSIDE, [], (Verdict.NOT_RUN, None), id="nothing measured"),
    ],
)
def test_the_worst_interval_decides(rule, parts, expected):
    assert decide(rule, Measured(tuple(parts)), FAMILY_WISE) == expected


def test_added_assumptions_show_in_support_alone():
    measured = [Measured((estimate,)) for estimate in (GOOD, BAD, OPEN)]
    verdicts = [decide(INSIDE, part, 0.01, assumes=True)[0] for part in measured]
    assert verdicts == [Verdict.SUPPORTED_UNDER_ASSUMPTIONS, REFUSED, UNDECIDED]


def test_intervals_are_students_and_the_exact_binomial_ones():
    part, error_rate = Estimate(2.0, 0.5, 8), 0.003
    low, high = part.interval(error_rate)
    assert (high - 2.0) / 0.5 == pytest.approx(stats.t(7).isf(error_rate / 2))
    assert low + high == pytest.approx(4.0)
    expected = stats.binomtest(7, 20).proportion_ci(1 - error_rate, method="exact")
    assert Estimate.fraction(7, 20).interval(error_rate) == (expected.low, expected.high)
    with pytest.raises(InvalidArgumentError, match="between 0 and 1, not 1"):
        part.interval(1.0)


def of_kind(claim, kind, comparisons):
    tables = ("x",) if kind == "empirical" else ()
    return replace(claim, kind=kind, comparisons=comparisons, tables=tables)


def test_the_family_wise_rate_is_held():
    """Of 20 true intervals, 4 of them empirical, any is refused in one of 100 families at most.

    Replicates are normal, so that t-intervals are exact, and a rule of kind ``near`` is refused on
    both sides: then nothing but Bonferroni's inequality lies between the rate and what is stated.
    """
    claim = load_ledger().claims[0]
    few, many = of_kind(claim, "empirical", 2), of_kind(claim, "Monte Carlo", 4)
    ledger = Ledger((few, few, *[many] * 4, of_kind(claim, "bound", 0)))
    assert ledger.comparisons == 20
    assert Ledger(ledger.claims[-1:]).error_rate(ledger.claims[-1]) <= FAMILY_WISE
    error_rates = [ledger.error_rate(row) for row in ledger.claims for _ in range(row.comparisons)]
    assert error_rates == [FAMILY_WISE / 2 / 4] * 4 + [FAMILY_WISE / 2 / 16] * 16
    rule = Rule(value=0, precision=1e9)
    rng, families = np.random.default_rng(1), 4000
    wrong = 0
    for draws in rng.standard_normal((families, len(error_rates), 30)):
        wrong += any(
            decide(rule, Measured((Estimate.mean(values),)), rate)[0] is REFUSED
            for rate, values in zip(error_rates, draws, strict=True)
        )
    # Outside by chance once in a million; below, intervals would be wider than they need be.
    exact = stats.binom(families, 1 - np.prod(1 - np.array(error_rates)))
    assert exact.ppf(5e-7) <= wrong <= exact.isf(5e-7)


def test_printed_numbers_allow_half_a_unit():
    rule = Rule(printed=[3.5, 12], unit=0.1)
    assert (rule.low, rule.high) == ((3.45, 11.95), (3.55, 12.05))


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (INSIDE, "whole interval in [0, 1]"),
        (HALF, "whole interval ≥ 0.5"),
        (Rule(high=1.000001), "whole interval ≤ 1.000001"),
        (Rule(low=0.0, high=0.0), "equals 0"),
        (NEAR, "interval holds 0.5, half-width ≤ 0.1"),
        (Rule(designed=True), "by the design of the experiments"),
        (TWO, "whole interval in [0, 1], ≥ 10"),
    ],
)
def test_rules_are_told_in_words(rule, text):
    assert rule.in_words() == text
    assert TWO.in_words(1) == "whole interval ≥ 10"


@pytest.mark.parametrize(
    ("value", "error", "n"),
    [(np.nan, 0.0, 1), (1.0, np.inf, 5), (1.0, -1.0, 5), (1.0, 0.1, 0)],
    ids=["no number", "infinite error", "negative error", "no replicates"],
)
def test_what_is_no_measurement_is_refused(value, error, n):
    with pytest.raises(InvalidArgumentError, match="which is not a measurement"):
        Estimate(value, error, n)


def test_what_a_check_returns_is_read_as_named_estimates():
    assert observed(0.5) == Measured((Estimate(0.5),))
    assert observed((Estimate(1.0, 0.1, 3), "why")) == Measured((Estimate(1.0, 0.1, 3),), "why")
    named = (Estimate(1.0, name="a"), replace(Estimate.fraction(1, 7), name="b"))
    measured = observed(({"a": 1, "b": Estimate.fraction(1, 7)}, "", "supported"))
    assert measured == Measured(named, "", "supported")
    assert observed(({}, "no table")) == Measured((), "no table")
    assert observed(pair for pair in (("a", 1), ("b", Estimate.fraction(1, 7)))) == Measured(named)
    assert observed(gap for gap in (0.5, np.array([[1.0, -2.0]]))) == Measured((Estimate(2.0),))


def test_the_design_gives_verdict_and_bounds():
    part, rule = Estimate(0.2, 0.1, 384, bounds=(-0.3, 0.7)), Rule(designed=True)
    assert not part.is_random
    assert part.interval(0.01) == (-0.3, 0.7)
    equivalent = Measured((part,), designed="equivalent within a margin")
    assert decide(rule, equivalent, 0.01) == (Verdict.EQUIVALENT, 0)
    supported = Measured((part,), designed="supported")
    decision = decide(rule, supported, 0.01, assumes=True)
    assert decision == (Verdict.SUPPORTED_UNDER_ASSUMPTIONS, 0)
    with pytest.raises(InvalidArgumentError, match="unknown verdict ''; choose from"):
        decide(rule, Measured((part,)), 0.01)
