"""The ledger: every checkable statement of the paper, its check, and its verdict.

- :func:`verify`: check one claim, several or all; returns a :class:`VerificationResult`.
- :func:`load_ledger`: read the claims (``claims.toml``): section, statement, assumptions, check,
  an acceptance rule that is fixed before the stored run, with the history of the rule, and an
  alternative under which it is refuted.
- :func:`refute`: run a claim's check on that alternative.
- :mod:`loca_theory.claims.checks`: the checks, one module per subject. A check returns a
  :class:`Measurement` and decides nothing.
- :class:`Rule`, :func:`decide`: turn estimates and their errors into a :class:`Verdict`, with one
  family-wise error rate for the whole ledger.
- :class:`Verification`: the run behind :func:`verify`, which uses the sweep store.
- :func:`counts`, :func:`tally`: summaries of the verdicts.
"""

from loca_theory.claims.entries import Entry
from loca_theory.claims.ledger import (
    KINDS,
    OTHER_MODEL,
    PACKAGE,
    PAPER,
    SUBJECTS,
    Alternative,
    Claim,
    Ledger,
    LedgerError,
    Section,
)
from loca_theory.claims.measurement import Estimate, Measurement, Setting, Tier
from loca_theory.claims.power import refute
from loca_theory.claims.reader import load_ledger
from loca_theory.claims.results import VerdictsChangedError, VerificationResult, read_entries
from loca_theory.claims.rules import FAMILY_WISE, Decision, Rule, RuleChange, Verdict, decide
from loca_theory.claims.summary import (
    count_errata,
    counts,
    family_in_words,
    history_in_words,
    tally,
)
from loca_theory.claims.verification import Verification, verify

__all__ = [
    "FAMILY_WISE",
    "KINDS",
    "OTHER_MODEL",
    "PACKAGE",
    "PAPER",
    "SUBJECTS",
    "Alternative",
    "Claim",
    "Decision",
    "Entry",
    "Estimate",
    "Ledger",
    "LedgerError",
    "Measurement",
    "Rule",
    "RuleChange",
    "Section",
    "Setting",
    "Tier",
    "Verdict",
    "VerdictsChangedError",
    "Verification",
    "VerificationResult",
    "count_errata",
    "counts",
    "decide",
    "family_in_words",
    "history_in_words",
    "load_ledger",
    "read_entries",
    "refute",
    "tally",
    "verify",
]
