"""The ledger: what is claimed where, what decides it, and the verdict that is expected."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from loca_theory.claims.measurement import Effort, Measurement, Setting
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
class Claim:
    """One statement of the paper and what decides it.

    Attributes:
        id: Its name.
        place: Where the paper states it.
        statement: What it says, in our words; of an ambiguous one, in one reading.
        kind: One of :data:`KINDS`.
        check: The deciding function, ``module.function`` of :mod:`loca_theory.claims.checks`.
        expected: What the statement says of the observed number, in words.
        rule: Acceptance rule.
        ledger: The verdict that the ledger expects.
        command: What a reader types to decide it, or to make the tables that it needs.
        assumptions: The assumptions that the paper states.
        added: Assumptions that the check adds; with some, support is support under assumptions.
        arguments: Arguments of the check.
        comparisons: Intervals that it takes from the family-wise rate: parts that are random.
        cost: Seconds at the default effort, to start the longest first.
        tables: Stored tables (patterns) that it needs.
        figure: The figure that shows it, an ID of ``loca-theory figures``.
        note: What a reader should know.
        slip: Whether what is printed is a slip of the pen; what is meant is another claim, named in
            the note.
        subject: What it is about, one of :data:`SUBJECTS`.
        undecided: Efforts at which no decision is expected, though the ledger has one.
        source: File and line of the claim.
    """

    id: str
    place: str
    statement: str
    kind: str
    check: str
    expected: str
    rule: Rule
    ledger: Verdict
    command: str
    assumptions: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    comparisons: int = 0
    cost: float = 1.0
    tables: tuple[str, ...] = ()
    figure: str = ""
    note: str = ""
    slip: bool = False
    subject: str = PAPER
    undecided: tuple[Effort, ...] = ()
    source: str = field(default="", compare=False)

    def function(self) -> Check:
        """The check.

        Raises:
            LedgerError: there is no such function.
        """
        module, _, name = self.check.partition(".")
        try:
            return getattr(import_module(f"{CHECKS}.{module}"), name)
        except (ImportError, AttributeError) as error:
            why = f"no check {self.check!r} in {CHECKS}"
            raise self.error(why) from error

    def measure(self, setting: Setting) -> Measurement:
        """Run the check.

        Raises:
            LedgerError: there is no such check, it fails on the claim's arguments, or what it
                measures does not fit the claim (see :meth:`objection`).
            ResourceError: what the check needs is lacking or damaged.
        """
        function = self.function()
        try:
            found = function(setting, **self.arguments)
        except (ResourceError, SweepInterruptedError):
            raise
        except Exception as error:
            # Arguments of a wrong type or value end in any kind of error; the line helps with all.
            why = f"the check {self.check} fails with {type(error).__name__}: {error}"
            raise self.error(why) from error
        if why := self.objection(found):
            raise self.error(why)
        return found

    def objection(self, found: Measurement) -> str:
        """Why a measurement cannot be judged as one of this claim; empty if it can.

        Only as many intervals as the claim declares have a share of the family-wise rate, and a
        rule with several bounds needs as many parts.
        """
        count = sum(part.is_random for part in found.parts)
        if count > self.comparisons:
            why = f"it declares {self.comparisons} comparisons and made {count}"
            return f"{why}; the family-wise rate would not hold"
        if found.parts and self.rule.length not in (1, len(found.parts)):
            return f"its rule has bounds for {self.rule.length} parts, not for {len(found.parts)}"
        return ""

    def error(self, why: str) -> LedgerError:
        """What is wrong with the claim, with its line."""
        return LedgerError(f"{self.source and self.source + ': '}claim {self.id!r}: {why}")


@dataclass(frozen=True)
class Section:
    """A part of the ledger, for a reader.

    Attributes:
        title: Its heading.
        names: Its claims, by id or, with a dot at the end, by family.
    """

    title: str
    names: tuple[str, ...]

    def has(self, one: str) -> bool:
        """Whether the claim of this id stands in it."""
        return any(is_named(one, name) for name in self.names)


@dataclass(frozen=True)
class Ledger:
    """All claims.

    Attributes:
        claims: In the order of the paper.
        sections: Its parts; each claim stands in one of them, unless there are none.
    """

    claims: tuple[Claim, ...]
    sections: tuple[Section, ...] = ()

    @property
    def comparisons(self) -> int:
        """Intervals of all claims, run or not."""
        return sum(claim.comparisons for claim in self.claims)

    def alarm(self, claim: Claim) -> float:
        """Probability with which an interval of the claim may miss.

        Half of the family-wise rate goes to the empirical claims, half to all others: what rests on
        a few seeds could not be decided if it had to share with everything that is simulated.
        """
        is_empirical = claim.kind == EMPIRICAL
        mine = (one for one in self.claims if (one.kind == EMPIRICAL) == is_empirical)
        return FAMILY_WISE / 2 / max(1, sum(one.comparisons for one in mine))

    def part(self, claim: Claim) -> str:
        """Title of the section in which a claim stands; empty in a ledger without sections."""
        return next((one.title for one in self.sections if one.has(claim.id)), "")

    def grouped(self, ids: Collection[str]) -> dict[str, list[str]]:
        """Of these claims the ids by title of section, in the order of the ledger's sections.

        Of a ledger without sections all stand under an empty title.
        """
        known = [claim.id for claim in self.claims if claim.id in ids]
        if not self.sections:
            return {"": known}
        found = {one.title: [name for name in known if one.has(name)] for one in self.sections}
        return {title: names for title, names in found.items() if names}

    def find(self, names: Sequence[str]) -> list[Claim]:
        """Claims of these names, in the order of the ledger; all for no name.

        A name that ends in a dot stands for all claims that begin with it.

        Raises:
            InvalidArgumentError: there is none of that name; the message has the nearest ones.
        """
        chosen: set[str] = set()
        known = [claim.id for claim in self.claims]
        for name in names:
            mine = [one for one in known if is_named(one, name)]
            if not mine:
                msg = f"unknown claim {name!r}; {_hint(name, known)} (verify --list shows all)"
                raise InvalidArgumentError(msg)
            chosen |= set(mine)
        return [claim for claim in self.claims if not names or claim.id in chosen]


def _hint(name: str, known: Sequence[str]) -> str:
    family = f"{name.rstrip('.')}."
    if count := sum(one.startswith(family) for one in known):
        return f"{family} with a dot stands for {count} claims"
    # Families as well, so that a slip in one finds it.
    families = dict.fromkeys(f"{one.partition('.')[0]}." for one in known if "." in one)
    near = get_close_matches(name, [*known, *families], n=3, cutoff=0.6)
    return f"nearest: {', '.join(near)}" if near else f"there are {len(known)}"


def is_named(one: str, name: str) -> bool:
    """Whether a name means the claim: by its id or, with a dot at the end, by its family."""
    return one == name or (name.endswith(".") and one.startswith(name))
