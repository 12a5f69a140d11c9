"""Write the claims of the ledger into the page ``ledger.md``, in place of a line.

Each claim becomes a row of one table, with an anchor: the claim's id with hyphens for dots. The
template is ``ledger.html``; ``ledger.js`` and ``ledger.css`` in ``_static`` filter the table and
lay it out. If ``figures/ledger`` holds the claims.json of a run of ``loca-theory verify``, the page
also shows the observed numbers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docutils import nodes
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup, escape
from sphinx.application import Sphinx

from loca_theory.claims import Claim, load_ledger
from loca_theory.claims.claim import OTHER_MODEL, PACKAGE, PAPER
from loca_theory.claims.entries import Entry
from loca_theory.claims.ledger import Ledger, by_section
from loca_theory.claims.page import history_in_words, older_in_words
from loca_theory.claims.results import read_entries
from loca_theory.claims.role import Role
from loca_theory.claims.rules import Verdict

PAGE = "ledger"
PLACEHOLDER = "*The site shows the claims here. Without it, read figures/ledger/CLAIMS.md.*"
STORED = Path("..", "figures", "ledger")
TEMPLATE = Path(__file__).with_name("ledger.html")

_COLOURS = {
    Verdict.SUPPORTED: "success",
    Verdict.SUPPORTED_UNDER_ASSUMPTIONS: "info",
    Verdict.NOT_SUPPORTED: "danger",
    Verdict.EQUIVALENT: "primary",
    Verdict.INCONCLUSIVE: "warning",
    Verdict.NOT_RUN: "secondary",
}
# As filters, and with the columns of the table that counts verdicts.
_SUBJECTS = {PAPER: "the paper", OTHER_MODEL: "another model", PACKAGE: "this package"}


@dataclass(frozen=True)
class Row:
    """A claim and its entry of a stored run; None if it has none."""

    claim: Claim
    stored: Entry | None

    @property
    def anchor(self) -> str:
        """The claim's id with hyphens for dots."""
        return nodes.make_id(self.claim.id)

    @property
    def verdict(self) -> Verdict:
        """The verdict of the stored run or, without one, the expected verdict."""
        return self.stored.verdict if self.stored else self.claim.expected_verdict

    @property
    def marks(self) -> list[str]:
        """What a reader must know beside the verdict."""
        subject, role = self.claim.subject, self.claim.role
        return [subject] * (subject != PAPER) + [role] * (role is Role.ERRATUM)

    @property
    def observed(self) -> str:
        """The observed value with its confidence interval; a dash without a stored run."""
        return self.stored.shown if self.stored else "–"

    @property
    def facts(self) -> dict[str, Sequence[str]]:
        """What the row unfolds: texts, by term."""
        claim = self.claim
        facts = {
            "Assumed by the paper": claim.assumptions,
            "Also assumed here": claim.added,
            "If it holds": [claim.expected],
            "Rule": [claim.rule.in_words()],
            "Refuted if": [claim.refuted_by.statement] if claim.refuted_by else [],
            "History": history_in_words(claim),
            "Observed": list(self._observed()),
            "Note": [claim.note] if claim.note else [],
        }
        return {term: texts for term, texts in facts.items() if texts}

    def _observed(self) -> Iterator[str]:
        if self.stored and self.stored.estimate:
            old = ", with an older version of the code" if self.stored.stale else ""
            many = ", which decides" if len(self.stored.estimates) > 1 else ""
            n = self.stored.estimate.n
            yield f"{self.stored.quantity}{many}: {self.observed} (n = {n}{old})"


def page(ledger: Ledger, stored: Mapping[str, Entry]) -> str:
    """Return the Markdown of all claims: counts by verdict, then a table with a row per claim.

    Args:
        ledger: The ledger.
        stored: Entries of a stored run, by id.
    """
    rows = [Row(claim, stored.get(claim.id)) for claim in ledger.claims]
    overview = _overview(rows)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATE.parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    table = environment.get_template(TEMPLATE.name).render(
        rows=rows,
        questions=ledger.by_question(rows),
        roles=Role,
        parts=by_section(ledger.claims),
        subjects=_SUBJECTS,
        overview=overview,
        totals=_totals(overview),
        badge=_badge,
        linked=_linker(ledger.claims),
    )
    return f"{_source(rows)}\n\n{table}"


def _source(rows: Sequence[Row]) -> str:
    """Say where the verdicts come from."""
    count = sum(row.stored is not None for row in rows)
    if not count:
        return (
            "The verdicts on this page are those that the ledger expects. `loca-theory verify` "
            "measures the claims again and reports every verdict that differs."
        )
    others = "" if count == len(rows) else " The others are those that the ledger expects."
    return (
        f"{count} of {len(rows)} verdicts are those of a stored run. For these, the page shows the "
        "observed quantity and number and, if it is random, the confidence interval that the rule "
        f"judges.{others} {older_in_words([row.stored for row in rows if row.stored])}\n\n"
        "Each claim is counted once. An interpretation is a claim of its own, so there are more "
        "claims than statements."
    )


def _overview(rows: Sequence[Row]) -> dict[Verdict, Counter[str]]:
    """Count the claims of each verdict by role."""
    counts = {verdict: Counter[str]() for verdict in Verdict}
    for row in rows:
        counts[row.verdict][row.claim.role] += 1
    return {verdict: count for verdict, count in counts.items() if count}


def _totals(overview: Mapping[Verdict, Counter[str]]) -> Counter[str]:
    """The number of claims of each role."""
    return sum(overview.values(), Counter())


def _badge(verdict: Verdict) -> Markup:
    colour = _COLOURS[verdict]
    classes = f"sd-badge sd-bg-{colour} sd-bg-text-{colour}"
    return Markup('<span class="{}">{}</span>').format(classes, verdict)


def _linker(claims: Sequence[Claim]) -> Callable[[str], Markup]:
    """Return a function that escapes a text and links the claims that it names."""
    ids = sorted((re.escape(claim.id) for claim in claims), key=len, reverse=True)
    named = re.compile(rf"(?<![\w.-])({'|'.join(ids)})(?![\w-]|\.\w)")

    def link(found: re.Match[str]) -> str:
        return f'<a href="#{nodes.make_id(found[1])}">{found[1]}</a>'

    return lambda text: Markup(named.sub(link, escape(text)))


def read_stored(folder: Path, ledger: Ledger) -> dict[str, Entry]:
    """Read the entries of a stored run, by id; empty if there is no stored run."""
    return {one.id: one for one in read_entries(folder, ledger)}


def _fill(app: Sphinx, docname: str, source: list[str]) -> None:
    if docname != PAGE:
        return
    folder, ledger = Path(app.srcdir) / STORED, load_ledger()
    app.env.note_dependency(folder / "claims.json")
    app.env.note_dependency(TEMPLATE)
    source[0] = source[0].replace(PLACEHOLDER, page(ledger, read_stored(folder, ledger)))


def _add_files(app: Sphinx, pagename: str, *_: Any) -> None:
    """Load the script and the style on this page only."""
    if pagename == PAGE:
        app.add_js_file("ledger.js", loading_method="defer")
        app.add_css_file("ledger.css")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.connect("source-read", _fill)
    app.connect("html-page-context", _add_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
