"""The verdicts that this repository shows are those of its ledger."""

import json
from pathlib import Path

import pandas as pd

from loca_theory.claims import VerificationResult, load_ledger
from loca_theory.claims.estimates import Tier

STORED = Path(__file__).parents[2] / "figures" / "ledger"


def test_every_claim_is_shown_and_was_decided_as_the_ledger_says():
    ledger = load_ledger()
    entries = VerificationResult.load(STORED, ledger).claims
    stored = json.loads((STORED / "claims.json").read_text(encoding="utf-8"))["claims"]
    text = (STORED / "CLAIMS.md").read_text(encoding="utf-8")
    for claim, entry, shown in zip(ledger.claims, entries, stored, strict=True):
        assert entry.id == claim.id
        assert entry.cell.tier is not Tier.QUICK, claim.id
        assert (entry.changed, entry.lost) == (False, False), claim.id
        assert entry.verdict is claim.expected_verdict, claim.id
        cells = {name: shown[name] for name in ("definition", "statement", "verdict")}
        assert cells == {
            "definition": claim.definition,
            "statement": claim.statement,
            "verdict": entry.verdict,
        }
        assert f"### {claim.id}\n" in text
    table = pd.read_parquet(STORED / "claims.parquet")
    assert list(table["id"]) == [entry.id for entry in entries]
    assert list(table["verdict"]) == [entry.verdict for entry in entries]
