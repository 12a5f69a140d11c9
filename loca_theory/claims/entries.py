"""The outcome for one claim: its estimates, its verdict, and its row in tables and files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from loca_theory.claims.claim import Claim
from loca_theory.claims.estimates import Estimate, Estimates, Measured
from loca_theory.claims.observation import MEASURED, ClaimCell
from loca_theory.claims.role import Role
from loca_theory.claims.rules import Verdict, decide
from loca_theory.sweeps.version import code_version

# Default output folder of the experiments, and where verify looks for their tables.
DEFAULT_RESULTS = "loca-results"

# Fields of the claim in the row of a table and, besides, in claims.json.
_IN_ROW = ("section", "kind", "subject", "role", "question", "headline")
_IN_JSON = ("passage", "statement", "assumptions", "added", "check", "command")
_HOW_TO_MAKE = "Make it with: {} && loca-theory verify {} --results {}"


@dataclass(frozen=True)
class Entry:
    """The outcome for one claim.

    Attributes:
        cell: The claim, the tier and seed of its check, the digests of the stored tables that it
            read, and the version of the code that measured it.
        measured: What the check measured.
        error_rate: Probability with which each of its intervals may miss the true value
            (``Ledger.error_rate``).
        backed: Whether this run or a stored observation has its numbers.
        other_seeds: Verdicts of earlier runs that differ in the seed alone. One that differs makes
            the claim inconclusive, since trying seeds until one gives the desired verdict would
            always succeed.
    """

    cell: ClaimCell
    measured: Measured
    error_rate: float
    backed: bool = True
    other_seeds: Mapping[int, str] = field(default_factory=dict)

    @property
    def claim(self) -> Claim:
        """The claim."""
        return self.cell.claim

    @cached_property
    def _decision(self) -> tuple[Verdict, int | None]:
        rule, assumes = self.claim.rule, bool(self.claim.added)
        return decide(rule, self.measured, self.error_rate, assumes=assumes)

    @property
    def estimates(self) -> Estimates:
        """The numbers that the rule judges; empty if the check could not run."""
        return self.measured.estimates

    @property
    def id(self) -> str:
        """The id of the claim."""
        return self.claim.id

    @property
    def section(self) -> str:
        """The claim's section."""
        return self.claim.section

    @property
    def verdict(self) -> Verdict:
        """The verdict; inconclusive if seeds disagree."""
        return Verdict.INCONCLUSIVE if self.seeds_disagree else self._decision[0]

    @property
    def is_erratum(self) -> bool:
        """Whether the statement is an erratum, and is not supported."""
        return self.claim.role is Role.ERRATUM and self.verdict is Verdict.NOT_SUPPORTED

    @property
    def seeds_disagree(self) -> bool:
        """Whether an earlier run that differs in the seed alone has another verdict."""
        return any(verdict != self._decision[0] for verdict in self.other_seeds.values())

    def beside(self, earlier: Entry | None) -> Entry:
        """This entry, with the verdicts of an earlier one if the two differ in the seed alone."""
        if earlier is None or not (self.estimates and earlier.estimates and earlier.backed):
            return self
        if replace(earlier.cell, seed=self.cell.seed) != self.cell or earlier.stale:
            return self
        other_seeds = {**earlier.other_seeds, earlier.cell.seed: earlier._decision[0].value}
        other_seeds.pop(self.cell.seed, None)
        return replace(self, other_seeds=other_seeds)

    @property
    def estimate(self) -> Estimate | None:
        """The estimate that decided the verdict; None if the claim was not run."""
        index = self._decision[1]
        return None if index is None else self.estimates[index]

    @property
    def observed(self) -> float | None:
        """Value of the estimate that decided the verdict; None if the claim was not run."""
        return self.estimate.value if self.estimate else None

    @property
    def quantity(self) -> str:
        """The quantity of the estimate that decided the verdict, as text, with its unit."""
        names = [self.estimate.name] if self.estimate and self.estimate.name else []
        return ", ".join([self.claim.quantity, *names])

    @property
    def shown(self) -> str:
        """The observed value with its confidence interval, as text."""
        return self.with_interval(self.estimate) if self.estimate else "–"

    def with_interval(self, estimate: Estimate) -> str:
        """The value of one of its estimates, with the confidence interval that the rule judges."""
        low, high = estimate.interval(self.error_rate)
        return f"{estimate.value:.4g} ({low:.3g} to {high:.3g})" if low < high else str(estimate)

    @property
    def bounds(self) -> str:
        """The rule for the estimate that decided the verdict, as text."""
        return self.claim.rule.in_words(self._decision[1])

    @property
    def note(self) -> str:
        """The notes of the claim and of the check, and the command that makes missing tables."""
        missing = "" if self.estimates else _how_to_make(self.claim)
        verdicts = {**self.other_seeds, self.cell.seed: self._decision[0].value}
        listed = ", ".join(f"{verdict} with seed {seed}" for seed, verdict in verdicts.items())
        seeds = f"Seeds disagree: {listed}." if self.seeds_disagree else ""
        notes = (seeds, self.claim.note, self.measured.remark, missing)
        return " ".join(text.strip() for text in notes if text.strip())

    @property
    def stale(self) -> bool:
        """Whether another version of the code measured it."""
        return self.cell.version != code_version(*self.cell.packages)

    @property
    def changed(self) -> bool:
        """Whether the claim was decided, but not as the ledger expects.

        If the ledger expects no decision because seeds disagree, one seed may decide.
        """
        claim = self.claim
        is_due = claim.expected_verdict.is_decided or self.cell.tier not in claim.undecided
        return self.verdict.is_decided and self.verdict is not claim.expected_verdict and is_due

    @property
    def lost(self) -> bool:
        """Whether it is inconclusive although the ledger expects a decision at this tier."""
        claim = self.claim
        is_due = claim.expected_verdict.is_decided and self.cell.tier not in claim.undecided
        return self.verdict is Verdict.INCONCLUSIVE and is_due

    def row(self) -> dict[str, Any]:
        """Its row in the table of claims."""
        estimate, claim = self.estimate, self.claim
        low, high = estimate.interval(self.error_rate) if estimate else (None, None)
        return {
            "id": self.id,
            "verdict": self.verdict.value,
            "observed": self.observed,
            "standard_error": estimate.standard_error if estimate else None,
            "low": low,
            "high": high,
            "expected": claim.expected,
            "rule": claim.rule.in_words(),
            "n": estimate.n if estimate else 0,
            "seconds": self.measured.seconds,
            "tier": self.cell.tier.value,
            "seed": self.cell.seed,
            "expected_verdict": claim.expected_verdict.value,
            "note": self.note,
            **{name: getattr(claim, name) for name in _IN_ROW},
        }

    def to_json(self) -> dict[str, Any]:
        """Its entry in claims.json: the row and all details, as plain data."""
        estimate, claim = self.estimate, self.claim
        return {
            **self.row(),
            "decided_by": {"name": estimate.name if estimate else "", "rule": self.bounds},
            **MEASURED.dump_python(self.measured, mode="json"),
            "data": list(self.cell.tables),
            "version": self.cell.version,
            "other_seeds": {str(seed): verdict for seed, verdict in self.other_seeds.items()},
            "stale": self.stale,
            "changed": self.changed,
            "lost": self.lost,
            **{name: getattr(claim, name) for name in _IN_JSON},
            "figure": claim.figure or None,
            "definition": claim.definition,
        }


def _how_to_make(claim: Claim) -> str:
    """How to make a claim's missing tables and then decide it, in a shell and in Python."""
    folder = [DEFAULT_RESULTS, *re.findall(r"--out(?:\s|=)(\S+)", claim.command)][-1]
    text = _HOW_TO_MAKE.format(claim.command, claim.id, folder)
    if "experiments." in claim.command:
        text += " (experiments need a checkout of the repository)"
    return f'{text}; in Python, decide it with verify("{claim.id}", results="{folder}")'
