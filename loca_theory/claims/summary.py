"""What was decided, in a few words: for the terminal and for CLAIMS.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from loca_theory.claims.entries import Entry
from loca_theory.claims.ledger import PAPER, SUBJECTS, Ledger
from loca_theory.claims.rules import FAMILY_WISE, Verdict

Entries = Sequence[Entry]

_SUBJECTS = dict(zip(SUBJECTS, ("the paper", "this package"), strict=True))


def counts(entries: Entries, subject: str = PAPER) -> dict[str, int]:
    """How many claims on a subject have each verdict.

    Args:
        entries: What was decided.
        subject: One of :data:`loca_theory.claims.SUBJECTS`.
    """
    found = Counter(one.verdict for one in entries if one.claim.subject == subject)
    return {verdict.value: found[verdict] for verdict in Verdict}


def count_errata(entries: Entries) -> int:
    """How many of the paper's statements that are not supported are errata."""
    return sum(
        one.claim.erratum and one.claim.subject == PAPER and one.verdict is Verdict.NOT_SUPPORTED
        for one in entries
    )


def tally(entries: Entries) -> list[str]:
    """The counts for a reader: a line for each subject that has claims."""
    lines = []
    errata = count_errata(entries)
    for subject, title in _SUBJECTS.items():
        found = counts(entries, subject)
        each = [f"{count} {name}" for name, count in found.items() if count]
        if errata and subject == PAPER:
            text = f" (of them {errata} {'erratum' if errata == 1 else 'errata'})"
            each = [one + text * one.endswith(Verdict.NOT_SUPPORTED) for one in each]
        if total := sum(found.values()):
            claims = "claim" if total == 1 else "claims"
            lines.append(f"{total} {claims} on {title}: {', '.join(each)}")
    return lines


def family_in_words(ledger: Ledger) -> str:
    """What is said of all intervals together, and no more than can be."""
    if not ledger.comparisons:
        return "Nothing in the ledger is random."
    return (
        f"Nominally, and in one run at one tier, the {ledger.comparisons} confidence intervals "
        f"of the ledger hold together with probability {1 - FAMILY_WISE:g} at least."
    )
