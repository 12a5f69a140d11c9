r"""Acceptance rules: from measured numbers and their errors to a verdict.

Every rule judges a confidence interval of each number. An exact number has an interval of length 0,
a fraction of trials has the exact interval of Clopper and Pearson, and a mean has Student's
interval :math:`\bar x \pm t_{n-1}\, s/\sqrt n`. In one run at one tier, all intervals contain their
true values with probability at least 1 − :data:`FAMILY_WISE`, whatever their dependence
(Bonferroni). Half of this error rate is divided equally among the intervals of empirical claims,
which rest on few seeds, and half among all other intervals
(``Ledger.error_rate``). The rate holds for exact numbers and for fractions.
For means it is nominal: Student's interval assumes normality, and means of many replicates are
nearly normal. Another run, at a deeper tier or with another seed, adds chances of a wrong verdict.

- ``inside``: the statement says that the number lies in [low, high]. It is supported if the
  interval lies in [low, high], not supported if the two are disjoint, and inconclusive otherwise. A
  wrong verdict of either kind requires an interval that misses the true number.
- ``designed``: the design of the experiments, fixed before the runs, defines the verdict and its
  margin, and controls the family-wise error rate of its own families at 5%. The verdict comes with
  the stored result.
- ``near``: the statement gives the value itself. It is not supported if the interval excludes the
  value; otherwise it is supported if the interval is at most 2·precision long, and inconclusive if
  it is longer. If the interval contains the true number, a supported value is at most 2·precision
  away from it, and a rejection is right.

If a claim has several numbers, all must pass. One number that fails makes the claim not supported;
if none fails, one that is inconclusive makes the claim inconclusive.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Literal

import numpy as np

from loca_theory.claims.measurement import Estimate, Measurement
from loca_theory.errors import InvalidArgumentError

FAMILY_WISE = 0.01
"""Nominal probability that at least one interval of the ledger misses its true value in a run."""


class Verdict(StrEnum):
    """The verdict on a claim."""

    SUPPORTED = "supported"
    SUPPORTED_UNDER_ASSUMPTIONS = "supported under assumptions"
    EQUIVALENT = "equivalent within a margin"
    NOT_SUPPORTED = "not supported"
    INCONCLUSIVE = "inconclusive"
    NOT_RUN = "not run"

    @property
    def is_decided(self) -> bool:
        """Whether the claim was found to hold, or found not to hold."""
        return self not in (Verdict.INCONCLUSIVE, Verdict.NOT_RUN)


@dataclass(frozen=True)
class Rule:
    """An acceptance rule, fixed before the stored run.

    Attributes:
        kind: ``inside``, ``near`` or ``designed``.
        low: Lower bounds, one per estimate or one for all; −∞ if there is none.
        high: Upper bounds, one per estimate or one for all; ∞ if there is none.
        value: For ``near``, the values, one per estimate or one for all.
        precision: For ``near``, the largest half-width of an interval that gives support.
    """

    kind: Literal["inside", "near", "designed"]
    low: tuple[float, ...] = (-np.inf,)
    high: tuple[float, ...] = (np.inf,)
    value: tuple[float, ...] = ()
    precision: float = 0.0

    @property
    def digest(self) -> str:
        """Short hash of the rule, by which a change is noticed."""
        return hashlib.sha256(self.in_words().encode()).hexdigest()[:8]

    @property
    def length(self) -> int:
        """Number of estimates that the rule has bounds for; 1 if the bounds apply to all."""
        return max(len(self.low), len(self.high), len(self.value))

    def in_words(self, index: int | None = None) -> str:
        """The rule as text, for one of the estimates or for all."""
        if self.kind == "designed":
            return "by the design of the experiments"
        chosen = range(self.length) if index is None else [min(index, self.length - 1)]
        if self.kind == "near":
            values = ", ".join(_number(_pick(self.value, i)) for i in chosen)
            return f"interval holds {values}, half-width ≤ {_number(self.precision)}"
        ranges = [_range_in_words(_pick(self.low, i), _pick(self.high, i)) for i in chosen]
        if all(one.startswith("equals") for one in ranges):
            return ", ".join(ranges)
        return f"whole interval {', '.join(ranges)}"

    def judge(self, estimate: Estimate, index: int, error_rate: float) -> tuple[Verdict, float]:
        """Verdict on one estimate, and its margin, which is positive if the estimate passes."""
        low, high = estimate.interval(error_rate)
        if self.kind == "near":
            value, half = _pick(self.value, index), (high - low) / 2
            if not low <= value <= high:
                return Verdict.NOT_SUPPORTED, -max(low - value, value - high)
            fine = half <= self.precision
            return (Verdict.SUPPORTED if fine else Verdict.INCONCLUSIVE), self.precision - half
        least, most = _pick(self.low, index), _pick(self.high, index)
        margin = min(low - least, most - high)
        if high < least or low > most:
            return Verdict.NOT_SUPPORTED, margin
        return (Verdict.SUPPORTED if margin >= 0 else Verdict.INCONCLUSIVE), margin


@dataclass(frozen=True)
class RuleChange:
    """The day from which a rule stands, with the check and the arguments that it judges.

    Attributes:
        date: The day.
        digest: :attr:`Rule.digest` of the rule from then on.
        definition: :attr:`Claim.definition` from then on; empty for entries before 2026-11-24,
            unless they are the last of their claim.
        why: Why it replaced the rule before; empty for the first rule.
        before: The rule before, as text; empty for the first rule.
    """

    date: date
    digest: str
    definition: str = ""
    why: str = ""
    before: str = ""


_SEVERITY = (Verdict.NOT_SUPPORTED, Verdict.INCONCLUSIVE, Verdict.SUPPORTED)


@dataclass(frozen=True)
class Decision:
    """A verdict and the estimate that decided it.

    Attributes:
        verdict: The verdict.
        estimate: The estimate with the worst verdict and, among those, the smallest margin; None if
            the claim was not run.
        low: Lower end of the estimate's interval.
        high: Upper end of the estimate's interval.
        index: Index of the estimate among those of the claim.
    """

    verdict: Verdict
    estimate: Estimate | None = None
    low: float | None = None
    high: float | None = None
    index: int | None = None


def decide(rule: Rule, found: Measurement, *, error_rate: float, assumes: bool) -> Decision:
    """Judge the measurement of a claim."""
    if not found.estimates:
        return Decision(Verdict.NOT_RUN)
    if rule.length not in (1, len(found.estimates)):
        msg = f"the rule has bounds for {rule.length} estimates, but there are "
        msg += f"{len(found.estimates)}; give one bound per estimate, or one for all"
        raise InvalidArgumentError(msg)
    if rule.kind == "designed":
        estimate = found.estimates[0]
        if found.verdict not in [one.value for one in Verdict]:
            msg = f"verdict={found.verdict!r} is not a verdict; choose from {', '.join(Verdict)}"
            raise InvalidArgumentError(msg)
        return Decision(Verdict(found.verdict), estimate, *estimate.interval(error_rate), 0)
    judged = [(*rule.judge(one, i, error_rate), i) for i, one in enumerate(found.estimates)]
    verdict, _, index = min(judged, key=lambda one: (_SEVERITY.index(one[0]), one[1]))
    if verdict is Verdict.SUPPORTED and assumes:
        verdict = Verdict.SUPPORTED_UNDER_ASSUMPTIONS
    estimate = found.estimates[index]
    return Decision(verdict, estimate, *estimate.interval(error_rate), index)


def _pick(values: tuple[float, ...], index: int) -> float:
    return values[0] if len(values) == 1 else values[index]


def _range_in_words(low: float, high: float) -> str:
    if low == high:
        return f"equals {_number(low)}"
    if low == -np.inf:
        return f"≤ {_number(high)}"
    return f"≥ {_number(low)}" if high == np.inf else f"in [{_number(low)}, {_number(high)}]"


def _number(value: float) -> str:
    return f"{value:.7g}"
