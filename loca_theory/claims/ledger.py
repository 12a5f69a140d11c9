"""The ledger as data: claims, their passages in the paper, checks, and expected verdicts."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from datetime import date
from difflib import get_close_matches
from importlib import import_module
from importlib.resources import files
from inspect import Parameter, isfunction, signature
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, Self, TypeVar, cast

import numpy as np
from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass

from loca_theory import _arguments
from loca_theory.claims.estimates import Estimates, Returned, Tier, observed
from loca_theory.claims.rules import FAMILY_WISE, Rule, Verdict
from loca_theory.errors import InvalidArgumentError, LocaTheoryError, ResourceError
from loca_theory.sweeps.runner import SweepInterruptedError

EMPIRICAL = "empirical"
PAPER, OTHER_MODEL, PACKAGE = "paper", "another model", "package"
# The package of the check functions.
CHECKS = "loca_theory.claims.checks"

_STRICT = ConfigDict(extra="forbid")


def _finite(given: dict[str, Any]) -> dict[str, Any]:
    json.dumps(given, allow_nan=False)
    return given


_Text = Annotated[str, StringConstraints(pattern=r"\S")]
_Id = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+([.-][a-z0-9]+)*$")]
_Arguments = Annotated[dict[str, JsonValue], AfterValidator(_finite)]
_Texts = tuple[str, ...]


class LedgerError(LocaTheoryError):
    """The ledger cannot be read, or a claim does not fit its check."""


@dataclass(frozen=True, config=_STRICT, kw_only=True)
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

    statement: _Text
    arguments: _Arguments = field(default_factory=dict)
    table: str = ""
    difference: float | None = None
    tier: Tier = Tier.QUICK


@dataclass(frozen=True, config=_STRICT, kw_only=True)
class RuleChange:
    """The day from which a rule stands.

    Attributes:
        date: The day.
        why: Why it replaced the rule before; empty for the first rule.
        before: The rule before, as text; empty for the first rule.
    """

    date: date
    why: str = ""
    before: str = ""


@dataclass(frozen=True, config=_STRICT, kw_only=True)
class Claim:
    """One statement of the paper and the check that decides it.

    Attributes:
        id: Unique name.
        section: Heading under which the ledger lists the claim; empty if it has no headings.
        passage: Passage in which the paper states the claim: a theorem, an equation, a table.
        statement: The statement in our words; one interpretation of it if it is ambiguous.
        kind: ``identity``, ``bound``, ``asymptotic``, ``Monte Carlo`` or ``empirical``.
        check: Name of the check, ``module.function`` of :mod:`loca_theory.claims.checks`.
        expected: What the statement implies for the observed number, in words.
        rule: Acceptance rule.
        expected_verdict: The verdict that the ledger expects.
        command: Shell command that decides the claim, or makes the tables that it needs; by
            default ``loca-theory verify ID``.
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
        subject: ``paper``, ``another model`` or ``package``; by default the paper or, for an
            empirical claim, another model: stored tables are of other models than the paper's.
        undecided: Tiers at which the claim may be inconclusive although the ledger expects a
            decision.
        refuted_by: An alternative under which the check refutes the claim
            (:func:`loca_theory.claims.refute`).
        rule_changes: When the rule was first written, and every change since of the rule, the
            check or its arguments.
    """

    id: _Id
    section: str = ""
    passage: _Text
    statement: _Text
    kind: Literal["identity", "bound", "asymptotic", "Monte Carlo", "empirical"]
    check: Annotated[str, StringConstraints(pattern=r"^\w+\.\w+$")]
    expected: _Text
    rule: Rule
    expected_verdict: Verdict
    command: _Text = ""
    assumptions: _Texts = ()
    added: _Texts = ()
    arguments: _Arguments = field(default_factory=dict)
    comparisons: Annotated[int, Field(ge=0)] = 0
    cost: Annotated[float, Field(gt=0)] = 1.0
    tables: _Texts = ()
    figure: str = ""
    note: str = ""
    erratum: bool = False
    subject: Literal["", "paper", "another model", "package"] = ""
    undecided: tuple[Tier, ...] = ()
    refuted_by: Alternative | None = None
    rule_changes: tuple[RuleChange, ...] = ()

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if why := next(self._contradictions(), ""):
            raise ValueError(why)
        if not self.command:
            object.__setattr__(self, "command", f"loca-theory verify {self.id}")
        if not self.subject:
            subject = OTHER_MODEL if self.kind == EMPIRICAL else PAPER
            object.__setattr__(self, "subject", subject)
        return self

    def _contradictions(self) -> Iterator[str]:
        verdict, alternative = self.expected_verdict, self.refuted_by
        if (self.kind == EMPIRICAL) != bool(self.tables):
            yield "an empirical claim, and no other, has 'tables'"
        if self.kind == "Monte Carlo" and not self.comparisons:
            yield "a Monte Carlo claim needs 'comparisons', the number of its intervals"
        if self.kind in ("identity", "bound") and self.comparisons:
            yield f"a claim of kind {self.kind!r} has no random estimates; drop 'comparisons'"
        if verdict is Verdict.SUPPORTED and self.added:
            yield "with 'added', 'expected_verdict' must be 'supported under assumptions'"
        if verdict is Verdict.SUPPORTED_UNDER_ASSUMPTIONS and not self.added:
            yield "'supported under assumptions' needs 'added' assumptions"
        if self.erratum and verdict is not Verdict.NOT_SUPPORTED:
            yield "the expected verdict of an erratum must be 'not supported'"
        for before, change in pairwise(self.rule_changes):
            if before.date > change.date or not change.why.strip():
                yield "the entries of 'rule_changes' must be in order, and each needs a reason"
        if alternative and (alternative.difference is not None) != self.rule.designed:
            yield "'refuted_by' needs a 'difference' if, and only if, the rule is 'designed'"
        if alternative and not (self.rule.designed or alternative.arguments or alternative.table):
            yield "'refuted_by' needs 'arguments' that differ from the claim's, or a 'table'"

    @property
    def definition(self) -> str:
        """Hash of the fields that a stored measurement must share with the claim.

        They are its id, its check, and the arguments of the check.
        """
        content = [self.id, self.check, self.arguments]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def function(self) -> Callable[..., Returned]:
        """Import the check, and make sure that it takes the claim's arguments.

        A check is a public function all of whose arguments are given by name. It is given what it
        asks for of ``tier``, ``rng`` (its only source of randomness) and ``results`` (the folder of
        stored tables, None if there is none).

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
        taken = signature(found).parameters if isfunction(found) else {}
        if name.startswith("_") or {one.kind for one in taken.values()} != {Parameter.KEYWORD_ONLY}:
            why = f"there is no check {self.check!r} in {CHECKS}"
            raise self.error(why)
        check = cast("Callable[..., Returned]", found)
        given = [one for one in ("tier", "rng", "results") if one in taken]
        try:
            signature(check).bind(**self.arguments, **dict.fromkeys(given))
        except TypeError as error:
            why = f"the check {self.check} does not take these arguments: {error}"
            raise self.error(why) from error
        return lambda **inputs: check(**self.arguments, **{one: inputs[one] for one in given})

    def measure(
        self, tier: Tier, rng: np.random.Generator, results: Path | None = None
    ) -> tuple[Estimates, str, str]:
        """Run the check; return its estimates, its remark and the verdict if it is designed.

        An unexpected exception from the check passes through unchanged, with a note that names the
        claim.

        Raises:
            LedgerError: the check does not exist, it rejects the claim's arguments, or its
                estimates do not fit the claim (see :meth:`objection`).
            ResourceError: a file that the check needs is missing or damaged.
        """
        function = self.function()
        try:
            found = observed(function(tier=tier, rng=rng, results=results))
        except (ResourceError, SweepInterruptedError):
            raise
        except LocaTheoryError as error:
            why = f"the check {self.check} raised an error: {error}"
            raise self.error(why) from error
        except Exception as error:
            kind = type(error).__name__
            error.add_note(f"claim {self.id!r}: the check {self.check} raised {kind}")
            raise
        if why := self.objection(found[0]):
            raise self.error(why)
        return found

    def objection(self, estimates: Estimates) -> str:
        """Why estimates do not fit this claim; empty if they fit.

        The family-wise error rate is divided among the declared intervals (``comparisons``), so a
        check must not make more random estimates than that. A rule with several bounds needs as
        many estimates as bounds.
        """
        count = sum(one.is_random for one in estimates)
        if count > self.comparisons:
            why = f"'comparisons' is {self.comparisons}, but the number of random estimates is"
            return f"{why} {count}; set it to {count}, or the family-wise error rate does not hold"
        if estimates and self.rule.length not in (1, len(estimates)):
            count = len(estimates)
            why = f"its rule has bounds for {self.rule.length} estimates, but the check made"
            return f"{why} {count}; give one bound per estimate, or one for all"
        return ""

    def error(self, why: str) -> LedgerError:
        """A :class:`LedgerError` that names the claim."""
        return LedgerError(f"claim {self.id!r}: {why}")


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
            mine = [one for one in known if _stands_for(str(name), one)]
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


