"""Power: every supported claim is refuted under the alternative that its entry names."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import loca_theory
from loca_theory.claims import load_ledger
from loca_theory.claims.entries import Entry
from loca_theory.claims.estimates import Tier
from loca_theory.claims.observation import ClaimCell
from loca_theory.claims.rules import Verdict
from loca_theory.sweeps import generator
from tests.claims.synthetic import TABLES

LEDGER = load_ledger()
SUPPORTED = (Verdict.SUPPORTED, Verdict.SUPPORTED_UNDER_ASSUMPTIONS)
RUNS = Path(loca_theory.__file__).parents[1] / "figures" / "finetuning"
RUN = [claim for claim in LEDGER.claims if claim.refuted_by]


def is_slow(claim):
    """Whether its simulations take long even at the quick tier."""
    return claim.cost >= 3 or claim.refuted_by.tier is not Tier.QUICK


def test_every_supported_claim_can_be_refuted():
    supported = [claim for claim in LEDGER.claims if claim.expected_verdict in SUPPORTED]
    assert [claim.id for claim in supported if claim.refuted_by is None] == []


@pytest.mark.parametrize(
    "claim",
    [pytest.param(run, marks=[pytest.mark.deep] if is_slow(run) else [], id=run.id) for run in RUN],
)
def test_the_alternative_is_refuted(claim, tmp_path):
    """The check of the claim on its alternative, at the tier that decides, has another verdict."""
    alternative, results = claim.refuted_by, RUNS
    changed = replace(claim, arguments={**claim.arguments, **alternative.arguments})
    rng = generator(0, ClaimCell.experiment, claim.id)
    if alternative.table:
        results = tmp_path
        for argument, rows in TABLES[alternative.table](rng).items():
            table = tmp_path / f"{claim.arguments[argument]}.parquet"
            pd.DataFrame(rows).to_parquet(table)
    measured = changed.measure(alternative.tier, rng, results)
    cell = ClaimCell(changed, alternative.tier, 0, ())
    entry = Entry(cell, measured, LEDGER.error_rate(claim))
    assert entry.verdict is Verdict.NOT_SUPPORTED, f"observed {entry.estimate}"


def test_every_synthetic_table_is_used():
    assert {claim.refuted_by.table for claim in RUN if claim.refuted_by} - {""} == set(TABLES)
