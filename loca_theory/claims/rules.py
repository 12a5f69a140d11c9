r"""Acceptance rules: from measured numbers with errors to a verdict.

Every rule looks at a confidence interval of each number: exact numbers are intervals of length 0,
shares of trials have the exact interval of Clopper and Pearson, means Student's
:math:`\bar x \pm t_{n-1}\, s/\sqrt n`. All intervals of all claims hold together with probability
at least 1 − :data:`FAMILY_WISE` (Bonferroni: each misses with probability at most
FAMILY_WISE / number of comparisons in the ledger), whatever their dependence. The t-intervals are
those of normal means, which means of many replicates are nearly.

- ``inside``: the statement says that the number lies in [low, high]. Supported if the interval
  lies in it, not supported if they are disjoint, else inconclusive. A wrong verdict of either kind
  needs an interval that misses.
- ``near``: the statement names the value itself. Not supported if the interval excludes it, else
  supported if the interval is at most 2·precision long, else inconclusive. What is wrongly
  supported lies within 2·precision of the value; what is wrongly refused needs an interval that
  misses.

Of several numbers all must pass: one that fails decides, then one that is inconclusive.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np
from scipy import stats

from loca_theory.claims.measurement import Measurement, Part
from loca_theory.convergence import binomial_interval
from loca_theory.errors import InvalidArgumentError

FAMILY_WISE = 0.01
"""Probability, at most, that any of the ledger's intervals misses its true value."""


class Verdict(StrEnum):
    """What was found of a claim."""

    SUPPORTED = "supported"
    SUPPORTED_UNDER_ASSUMPTIONS = "supported under assumptions"
    NOT_SUPPORTED = "not supported"
    INCONCLUSIVE = "inconclusive"
    NOT_RUN = "not run"

    @property
    def is_decided(self) -> bool:
        """Whether the claim was found to hold or not to."""
        return self not in (Verdict.INCONCLUSIVE, Verdict.NOT_RUN)


@dataclass(frozen=True)
class Rule:
    """An acceptance rule, fixed before anything is measured.

    Attributes:
        kind: ``inside`` or ``near``.
        low: Lower bounds, one a part or one for all; −∞ where there is none.
        high: Upper bounds likewise.
        value: For ``near``, the values.
        precision: For ``near``, the half-width that an interval needs for support.
    """

    kind: Literal["inside", "near"]
    low: tuple[float, ...] = (-np.inf,)
    high: tuple[float, ...] = (np.inf,)
    value: tuple[float, ...] = ()
    precision: float = 0.0

    def in_words(self) -> str:
        """The rule for a reader."""
        if self.kind == "near":
            shown = _listed(self.value)
            return f"interval holds {shown}, half-width at most {self.precision:g}"
        if self.low == self.high:
            return f"equals {_listed(self.low)}"
        if self.low == (-np.inf,):
            return f"interval at most {_listed(self.high)}"
        if self.high == (np.inf,):
            return f"interval at least {_listed(self.low)}"
        count = max(len(self.low), len(self.high))
        bounds = ((_pick(self.low, i), _pick(self.high, i)) for i in range(count))
        return f"interval in {', '.join(f'[{a:g}, {b:g}]' for a, b in bounds)}"

    def judge(self, part: Part, index: int, alarm: float) -> tuple[Verdict, float]:
        """Verdict on one part, and its margin: positive where it passes, the larger the clearer.

        Args:
            part: What was measured.
            index: Which of the parts it is.
            alarm: Probability with which its interval may miss.
        """
        low, high = interval(part, alarm)
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


_SEVERITY = (Verdict.NOT_SUPPORTED, Verdict.INCONCLUSIVE, Verdict.SUPPORTED)


@dataclass(frozen=True)
class Decision:
    """A verdict and the part that decided it.

    Attributes:
        verdict: What was found.
        part: The part with the worst verdict and, among those, the smallest margin; None if not
            run.
        low: Lower end of its interval.
        high: Upper end.
    """

    verdict: Verdict
    part: Part | None = None
    low: float | None = None
    high: float | None = None


def decide(rule: Rule, found: Measurement, *, comparisons: int, assumes: bool) -> Decision:
    """The verdict on a claim.

    Args:
        rule: Its rule.
        found: What its check measured.
        comparisons: How many comparisons the whole ledger makes.
        assumes: Whether the check adds assumptions to the paper's own.
    """
    if not found.parts:
        return Decision(Verdict.NOT_RUN)
    alarm = FAMILY_WISE / max(comparisons, 1)
    judged = [(*rule.judge(part, i, alarm), part) for i, part in enumerate(found.parts)]
    verdict, _, part = min(judged, key=lambda one: (_SEVERITY.index(one[0]), one[1]))
    if verdict is Verdict.SUPPORTED and assumes:
        verdict = Verdict.SUPPORTED_UNDER_ASSUMPTIONS
    return Decision(verdict, part, *interval(part, alarm))


def interval(part: Part, alarm: float) -> tuple[float, float]:
    """Confidence interval that misses with probability ``alarm`` at most.

    Raises:
        InvalidArgumentError: alarm is not between 0 and 1.
    """
    if not 0 < alarm < 1:
        msg = f"an interval misses with a probability between 0 and 1, not {alarm}"
        raise InvalidArgumentError(msg)
    if part.successes is not None:
        return binomial_interval(part.successes, part.n, 1 - alarm)
    if part.standard_error == 0:
        return part.value, part.value
    half = float(stats.t.isf(alarm / 2, max(part.n - 1, 1))) * part.standard_error
    return part.value - half, part.value + half


def _pick(values: tuple[float, ...], index: int) -> float:
    return values[0] if len(values) == 1 else values[index]


def _listed(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values)