def _stands_for(name: str, claim: str) -> bool:
    """Whether a name is the id of a claim or, if it ends in a dot, the beginning of the id."""
    return claim == name or (name.endswith(".") and claim.startswith(name))


class _Listed(Protocol):
    @property
    def section(self) -> str: ...


_One = TypeVar("_One", bound=_Listed)


def by_section(listed: Iterable[_One]) -> dict[str, list[_One]]:
    """Group claims, or their entries, by the heading of their section."""
    found: dict[str, list[_One]] = {}
    for one in listed:
        found.setdefault(one.section, []).append(one)
    return found


@dataclass(frozen=True, config=_STRICT)
class _Section:
    title: _Text
    claims: _Texts  # ids and, with a dot at the end, families


@dataclass(frozen=True, config=_STRICT)
class _Document:
    claim: Annotated[tuple[Claim, ...], Field(min_length=1)]
    section: tuple[_Section, ...] = ()


def load_ledger(path: str | Path | None = None) -> Ledger:
    """Read the ledger that the package ships, or another one.

    Args:
        path: Ledger file; None for the package's own.

    Raises:
        InvalidArgumentError: path is not a path.
        LedgerError: the file cannot be read, or a claim is invalid; the message names it.
    """
    name = "claims.toml" if path is None else str(path)
    shipped = files("loca_theory.claims") / name
    source = shipped if path is None else _arguments.path("ledger", path)
    data: dict[str, Any] = {}
    try:
        data = tomllib.loads(source.read_text(encoding="utf-8"))
        return Ledger(tuple(_sectioned(TypeAdapter(_Document).validate_python(data))))
    except OSError as error:
        msg = f"cannot read the ledger {name}: {error.strerror or error}"
    except tomllib.TOMLDecodeError as error:
        msg = f"{name} is not TOML: {error}"
    except ValidationError as error:
        msg = f"{name} is not a ledger: {_first(error, data)}"
    except ValueError as error:
        msg = f"{name} is not a ledger: {error}"
    raise LedgerError(msg)


