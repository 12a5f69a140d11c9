"""The ledger: what is claimed where, what decides it, and the verdict that is expected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from inspect import Signature, isfunction, signature
from typing import Any, Protocol, TypeVar, cast

from loca_theory.claims.measurement import Measurement, Setting, Tier
from loca_theory.claims.rules import FAMILY_WISE, Rule, Verdict
from loca_theory.errors import InvalidArgumentError, LocaTheoryError, ResourceError
from loca_theory.sweeps import SweepInterruptedError

EMPIRICAL = "empirical"
KINDS = ("identity", "bound", "asymptotic", "Monte Carlo", EMPIRICAL)
SUBJECTS = PAPER, PACKAGE = ("paper", "package")
# Where the deciding functions stand.
CHECKS = "loca_theory.claims.checks"
Check = Callable[..., Measurement]


class LedgerError(LocaTheoryError):
    """The ledger cannot be read as one."""


@dataclass(frozen=True)
class Section:
    """Where a claim stands.

    Attributes:
        title: Heading under which the ledger lists it; empty in a ledger without headings.
        passage: Where the paper states it: a theorem, an equation, a table.
    """

    title: str
    passage: str


@dataclass(frozen=True)
class Claim:
    """One statement of the paper and what decides it.

    Attributes:
        id: Its name.
        section: Where it stands, in the ledger and in the paper.
        statement: What it says, in our words; of an ambiguous one, in one interpretation.
        kind: One of :data:`KINDS`.
        check: The deciding function, ``module.function`` of :mod:`loca_theory.claims.checks`.
        expected: What the statement says of the observed number, in words.
        rule: Acceptance rule.
        expected_verdict: The verdict that the ledger expects.
        command: What a reader types to decide it, or to make the tables that it needs.
        assumptions: The assumptions that the paper states.
        added: Assumptions that the check adds; with some, support is support under assumptions.
        arguments: Arguments of the check.
        comparisons: Intervals that it takes from the family-wise rate: estimates that are random.
        cost: Seconds at the default tier, to start the longest first.
        tables: Stored tables (patterns) that it needs.
        figure: The figure that shows it, an ID of ``loca-theory figures``.
        note: What a reader should know.
        erratum: Whether what is printed is an erratum; what is meant is another claim, named in
            the note.
        subject: What it is about, one of :data:`SUBJECTS`.
        undecided: Tiers at which no decision is expected, though the ledger has one.
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
    source: str = field(default="", compare=False)

    def function(self) -> Check:
        """The check, which takes the claim's arguments.

        Raises:
            LedgerError: there is no such check, or it does not take these arguments.
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
            why = f"no check {self.check!r} in {CHECKS}"
            raise self.error(why)
        try:
            taken.bind(None, **self.arguments)
        except TypeError as error:
            why = f"the check {self.check} does not take these arguments: {error}"
            raise self.error(why) from error
        return cast("Check", found)

    def measure(self, setting: Setting) -> Measurement:
        """Run the check.

        What the check raises by mistake is raised as it is, with a note that names the claim.

        Raises:
            LedgerError: there is no such check, it refuses the claim's arguments, or what it
                measures does not fit the claim (see :meth:`objection`).
            ResourceError: what the check needs is lacking or damaged.
        """
        function = self.function()
        try:
            found = function(setting, **self.arguments)
        except (ResourceError, SweepInterruptedError):
            raise
        except LocaTheoryError as error:
            why = f"the check {self.check} fails: {error}"
            raise self.error(why) from error
        except Exception as error:
            error.add_note(f"claim {self.id!r}: the check {self.check} fails")
            raise
        if why := self.objection(found):
            raise self.error(why)
        return found

    def objection(self, found: Measurement) -> str:
        """Why a measurement cannot be judged as one of this claim; empty if it can.

        Only as many intervals as the claim declares have a fraction of the family-wise rate, and a
        rule with several bounds needs as many estimates.
        """
        count = sum(one.is_random for one in found.estimates)
        if count > self.comparisons:
            why = f"it declares {self.comparisons} comparisons and made {count}"
            return f"{why}; the family-wise rate would not hold"
        if found.estimates and self.rule.length not in (1, len(found.estimates)):
            count = len(found.estimates)
            return f"its rule has bounds for {self.rule.length} estimates, not for {count}"
        return ""

    def error(self, why: str) -> LedgerError:
        """What is wrong with the claim, with its line."""
        return LedgerError(f"{self.source and self.source + ': '}claim {self.id!r}: {why}")


@dataclass(frozen=True)
class Ledger:
    """All claims.

    Attributes:
        claims: In the order of the paper.
    """

    claims: tuple[Claim, ...]

    @property
    def comparisons(self) -> int:
        """Intervals of all claims, run or not."""
        return sum(claim.comparisons for claim in self.claims)

    def error_rate(self, claim: Claim) -> float:
        """Probability with which an interval of the claim may miss.

        Half of the family-wise rate goes to the empirical claims, half to all others: what rests on
        a few seeds could not be decided if it had to share with everything that is simulated.
        """
        is_empirical = claim.kind == EMPIRICAL
        mine = (one for one in self.claims if (one.kind == EMPIRICAL) == is_empirical)
        return FAMILY_WISE / 2 / max(1, sum(one.comparisons for one in mine))

    def find(self, names: Sequence[str]) -> list[Claim]:
        """Claims of these names, in the order of the ledger; all for no name.

        A name that ends in a dot stands for all claims that begin with it.

        Raises:
            InvalidArgumentError: there is none of that name; the message has the nearest ones.
        """
        chosen: set[str] = set()
        known = [claim.id for claim in self.claims]
        for name in names:
            mine = [one for one in known if is_named(one, str(name))]
            if not mine:
                msg = f"unknown claim {name!r}; {_hint(str(name), known)}"
                raise InvalidArgumentError(msg)
            chosen |= set(mine)
        return [claim for claim in self.claims if not names or claim.id in chosen]


def _hint(name: str, known: Sequence[str]) -> str:
    family = f"{name.rstrip('.')}."
    if count := sum(one.startswith(family) for one in known):
        return f"{family} with a dot stands for {count} claims"
    # Families as well, so that an erratum in one finds it.
    families = dict.fromkeys(f"{one.partition('.')[0]}." for one in known if "." in one)
    near = get_close_matches(name, [*known, *families], n=3, cutoff=0.6)
    return f"nearest: {', '.join(near)}" if near else "`loca-theory verify --list` has all"


def is_named(one: str, name: str) -> bool:
    """Whether a name means the claim: by its id or, with a dot at the end, by its family."""
    return one == name or (name.endswith(".") and one.startswith(name))


class _Listed(Protocol):
    @property
    def section(self) -> Section: ...


_One = TypeVar("_One", bound=_Listed)


def by_section(listed: Iterable[_One]) -> dict[str, list[_One]]:
    """Claims, or what was decided of them, by the heading under which they stand."""
    found: dict[str, list[_One]] = {}
    for one in listed:
        found.setdefault(one.section.title, []).append(one)
    return found
