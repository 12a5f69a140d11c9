"""Counts of the verdicts, as text for the terminal and for CLAIMS.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from loca_theory.claims.claim import OTHER_MODEL, PACKAGE, PAPER, Claim
from loca_theory.claims.entries import Entry
from loca_theory.claims.ledger import Ledger
from loca_theory.claims.rules import FAMILY_WISE, Verdict

Entries = Sequence[Entry]

_SUBJECTS = {
    PAPER: "of the paper",
    OTHER_MODEL: "of the paper on other models",
    PACKAGE: "about this package",
}


def counts(entries: Entries, subject: str = PAPER) -> dict[str, int]:
    """Number of claims on a subject with each verdict."""
    found = Counter(one.verdict for one in entries if one.claim.subject == subject)
    return {verdict.value: found[verdict] for verdict in Verdict}


def count_errata(entries: Entries) -> int:
    """Number of errata among the unsupported claims of the paper."""
    return sum(one.is_erratum and one.claim.subject == PAPER for one in entries)


def tally(entries: Entries) -> Iterator[str]:
    """The counts as text, one line for each subject that has claims."""
    errata = count_errata(entries)
    for subject, title in _SUBJECTS.items():
        found = counts(entries, subject)
        each = [f"{count} {name}" for name, count in found.items() if count]
        if errata and subject == PAPER:
            text = f" (of which {errata} {'is an erratum' if errata == 1 else 'are errata'})"
            each = [one + text * one.endswith(Verdict.NOT_SUPPORTED) for one in each]
        if total := sum(found.values()):
            claims = "claim" if total == 1 else "claims"
            yield f"{total} {claims} {title}: {', '.join(each)}"


def family_in_words(ledger: Ledger) -> str:
    """The probability that all intervals of the ledger hold together, as text."""
    if not ledger.comparisons:
        return "Nothing in the ledger is random."
    return (
        f"All claims of the ledger, these or not, have {ledger.comparisons} random numbers, each "
        "with a confidence interval. In one run at one tier, all of these intervals hold together "
        f"with a nominal probability of at least {1 - FAMILY_WISE:g}."
    )


def older_in_words(entries: Entries) -> str:
    """How many of the entries other code than the present one measured, as text; empty if none."""
    older = sum(one.stale for one in entries)
    if not older:
        return ""
    return (
        f"{older} of the {len(entries)} observations are of an older version of the code. A "
        "version is a hash of the source, so that it changes with every comment, too."
    )


def history_in_words(claim: Claim) -> list[str]:
    """Since when the rule of a claim stands, and each of its changes, as text."""
    if not claim.rule_changes:
        return []
    _, *changes = claim.rule_changes
    return [
        f"rule since {claim.rule_changes[-1].date}, fixed before the stored run",
        *(f"changed {one.date}: {one.why} Before: {one.before}." for one in changes),
    ]
