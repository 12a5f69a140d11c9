"""The ledger: every checkable statement of the paper, what decides it, and the verdict.

- :func:`load_ledger`: the claims as data (``claims.toml``): place, statement, assumptions, the
  check, and an acceptance rule that is fixed before anything is measured.
- :mod:`loca_theory.claims.checks`: the checks, by subject. Each returns a :class:`Measurement`;
  none decides anything.
- :class:`Rule`, :func:`decide`: from observed numbers and their errors to a :class:`Verdict`, at a
  family-wise false-alarm rate for the whole ledger.
- :class:`Verification`: runs checks through the sweep store.
- :func:`merged`, :func:`write_report`: CLAIMS.md and claims.json.
- :func:`counts`, :func:`tally`: what was decided, in a few words.
"""

from loca_theory.claims.ledger import (
    KINDS,
    PACKAGE,
    PAPER,
    SUBJECTS,
    Claim,
    Ledger,
    LedgerError,
    Section,
)
from loca_theory.claims.measurement import Effort, Measurement, Part, Setting
from loca_theory.claims.reader import load_ledger
from loca_theory.claims.report import document, merged, read_entries, write_report
from loca_theory.claims.rules import FAMILY_WISE, Decision, Rule, Verdict, decide
from loca_theory.claims.summary import (
    count_slips,
    counts,
    family_in_words,
    shown,
    shown_parts,
    tally,
)
from loca_theory.claims.verification import Entry, Verification

__all__ = [
    "FAMILY_WISE",
    "KINDS",
    "PACKAGE",
    "PAPER",
    "SUBJECTS",
    "Claim",
    "Decision",
    "Effort",
    "Entry",
    "Ledger",
    "LedgerError",
    "Measurement",
    "Part",
    "Rule",
    "Section",
    "Setting",
    "Verdict",
    "Verification",
    "count_slips",
    "counts",
    "decide",
    "document",
    "family_in_words",
    "load_ledger",
    "merged",
    "read_entries",
    "shown",
    "shown_parts",
    "tally",
    "write_report",
]
