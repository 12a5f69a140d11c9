"""Show that a claim could be refuted: run its check on the alternative that its entry names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from loca_theory.claims.claim import Claim
from loca_theory.claims.entries import Entry
from loca_theory.claims.ledger import Ledger
from loca_theory.claims.observation import ClaimCell
from loca_theory.claims.rules import Verdict
from loca_theory.claims.synthetic import TABLES
from loca_theory.sweeps import generator


def refute(claim: Claim, ledger: Ledger, *, seed: int = 0, results: Path | None = None) -> Verdict:
    """Run a claim's check on its alternative, at the tier that decides; return the verdict.

    >>> from loca_theory.claims import load_ledger
    >>> ledger = load_ledger()
    >>> (claim,) = ledger.find(["parseval.unitary"])
    >>> refute(claim, ledger)
    <Verdict.NOT_SUPPORTED: 'not supported'>

    Args:
        claim: The claim.
        ledger: The ledger that it is from, whose family-wise error rate it shares.
        seed: Root seed.
        results: Folder of stored tables, for an empirical claim without a synthetic table.

    Raises:
        LedgerError: the claim has no alternative, or the claim's rule does
            not refute it.
    """
    alternative = claim.refuted_by
    if alternative is None:
        why = "it has no 'refuted_by' to run its check on"
        raise claim.error(why)
    if alternative.table and alternative.table not in TABLES:
        known = ", ".join(TABLES)
        why = f"there is no synthetic table {alternative.table!r}; choose from {known}"
        raise claim.error(why)
    changed = replace(claim, arguments={**claim.arguments, **alternative.arguments})
    rng = generator(seed, ClaimCell.experiment, claim.id)
    with TemporaryDirectory() as folder:
        if alternative.table:
            for argument, rows in TABLES[alternative.table](rng).items():
                path = Path(folder) / f"{claim.arguments[argument]}.parquet"
                pd.DataFrame(rows).to_parquet(path)
            results = Path(folder)
        found = changed.measure(alternative.tier, rng, results)
    cell = ClaimCell(changed, alternative.tier, seed, ())
    entry = Entry(cell, found, ledger.error_rate(claim))
    if entry.verdict is not Verdict.NOT_SUPPORTED:
        why = f"'refuted_by' does not refute it at the {alternative.tier} tier: under the "
        why += f"alternative it is {entry.verdict} (observed {entry.estimate}); name an "
        raise claim.error(why + "alternative that its rule can tell from the claim")
    return entry.verdict
