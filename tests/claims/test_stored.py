"""The verdicts that this repository shows are those of its ledger."""

from pathlib import Path

import pandas as pd
import pytest

from loca_theory.claims import Effort, load_ledger, read_entries
from loca_theory.claims.verification import definition, renewed

STORED = Path(__file__).parents[2] / "figures" / "ledger"
LEDGER = load_ledger()


@pytest.fixture(scope="module")
def entries():
    return {one["id"]: one for one in read_entries(STORED)}


def test_every_claim_was_decided_as_the_ledger_says(entries):
    for claim in LEDGER.claims:
        one = entries[claim.id]
        assert one["definition"] == definition(claim), claim.id
        assert one["statement"] == claim.statement, claim.id
        assert Effort(one["effort"]) is not Effort.QUICK, claim.id
        found = renewed(one, claim, LEDGER)
        assert (found["changed"], found["lost"]) == (False, False), claim.id
        assert found["verdict"] == one["verdict"] == claim.ledger.value, claim.id


def test_nothing_else_is_shown(entries):
    assert list(entries) == [claim.id for claim in LEDGER.claims]
    table = pd.read_parquet(STORED / "claims.parquet")
    assert list(table["id"]) == list(entries)
    assert list(table["verdict"]) == [one["verdict"] for one in entries.values()]
    text = (STORED / "CLAIMS.md").read_text(encoding="utf-8")
    assert all(f"### {name}\n" in text for name in entries)
