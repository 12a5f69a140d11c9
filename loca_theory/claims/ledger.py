"""The ledger: what is claimed where, what decides it, and the verdict that is expected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from loca_theory.claims.measurement import Effort, Measurement, Setting
from loca_theory.claims.rules import Rule, Verdict
from loca_theory.errors import InvalidArgumentError, LocaTheoryError

KINDS = ("identity", "bound", "asymptotic", "Monte Carlo", "empirical")
SUBJECTS = ("paper", "package")
Check = Callable[..., Measurement]

_PACKAGE = "loca_theory.claims.checks"


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
    subject: str = "paper"
    undecided: tuple[Effort, ...] = ()

    def function(self) -> Check:
        """The check.

        Raises:
            LedgerError: there is no such function.
        """
        module, _, name = self.check.partition(".")
        try:
            return getattr(import_module(f"{_PACKAGE}.{module}"), name)
        except (ImportError, AttributeError) as error:
            msg = f"claim {self.id!r}: no check {self.check!r} in {_PACKAGE}"
            raise LedgerError(msg) from error

    def measure(self, setting: Setting) -> Measurement:
        """Run the check.

        Raises:
            LedgerError: there is no such check, or it compared more than it declares.
        """
        found = self.function()(setting, **self.arguments)
        count = sum(part.is_random for part in found.parts)
        if count > self.comparisons:
            msg = f"claim {self.id!r} declares {self.comparisons} comparisons and made {count}; "
            msg += "the family-wise rate would not hold"
            raise LedgerError(msg)
        return found


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
        """What the family-wise rate is divided by: intervals of all claims, run or not."""
        return max(1, sum(claim.comparisons for claim in self.claims))

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
                near = get_close_matches(name, known, n=3, cutoff=0.4)
                hint = f"nearest: {', '.join(near)}" if near else f"there are {len(known)}"
                msg = f"unknown claim {name!r}; {hint} (verify --list shows all)"
                raise InvalidArgumentError(msg)
            chosen |= set(mine)
        return [claim for claim in self.claims if not names or claim.id in chosen]


def is_named(one: str, name: str) -> bool:
    """Whether a name means the claim: by its id or, with a dot at the end, by its family."""
    return one == name or (name.endswith(".") and one.startswith(name))
