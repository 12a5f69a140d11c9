"""The ledger as data: claims, their passages in the paper, checks, and expected verdicts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from inspect import Signature, isfunction, signature
from typing import Any, Protocol, TypeVar, cast

from loca_theory.claims.measurement import Measurement, Setting, Tier
from loca_theory.claims.rules import FAMILY_WISE, Rule, RuleChange, Verdict
from loca_theory.errors import InvalidArgumentError, LocaTheoryError, ResourceError
from loca_theory.sweeps.runner import SweepInterruptedError

EMPIRICAL = "empirical"
KINDS = ("identity", "bound", "asymptotic", "Monte Carlo", EMPIRICAL)
SUBJECTS = PAPER, OTHER_MODEL, PACKAGE = ("paper", "another model", "package")
# The package of the check functions.
CHECKS = "loca_theory.claims.checks"
Check = Callable[..., Measurement]


class LedgerError(LocaTheoryError):
    """The ledger cannot be read, or a claim does not fit its check."""


@dataclass(frozen=True)
class Section:
    """The section of a claim in the ledger, and its passage in the paper.

    Attributes:
        title: Heading under which the ledger lists the claim; empty if the ledger has no headings.
        passage: Passage in which the paper states the claim: a theorem, an equation, a table.
    """

    title: str
    passage: str


@dataclass(frozen=True)
class Alternative:
    """A change of a check under which its claim is false, so that the claim's rule must refute it.

    It shows the power of the check: a claim that nothing could refute says nothing.

    Attributes:
        statement: The alternative in words: a perturbed formula, another estimator, another method.
        arguments: Arguments of the check that differ from the claim's.
        table: Name of a synthetic table (:data:`loca_theory.claims.synthetic.TABLES`) that takes
            the place of the stored ones; empty for claims that need no tables.
        difference: For a claim that the design of the experiments decides, the true difference of
            synthetic runs, in the unit of the comparison; None for all others.
        tier: The tier at which the claim is refuted.
    """

    statement: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    table: str = ""
    difference: float | None = None
    tier: Tier = Tier.QUICK


@dataclass(frozen=True)
class Claim:
    """One statement of the paper and the check that decides it.

    Attributes:
        id: Unique name.
        section: Its section in the ledger and its passage in the paper.
        statement: The statement in our words; one interpretation of it if it is ambiguous.
        kind: One of :data:`KINDS`.
        check: Name of the check, ``module.function`` of :mod:`loca_theory.claims.checks`.
        expected: What the statement implies for the observed number, in words.
        rule: Acceptance rule.
        expected_verdict: The verdict that the ledger expects.
        command: Shell command that decides the claim, or makes the tables that it needs.
        assumptions: The assumptions that the paper states.
        added: Assumptions that the check adds. If there are any, a claim that holds is *supported
            under assumptions*.
        arguments: Arguments of the check.
        comparisons: Number of confidence intervals of the claim, one per random estimate of its
            check. The family-wise error rate is divided among the intervals of all claims.
        cost: Seconds at the default tier; the longest checks start first.
        tables: Names, or patterns of names, of the stored tables that it needs.
        figure: ID of the figure that shows it (``loca-theory figures ID``); empty if there is none.
        note: Remark for the reader.
        erratum: Whether the printed statement is an erratum. If so, the note names the claim with
            the statement that the paper must mean.
        subject: One of :data:`SUBJECTS`; by default the paper or, for an empirical claim, another
            model: stored tables are of other models than the paper's.
        undecided: Tiers at which the claim may be inconclusive although the ledger expects a
            decision.
        refuted_by: An alternative under which the check refutes the claim
            (:func:`loca_theory.claims.refute`).
        rule_changes: When the rule was first written, and every change since of the rule, the
            check or its arguments.
        source: File and line of the claim.
    """

    id: str
    section: Section
    statement: str
    kind: str
    check: str
    expected: str
    rule: Rule
    expected_verdict: Verdict
    command: str
    assumptions: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    comparisons: int = 0
    cost: float = 1.0
    tables: tuple[str, ...] = ()
    figure: str = ""
    note: str = ""
    erratum: bool = False
    subject: str = PAPER
    undecided: tuple[Tier, ...] = ()
    refuted_by: Alternative | None = None
    rule_changes: tuple[RuleChange, ...] = ()
    source: str = field(default="", compare=False)

    @property
    def definition(self) -> str:
        """Hash of the fields that a stored measurement must share with the claim.

        They are its id, its check, and the arguments of the check.
        """
        content = [self.id, self.check, dict(self.arguments)]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def function(self) -> Check:
        """Import the check, and make sure that it takes the claim's arguments.

        Raises:
            LedgerError: the check does not exist, or does not take these arguments.
        """
        module, _, name = self.check.partition(".")
        try:
            found = getattr(import_module(f"{CHECKS}.{module}"), name, None)
        except ModuleNotFoundError as error:
            if error.name != f"{CHECKS}.{module}":
                raise
            found = None
        taken = signature(found) if isfunction(found) else Signature()
        if name.startswith("_") or next(iter(taken.parameters), "") != "setting":
            why = f"there is no check {self.check!r} in {CHECKS}"
            raise self.error(why)
        try:
            taken.bind(None, **self.arguments)
        except TypeError as error:
            why = f"the check {self.check} does not take these arguments: {error}"
            raise self.error(why) from error
        return cast("Check", found)

    def measure(self, setting: Setting) -> Measurement:
        """Run the check.

        An unexpected exception from the check passes through unchanged, with a note that names the
        claim.

        Raises:
            LedgerError: the check does not exist, it rejects the claim's arguments, or its
                measurement does not fit the claim (see :meth:`objection`).
            ResourceError: a file that the check needs is missing or damaged.
        """
        function = self.function()
        try:
            found = function(setting, **self.arguments)
        except (ResourceError, SweepInterruptedError):
            raise
        except LocaTheoryError as error:
            why = f"the check {self.check} raised an error: {error}"
            raise self.error(why) from error
        except Exception as error:
            kind = type(error).__name__
            error.add_note(f"claim {self.id!r}: the check {self.check} raised {kind}")
            raise
        if why := self.objection(found):
            raise self.error(why)
        return found

    def objection(self, found: Measurement) -> str:
        """Why a measurement does not fit this claim; empty if it fits.

        The family-wise error rate is divided among the declared intervals (``comparisons``), so a
        check must not make more random estimates than that. A rule with several bounds needs as
        many estimates as bounds.
        """
        count = sum(one.is_random for one in found.estimates)
        if count > self.comparisons:
            why = f"'comparisons' is {self.comparisons}, but the number of random estimates is"
            return f"{why} {count}; set it to {count}, or the family-wise error rate does not hold"
        if found.estimates and self.rule.length not in (1, len(found.estimates)):
            count = len(found.estimates)
            why = f"its rule has bounds for {self.rule.length} estimates, but the check made"
            return f"{why} {count}; give one bound per estimate, or one for all"
        return ""

    def error(self, why: str) -> LedgerError:
        """A :class:`LedgerError` that names the claim and its line."""
        return LedgerError(f"{self.source and self.source + ': '}claim {self.id!r}: {why}")


@dataclass(frozen=True)
class Ledger:
    """The claims of a ledger.

    Attributes:
        claims: All claims, in the order of the paper.
    """

    claims: tuple[Claim, ...]

    @property
    def comparisons(self) -> int:
        """Number of confidence intervals of all claims, including those that are not run."""
        return sum(claim.comparisons for claim in self.claims)

    def error_rate(self, claim: Claim) -> float:
        """Probability with which an interval of the claim may miss the true value.

        Half of the family-wise rate goes to the empirical claims, half to all others. Empirical
        claims rest on a few seeds, and could not be decided if they had to share the rate with
        every simulated claim.
        """
        is_empirical = claim.kind == EMPIRICAL
        mine = (one for one in self.claims if (one.kind == EMPIRICAL) == is_empirical)
        return FAMILY_WISE / 2 / max(1, sum(one.comparisons for one in mine))

    def find(self, names: Sequence[str]) -> list[Claim]:
        """The claims with these names, in the order of the ledger; all claims if there is no name.

        A name that ends in a dot stands for all claims that begin with it.

        Raises:
            InvalidArgumentError: no claim has that name; the message lists the nearest names.
        """
        chosen: set[str] = set()
        known = [claim.id for claim in self.claims]
        for name in names:
            mine = [one for one in known if stands_for(str(name), one)]
            if not mine:
                msg = f"unknown claim {name!r}; {_hint(str(name), known)}"
                raise InvalidArgumentError(msg)
            chosen |= set(mine)
        return [claim for claim in self.claims if not names or claim.id in chosen]


def _hint(name: str, known: Sequence[str]) -> str:
    family = f"{name.rstrip('.')}."
    if count := sum(one.startswith(family) for one in known):
        return f"write {family} with a dot for its {count} claims"
    # Suggest families too, because the name may be a misspelt family.
    families = dict.fromkeys(f"{one.partition('.')[0]}." for one in known if "." in one)
    near = get_close_matches(name, [*known, *families], n=3, cutoff=0.6)
    return f"nearest: {', '.join(near)}" if near else "`loca-theory verify --list` lists all"


def stands_for(name: str, claim: str) -> bool:
    """Whether a name is the id of a claim or, if it ends in a dot, the beginning of the id."""
    return claim == name or (name.endswith(".") and claim.startswith(name))


class _Listed(Protocol):
    @property
    def section(self) -> Section: ...


_One = TypeVar("_One", bound=_Listed)


def by_section(listed: Iterable[_One]) -> dict[str, list[_One]]:
    """Group claims, or their entries, by the heading of their section."""
    found: dict[str, list[_One]] = {}
    for one in listed:
        found.setdefault(one.section.title, []).append(one)
    return found
