"""The verdicts that this repository shows are those of its ledger."""

import json
from pathlib import Path

import pandas as pd
import pytest

from loca_theory.claims import VerificationResult, load_ledger
from loca_theory.claims.estimates import Tier

STORED = Path(__file__).parents[2] / "figures" / "ledger"
LEDGER = load_ledger()


@pytest.fixture(scope="module")
def entries():
    return {one.id: one for one in VerificationResult.load(STORED, LEDGER).claims}


def test_every_claim_was_decided_as_the_ledger_says(entries):
    for claim in LEDGER.claims:
        one = entries[claim.id]
        assert one.cell.tier is not Tier.QUICK, claim.id
        assert (one.changed, one.lost) == (False, False), claim.id
        assert one.verdict is claim.expected_verdict, claim.id


def test_what_is_shown_is_what_the_ledger_says():
    stored = json.loads((STORED / "claims.json").read_text(encoding="utf-8"))["claims"]
    for one, claim in zip(stored, LEDGER.claims, strict=True):
        assert one["definition"] == claim.definition, claim.id
        assert one["statement"] == claim.statement, claim.id
        assert one["verdict"] == claim.expected_verdict.value, claim.id


def test_nothing_else_is_shown(entries):
    assert list(entries) == [claim.id for claim in LEDGER.claims]
    table = pd.read_parquet(STORED / "claims.parquet")
    assert list(table["id"]) == list(entries)
    assert list(table["verdict"]) == [one.verdict for one in entries.values()]
    text = (STORED / "CLAIMS.md").read_text(encoding="utf-8")
    assert all(f"### {name}\n" in text for name in entries)
