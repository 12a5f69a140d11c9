"""Power: every supported claim is refuted under the alternative that its entry names."""

from dataclasses import replace
from pathlib import Path

import pytest

import loca_theory
from loca_theory.claims import load_ledger, refute
from loca_theory.claims.claim import Alternative, LedgerError
from loca_theory.claims.estimates import Tier
from loca_theory.claims.rules import Verdict
from loca_theory.claims.synthetic import TABLES

LEDGER = load_ledger()
SUPPORTED = (Verdict.SUPPORTED, Verdict.SUPPORTED_UNDER_ASSUMPTIONS)
RUNS = Path(loca_theory.__file__).parents[1] / "figures" / "finetuning"
RUN = [one for one in LEDGER.claims if one.refuted_by]


def is_slow(claim):
    """Whether its simulations take long even at the quick tier."""
    return claim.cost >= 3 or claim.refuted_by.tier is not Tier.QUICK


def test_every_supported_claim_can_be_refuted():
    supported = [one for one in LEDGER.claims if one.expected_verdict in SUPPORTED]
    assert [one.id for one in supported if one.refuted_by is None] == []


@pytest.mark.parametrize(
    "claim",
    [pytest.param(one, marks=[pytest.mark.deep] if is_slow(one) else [], id=one.id) for one in RUN],
)
def test_the_alternative_is_refuted(claim):
    assert refute(claim, LEDGER, results=RUNS) is Verdict.NOT_SUPPORTED


def named(name, **changed):
    (claim,) = LEDGER.find([name])
    return replace(claim, refuted_by=Alternative(statement="Something else.", **changed))


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        (named("parseval.unitary", arguments={"factor": "1"}),
         "does not refute it at the quick tier: under the alternative it is supported"),
        (named("fig1a.carries-over", table="gossip"), "no synthetic table 'gossip'; choose from "),
        (LEDGER.find(["parseval.factor"])[0], "no 'refuted_by' to run its check on"),
    ],
    ids=["the claim itself", "unknown table", "none"],
)  # fmt: skip
def test_an_alternative_that_does_not_refute_is_an_error_of_the_ledger(claim, message):
    with pytest.raises(LedgerError, match=rf"claim '{claim.id}'.*{message}"):
        refute(claim, LEDGER)


def test_every_synthetic_table_is_used():
    assert {one.refuted_by.table for one in RUN if one.refuted_by} - {""} == set(TABLES)
