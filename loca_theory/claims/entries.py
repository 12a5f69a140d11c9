"""What was decided of a claim, and from what."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from loca_theory.claims.ledger import CHECKS, Claim, Section
from loca_theory.claims.measurement import Estimate, Measurement, Tier
from loca_theory.claims.observation import measure
from loca_theory.claims.rules import Decision, Verdict, decide
from loca_theory.sweeps import code_version

# Where experiments write unless told otherwise, and where verify looks.
DEFAULT_RESULTS = "loca-results"

_HOW_TO_MAKE = "Make it with: {} && loca-theory verify {} --results {}"


@dataclass(frozen=True)
class Entry:
    """The line of the ledger's outcome for one claim.

    Attributes:
        claim: The claim.
        measurement: What its check observed.
        error_rate: Probability with which each of its intervals may miss
            (:meth:`Ledger.error_rate`).
        tier: How much work went into it.
        seed: Root seed.
        seconds: How long it took.
        data: Digests of the stored tables that were read.
        version: Version of the code that observed it.
    """

    claim: Claim
    measurement: Measurement
    error_rate: float
    tier: Tier
    seed: int
    seconds: float
    data: tuple[str, ...]
    version: str

    @cached_property
    def decision(self) -> Decision:
        """The verdict, and the estimate and interval that decided it."""
        rule, assumes = self.claim.rule, bool(self.claim.added)
        return decide(rule, self.measurement, error_rate=self.error_rate, assumes=assumes)

    @property
    def id(self) -> str:
        """Name of the claim."""
        return self.claim.id

    @property
    def section(self) -> Section:
        """Where the claim stands."""
        return self.claim.section

    @property
    def verdict(self) -> Verdict:
        """What was found."""
        return self.decision.verdict

    @property
    def expected_verdict(self) -> Verdict:
        """What the ledger expects."""
        return self.claim.expected_verdict

    @property
    def estimate(self) -> Estimate | None:
        """The estimate that decided; None if the claim was not run."""
        return self.decision.estimate

    @property
    def observed(self) -> float | None:
        """Value of the estimate that decided."""
        return self.estimate.value if self.estimate else None

    @property
    def shown(self) -> str:
        """Observed ± standard error, for a reader."""
        return str(self.estimate) if self.estimate else "–"

    @property
    def bounds(self) -> str:
        """The rule for the estimate that decided, in words."""
        return self.claim.rule.in_words(self.decision.index)

    @property
    def note(self) -> str:
        """What a reader should know: of the claim, of the check, and how to make what lacks."""
        lacks = "" if self.measurement.estimates else _how_to_make(self.claim)
        notes = (self.claim.note, self.measurement.note, lacks)
        return " ".join(one.strip() for one in notes if one.strip())

    @property
    def stale(self) -> bool:
        """Whether another version of the code observed it."""
        return self.version != version()

    @property
    def changed(self) -> bool:
        """Whether the verdict is a decision other than the one that the ledger expects."""
        return self.verdict.is_decided and self.verdict is not self.expected_verdict

    @property
    def lost(self) -> bool:
        """Whether it is inconclusive where the ledger expects a decision at this tier."""
        may_be_open = not self.expected_verdict.is_decided or self.tier in self.claim.undecided
        return self.verdict is Verdict.INCONCLUSIVE and not may_be_open

    def row(self) -> dict[str, Any]:
        """What a table shows of it."""
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
        """All that is known, as plain data."""
        estimate, claim = self.estimate, self.claim
        return {
            **self.row(),
            "decided_by": {"name": estimate.name if estimate else "", "rule": self.bounds},
            "estimates": [asdict(one) for one in self.measurement.estimates],
            "remark": self.measurement.note,
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
            "definition": definition(claim),
        }


def version() -> str:
    """Version of the code and libraries that observations depend on, not of what judges them."""
    return code_version(measure, CHECKS)


def definition(claim: Claim) -> str:
    """Hash of what an observation depends on in the ledger; of another one it says nothing."""
    content = [claim.id, claim.check, dict(claim.arguments)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _how_to_make(claim: Claim) -> str:
    """All that is to be typed to decide a claim whose tables are not there."""
    written = re.findall(r"--out(?:\s|=)(\S+)", claim.command)
    folder = written[-1] if written else DEFAULT_RESULTS
    where = " (experiments need a checkout of the repository)"
    text = _HOW_TO_MAKE.format(claim.command, claim.id, folder)
    return text + where if "experiments." in claim.command else text
