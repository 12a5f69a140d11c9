"""A claim of the ledger: its passage in the paper, its check, its rule and the expected verdict."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import field
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter, isfunction, signature
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, JsonValue, StringConstraints, model_validator
from pydantic.dataclasses import dataclass

from loca_theory.claims.estimates import Measured, NotMeasuredError, Returned, Rng, Tier, observed
from loca_theory.claims.role import Role
from loca_theory.claims.rules import STRICT, Rule, RuleChange, Verdict
from loca_theory.errors import LocaTheoryError, ResourceError

EMPIRICAL = "empirical"
PAPER, OTHER_MODEL, PACKAGE = "paper", "another model", "package"
# The package of the check functions.
CHECKS = "loca_theory.claims.checks"
# Arguments that a check receives if it has parameters of these names.
_INPUTS = {"tier", "rng", "results"}

Text = Annotated[str, StringConstraints(pattern=r"\S")]


class LedgerError(LocaTheoryError):
    """The ledger cannot be read, or a claim does not fit its check."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Alternative:
    """A change of a check under which its claim is false, so that the claim's rule must refute it.

    It shows the power of the check: a claim that nothing could refute says nothing.

    Attributes:
        statement: The alternative in words: a perturbed formula, another estimator, another method.
        arguments: Arguments of the check that differ from the claim's; they can name stored runs of
            which something else is true.
        table: Name of a synthetic table of the tests (``tests/claims/synthetic.py``) that takes
            the place of the stored ones; empty for claims that need no tables.
        tier: The tier at which the claim is refuted.
    """

    statement: Text
    arguments: dict[str, JsonValue] = field(default_factory=dict)
    table: str = ""
    tier: Tier = Tier.QUICK


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Claim:
    """One statement of the paper and the check that decides it.

    Attributes:
        id: Unique name.
        role: What it is: ``doubtful``, if somebody could doubt it; a ``variant``, another
            interpretation or a special case; a ``lemma``, an identity or a bound of a proof; a
            ``count`` or a comparison of printed numbers; or an ``erratum``, which cannot be meant
            as it is printed and whose note names the claim that is meant.
        question: The question that a doubtful claim helps to answer, in a ledger file a key of its
            ``[questions]``; by default the section.
        headline: A doubtful claim in at most one line; by default the statement.
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
        subject: ``paper``, ``another model`` or ``package``; by default the paper or, for an
            empirical claim, another model: stored tables are of other models than the paper's.
        undecided: Tiers at which the claim may be inconclusive although the ledger expects a
            decision; or may be decided although the ledger expects none, because its number is so
            near the bound that seeds disagree.
        refuted_by: An alternative under which the check refutes the claim.
        rule_changes: When the rule was first written, and every change since of the rule, the
            check or its arguments.
    """

    id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+([.-][a-z0-9]+)*$")]
    role: Role = Role.DOUBTFUL
    question: str = ""
    headline: str = ""
    section: str = ""
    passage: Text
    statement: Text
    kind: Literal["identity", "bound", "asymptotic", "Monte Carlo", "empirical"]
    check: Annotated[str, StringConstraints(pattern=r"^\w+\.\w+$")]
    expected: Text
    rule: Rule
    expected_verdict: Verdict
    command: Text = ""
    assumptions: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    arguments: dict[str, JsonValue] = field(default_factory=dict)
    comparisons: Annotated[int, Field(ge=0)] = 0
    cost: Annotated[float, Field(gt=0)] = 1.0
    tables: tuple[str, ...] = ()
    figure: str = ""
    note: str = ""
    subject: Literal["", "paper", "another model", "package"] = ""
    undecided: tuple[Tier, ...] = ()
    refuted_by: Alternative | None = None
    rule_changes: tuple[RuleChange, ...] = ()

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if why := next(self._contradictions(), ""):
            raise ValueError(why)
        vars(self).update(
            command=self.command or f"loca-theory verify {self.id}",
            subject=self.subject or (OTHER_MODEL if self.kind == EMPIRICAL else PAPER),
        )
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
        if self.role is Role.ERRATUM and verdict is not Verdict.NOT_SUPPORTED:
            yield "the expected verdict of an erratum must be 'not supported'"
        if self.role is not Role.DOUBTFUL and (self.question or self.headline):
            yield "only a doubtful claim has a 'question' and a 'headline'"
        for before, change in pairwise(self.rule_changes):
            if before.date > change.date or not change.why.strip():
                yield "the entries of 'rule_changes' must be in order, and each needs a reason"
        if alternative and not (alternative.arguments or alternative.table):
            yield "'refuted_by' needs 'arguments' that differ from the claim's, or a 'table'"

    @property
    def title(self) -> str:
        """Its headline or, without one, its statement."""
        return self.headline or self.statement

    @property
    def definition(self) -> str:
        """Hash of its id, its check and the arguments, which a stored measurement shares."""
        content = json.dumps([self.id, self.check, self.arguments], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def quantity(self) -> str:
        """What its check measures, in words: the first line of the check's docstring."""
        first = (self.function().__doc__ or "").strip().partition("\n")[0]
        return re.sub(r":math:|`", "", first).removesuffix(".")

    def function(self) -> Callable[..., Returned]:
        """Import the check, and make sure that it takes the claim's arguments.

        A check is a public function all of whose arguments are given by name. It is given what it
        asks for of ``tier``, ``rng`` (its only source of randomness) and ``results`` (the folder of
        stored tables, None if there is none).

        Raises:
            LedgerError: the check does not exist, or does not take these arguments.
        """
        module, _, name = f"{CHECKS}.{self.check}".rpartition(".")
        check: Any = getattr(import_module(module), name, None) if find_spec(module) else None
        taken = signature(check).parameters if isfunction(check) else {}
        kinds = {parameter.kind for parameter in taken.values()}
        if name.startswith("_") or kinds != {Parameter.KEYWORD_ONLY}:
            raise self.error(f"there is no check {self.check!r} in {CHECKS}")
        try:
            signature(check).bind(**self.arguments, **dict.fromkeys(_INPUTS & taken.keys()))
        except TypeError as error:
            raise self.error(
                f"the check {self.check} does not take these arguments: {error}"
            ) from error
        return check

    def measure(self, tier: Tier, rng: Rng, results: Path | None = None) -> Measured:
        """Run the check.

        An unexpected exception from the check passes through unchanged, with a note that names the
        claim.

        Raises:
            LedgerError: the check does not exist, it rejects the claim's arguments, or its
                estimates do not fit the claim (see :meth:`objection`).
            ResourceError: a file that the check needs is missing or damaged.
        """
        check, inputs = self.function(), {"tier": tier, "rng": rng, "results": results}
        needed = {name: inputs[name] for name in _INPUTS & signature(check).parameters.keys()}
        try:
            measured = observed(check(**self.arguments, **needed))
        except NotMeasuredError as why:
            return Measured((), str(why))
        except ResourceError:
            raise
        except LocaTheoryError as error:
            raise self.error(f"the check {self.check} raised an error: {error}") from error
        except Exception as error:
            kind = type(error).__name__
            error.add_note(f"claim {self.id!r}: the check {self.check} raised {kind}")
            raise
        if why := self.objection(measured):
            raise self.error(why)
        return measured

    def objection(self, measured: Measured) -> str:
        """Why the estimates of a measurement do not fit this claim; empty if they fit.

        The family-wise error rate is divided among the declared intervals (``comparisons``), so a
        check must not make more random estimates than that. A rule with several bounds needs as
        many estimates as bounds.
        """
        estimates = measured.estimates
        count = sum(estimate.is_random for estimate in estimates)
        if count > self.comparisons:
            why = f"'comparisons' is {self.comparisons}, but the number of random estimates is "
            return why + f"{count}; set it to {count}, or the family-wise error rate does not hold"
        if estimates and self.rule.length not in (1, len(estimates)):
            why = f"its rule has bounds for {self.rule.length} estimates, but the check made "
            return why + f"{len(estimates)}; give one bound per estimate, or one for all"
        return ""

    def error(self, why: str) -> LedgerError:
        """A :class:`LedgerError` that names the claim."""
        return LedgerError(f"claim {self.id!r}: {why}")
