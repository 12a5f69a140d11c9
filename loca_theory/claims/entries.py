"""The outcome for one claim: its measurement, its verdict, and its row in tables and files."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from loca_theory.claims.ledger import Claim, Section
from loca_theory.claims.measurement import Estimate, Measurement, Tier
from loca_theory.claims.observation import packages_of
from loca_theory.claims.rules import Decision, Verdict, decide
from loca_theory.sweeps.version import code_version

# Default output folder of the experiments, and where verify looks for their tables.
DEFAULT_RESULTS = "loca-results"

_HOW_TO_MAKE = "Make it with: {} && loca-theory verify {} --results {}"


@dataclass(frozen=True)
class Entry:
    """The outcome for one claim.

    Attributes:
        claim: The claim.
        measurement: What its check measured.
        error_rate: Probability with which each of its intervals may miss the true value
            (``Ledger.error_rate``).
        tier: Tier of the check.
        seed: Root seed.
        seconds: Duration of the check.
        data: Digests of the stored tables that the check read.
        version: Version of the code that measured it.
        backed: Whether this run or a stored observation has its numbers.
    """

    claim: Claim
    measurement: Measurement
    error_rate: float
    tier: Tier
    seed: int
    seconds: float
    data: tuple[str, ...]
    version: str
    backed: bool = True

    @cached_property
    def decision(self) -> Decision:
        """The verdict, with the estimate and the interval that decided it."""
        rule, assumes = self.claim.rule, bool(self.claim.added)
        return decide(rule, self.measurement, error_rate=self.error_rate, assumes=assumes)

    @property
    def id(self) -> str:
        """The id of the claim."""
        return self.claim.id

    @property
    def section(self) -> Section:
        """The claim's section and passage."""
        return self.claim.section

    @property
    def verdict(self) -> Verdict:
        """The verdict."""
        return self.decision.verdict

    @property
    def expected_verdict(self) -> Verdict:
        """The verdict that the ledger expects."""
        return self.claim.expected_verdict

    @property
    def estimate(self) -> Estimate | None:
        """The estimate that decided the verdict; None if the claim was not run."""
        return self.decision.estimate

    @property
    def observed(self) -> float | None:
        """Value of the estimate that decided the verdict; None if the claim was not run."""
        return self.estimate.value if self.estimate else None

    @property
    def shown(self) -> str:
        """The observed value ± its standard error, as text."""
        return str(self.estimate) if self.estimate else "–"

    @property
    def bounds(self) -> str:
        """The rule for the estimate that decided the verdict, as text."""
        return self.claim.rule.in_words(self.decision.index)

    @property
    def note(self) -> str:
        """The notes of the claim and of the check, and the command that makes missing tables."""
        missing = "" if self.measurement.estimates else _how_to_make(self.claim)
        notes = (self.claim.note, self.measurement.note, missing)
        return " ".join(one.strip() for one in notes if one.strip())

    @property
    def stale(self) -> bool:
        """Whether another version of the code measured it."""
        return self.version != version(self.claim)

    @property
    def changed(self) -> bool:
        """Whether the claim was decided, but not as the ledger expects."""
        return self.verdict.is_decided and self.verdict is not self.expected_verdict

    @property
    def lost(self) -> bool:
        """Whether it is inconclusive although the ledger expects a decision at this tier."""
        may_be_open = not self.expected_verdict.is_decided or self.tier in self.claim.undecided
        return self.verdict is Verdict.INCONCLUSIVE and not may_be_open

    def row(self) -> dict[str, Any]:
        """Its row in the table of claims."""
        return {
            "id": self.id,
            "verdict": self.verdict.value,
            "observed": self.observed,
            "standard_error": self.estimate.standard_error if self.estimate else None,
            "low": self.decision.low,
            "high": self.decision.high,
            "expected": self.claim.expected,
            "rule": self.claim.rule.in_words(),
            "n": self.estimate.n if self.estimate else 0,
            "seconds": self.seconds,
            "tier": self.tier.value,
            "seed": self.seed,
            "expected_verdict": self.expected_verdict.value,
            "note": self.note,
            "section": self.section.title,
            "kind": self.claim.kind,
            "subject": self.claim.subject,
            "erratum": self.claim.erratum,
        }

    def to_json(self) -> dict[str, Any]:
        """Its entry in claims.json: the row and all details, as plain data."""
        estimate, claim = self.estimate, self.claim
        return {
            **self.row(),
            "decided_by": {"name": estimate.name if estimate else "", "rule": self.bounds},
            "estimates": [asdict(one) for one in self.measurement.estimates],
            "remark": self.measurement.note,
            "designed": self.measurement.verdict,
            "data": list(self.data),
            "version": self.version,
            "stale": self.stale,
            "changed": self.changed,
            "lost": self.lost,
            "passage": self.section.passage,
            "statement": claim.statement,
            "assumptions": list(claim.assumptions),
            "added": list(claim.added),
            "check": claim.check,
            "command": claim.command,
            "figure": claim.figure or None,
            "definition": claim.definition,
        }


def version(claim: Claim) -> str:
    """Version of the code and libraries that measure a claim; the code that judges is not in it."""
    return code_version(*packages_of(claim.check))


def _how_to_make(claim: Claim) -> str:
    """The commands that make a claim's missing tables and then decide it."""
    written = re.findall(r"--out(?:\s|=)(\S+)", claim.command)
    folder = written[-1] if written else DEFAULT_RESULTS
    where = " (experiments need a checkout of the repository)"
    text = _HOW_TO_MAKE.format(claim.command, claim.id, folder)
    return text + where if "experiments." in claim.command else text