def _sectioned(document: _Document) -> Iterator[Claim]:
    """The claims, each with the title of its section."""
    titles: dict[str, str] = {}
    for section in document.section:
        for name in section.claims:
            mine = [claim.id for claim in document.claim if _stands_for(name, claim.id)]
            if not mine:
                msg = f"section {section.title!r}: no claim is named {name!r}"
                raise ValueError(msg)
            for one in mine:
                if titles.setdefault(one, section.title) != section.title:
                    msg = f"claim {one!r} is in the section {titles[one]!r} and in another"
                    raise ValueError(msg)
    seen: set[str] = set()
    for claim in document.claim:
        if claim.id in seen:
            msg = f"the id {claim.id!r} is used twice"
            raise ValueError(msg)
        if titles and claim.id not in titles:
            msg = f"claim {claim.id!r} is not in any [[section]]; list it in one"
            raise ValueError(msg)
        seen.add(claim.id)
        yield replace(claim, section=titles.get(claim.id, ""))


def _first(error: ValidationError, data: dict[str, Any]) -> str:
    """The first fault of a document, in one line that names the claim and the field."""
    first = error.errors()[0]
    where, keys = "", list(first["loc"])
    if len(keys) > 1:  # the name of a table, and its number among those of the same name
        table, number, *keys = keys
        entry = data[str(table)][number]
        name = entry.get("id", entry.get("title")) if isinstance(entry, dict) else None
        where = f"{table} {name!r}: " if name else f"{table} {int(number) + 1}: "
    why = str(first.get("ctx", {}).get("error", first["msg"]))
    return where + ": ".join([*map(str, keys), why])
