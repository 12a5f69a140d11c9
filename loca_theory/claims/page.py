"""The outcome of the ledger in words: counts for the terminal, and CLAIMS.md, a page for GitHub."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product

from jinja2 import Environment, PackageLoader

from loca_theory.claims.claim import OTHER_MODEL, PACKAGE, PAPER, Claim
from loca_theory.claims.entries import Entry
from loca_theory.claims.ledger import Ledger, by_section
from loca_theory.claims.role import Role
from loca_theory.claims.rules import FAMILY_WISE, Verdict

WRITTEN_BY = "Written by `loca-theory verify`"
"""Text by which a CLAIMS.md of this package is recognised."""

_SUBJECTS = {
    PAPER: "of the paper",
    OTHER_MODEL: "of the paper on other models",
    PACKAGE: "about this package",
}


def page(entries: Sequence[Entry], ledger: Ledger) -> str:
    """Counts and unsupported claims, then a table and the details for each section."""
    of_paper = [row for row in entries if row.claim.subject != PACKAGE and not row.is_erratum]
    environment = Environment(
        loader=PackageLoader("loca_theory.claims", ""), trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(
        anchor=anchor,
        verdict=_verdict,
        plain=_plain,
        history=history_in_words,
    )
    text = environment.get_template("CLAIMS.md.j2").render(
        tally=tally(entries),
        written_by=WRITTEN_BY,
        family=family_in_words(ledger),
        older=older_in_words(entries),
        questions=ledger.by_question(entries),
        not_supported=[entry for entry in of_paper if entry.verdict is Verdict.NOT_SUPPORTED],
        sections=by_section(entries),
    )
    return text.rstrip() + "\n"


def _verdict(entry: Entry, *, with_age: bool = True) -> str:
    marks = {
        "erratum": entry.is_erratum,
        "another model": entry.claim.subject == OTHER_MODEL,
        "this package": entry.claim.subject == PACKAGE,
        "seeds disagree": entry.seeds_disagree,
        "older code": entry.stale and with_age,
    }
    shown = ", ".join(mark for mark, is_shown in marks.items() if is_shown)
    return f"{entry.verdict} ({shown})" if shown else entry.verdict


def anchor(heading: str) -> str:
    """The anchor that GitHub and MyST give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _plain(text: str) -> str:
    """Escape Markdown, so that *, <, [ and | in formulas are shown as they are."""
    return re.sub(r"([\\*<\[\]|`])", r"\\\1", text)


def counts(entries: Sequence[Entry], subject: str = PAPER) -> dict[str, int]:
    """Number of claims on a subject with each verdict."""
    numbers = Counter(entry.verdict for entry in entries if entry.claim.subject == subject)
    return {verdict.value: numbers[verdict] for verdict in Verdict}


def count_errata(entries: Sequence[Entry]) -> int:
    """Number of errata among the unsupported claims of the paper."""
    return sum(entry.is_erratum and entry.claim.subject == PAPER for entry in entries)


def tally(entries: Sequence[Entry]) -> Iterator[str]:
    """The counts as text, one line for each role and subject that has claims."""
    for role, subject in product(Role, _SUBJECTS):
        numbers = counts([entry for entry in entries if entry.claim.role is role], subject)
        if total := sum(numbers.values()):
            listed = ", ".join(f"{count} {name}" for name, count in numbers.items() if count)
            yield f"{role.heading}, {_SUBJECTS[subject]}: {total} ({listed})"


def family_in_words(ledger: Ledger) -> str:
    """The probability that all intervals of the ledger hold together, as text."""
    if not ledger.comparisons:
        return "Nothing in the ledger is random."
    return (
        f"All claims of the ledger, these or not, have {ledger.comparisons} random numbers, each "
        "with a confidence interval. In one run at one tier, all of these intervals hold together "
        f"with a nominal probability of at least {1 - FAMILY_WISE:g}."
    )


def older_in_words(entries: Sequence[Entry]) -> str:
    """How many of the entries other code than the present one measured, as text; empty if none."""
    older = sum(entry.stale for entry in entries)
    if not older:
        return ""
    return (
        f"{older} of the {len(entries)} observations are of an older version of the code. A "
        "version is a hash of the source, so that it changes with every comment, too."
    )


def history_in_words(claim: Claim) -> list[str]:
    """Since when the rule of a claim stands, and each of its changes, as text."""
    changes = [f"changed {new.date}: {new.why} Before: {new.before}." for new in claim.rule_changes]
    since = [f"rule since {new.date}, fixed before the stored run" for new in claim.rule_changes]
    # The date of the last entry counts, and the first changed nothing.
    return since[-1:] + changes[1:]
