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

from datetime import date
from enum import StrEnum
from typing import Annotated, Any, Self

import numpy as np
from pydantic import BeforeValidator, ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs

from loca_theory._lookup import member
from loca_theory.claims.estimates import Estimate, Measured

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
"""How the ledger is read: no unknown field, and no number that is not finite."""

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


def _listed(bounds: object) -> object:
    return bounds if isinstance(bounds, list | tuple) else (bounds,)


_Bound = Annotated[float, Field(ge=-np.inf, allow_inf_nan=True)]  # a number, but not NaN
_Bounds = Annotated[tuple[_Bound, ...], Field(min_length=1), BeforeValidator(_listed)]
_Values = Annotated[tuple[float, ...], BeforeValidator(_listed)]
_Width = Annotated[float, Field(ge=0)]


# The fields of each form of a rule, in alphabetical order.
_FORMS = ("low", "high", "high low", "precision value", "printed unit", "designed")


@dataclass(frozen=True, config=STRICT)
class Rule:
    """An acceptance rule, fixed before the stored run.

    It has bounds (``low``, ``high``), or a ``value`` with its ``precision``, or a ``printed``
    number with the ``unit`` of its last digit, which bounds the number by half a unit on either
    side, or it is ``designed``.

    Attributes:
        low: Lower bounds, one per estimate or one for all; −∞ if there is none.
        high: Upper bounds, one per estimate or one for all; ∞ if there is none.
        value: The values that the statement gives, one per estimate or one for all.
        precision: The largest half-width of an interval that supports the values.
        printed: Printed numbers, from which the bounds are made.
        unit: The unit of their last digit.
        designed: Whether the design of the experiments defines the verdict.
    """

    low: _Bounds = (-np.inf,)
    high: _Bounds = (np.inf,)
    value: _Values = ()
    precision: _Width = 0.0
    printed: _Values = ()
    unit: _Width = 0.0
    designed: bool = False

    @model_validator(mode="before")
    @classmethod
    def _has_one_form(cls, fields: Any) -> Any:
        keys = sorted((fields.kwargs or {}) if isinstance(fields, ArgsKwargs) else fields)
        if " ".join(keys) not in _FORMS:
            raise ValueError(
                "a rule needs low or high or both, or value and precision, or printed and unit, "
                f"or designed, not {', '.join(keys) or 'nothing'}"
            )
        return fields

    @model_validator(mode="after")
    def _can_fail(self) -> Self:
        if self.printed:
            for name, half in (("low", -self.unit / 2), ("high", self.unit / 2)):
                bounds = tuple(round(value + half, 12) for value in self.printed)
                object.__setattr__(self, name, bounds)
        if len({len(self.low), len(self.high)} - {1}) > 1:
            raise ValueError(
                f"'low' has {len(self.low)} bounds, but 'high' has {len(self.high)}; "
                "give one per estimate, or one for all"
            )
        lows, highs = np.array(self.low), np.array(self.high)
        if (lows > highs).any():
            msg = "'low' lies above 'high'"
        elif (lows == np.inf).any() or (highs == -np.inf).any():
            msg = "no finite number satisfies this bound"
        elif not (self.value or self.designed) and (np.isinf(lows) & np.isinf(highs)).any():
            msg = "a rule without any bound cannot fail; give low or high"
        else:
            return self
        raise ValueError(msg)

    @property
    def length(self) -> int:
        """Number of estimates that the rule has bounds for; 1 if the bounds apply to all."""
        return max(len(self.low), len(self.high), len(self.value))

    def in_words(self, index: int | None = None) -> str:
        """The rule as text, for one of the estimates or for all."""
        if self.designed:
            return "by the design of the experiments"
        chosen = range(self.length) if index is None else [min(index, self.length - 1)]
        if self.value:
            values = ", ".join(_number(_pick(self.value, i)) for i in chosen)
            return f"interval holds {values}, half-width ≤ {_number(self.precision)}"
        ranges = [_range_in_words(_pick(self.low, i), _pick(self.high, i)) for i in chosen]
        if all(text.startswith("equals") for text in ranges):
            return ", ".join(ranges)
        return f"whole interval {', '.join(ranges)}"

    def judge(self, estimate: Estimate, index: int, error_rate: float) -> tuple[Verdict, float]:
        """Verdict on one estimate, and its margin, which is positive if the estimate passes."""
        low, high = estimate.interval(error_rate)
        if self.value:
            value, half = _pick(self.value, index), (high - low) / 2
            if not low <= value <= high:
                return Verdict.NOT_SUPPORTED, -max(low - value, value - high)
            fine = half <= self.precision
            return (Verdict.SUPPORTED if fine else Verdict.INCONCLUSIVE), self.precision - half
        lowest, highest = _pick(self.low, index), _pick(self.high, index)
        margin = min(low - lowest, highest - high)
        if high < lowest or low > highest:
            return Verdict.NOT_SUPPORTED, margin
        return (Verdict.SUPPORTED if margin >= 0 else Verdict.INCONCLUSIVE), margin


@dataclass(frozen=True, config=STRICT, kw_only=True)
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


_SEVERITY = (Verdict.NOT_SUPPORTED, Verdict.INCONCLUSIVE, Verdict.SUPPORTED)


def decide(
    rule: Rule, measured: Measured, error_rate: float, *, assumes: bool = False
) -> tuple[Verdict, int | None]:
    """Judge the estimates of a claim.

    Args:
        rule: The rule.
        measured: What the check measured, with one estimate or as many as the rule has bounds;
            none if it could not run.
        error_rate: Probability with which each interval may miss the true value.
        assumes: Whether the check adds assumptions.

    Returns:
        The verdict, and the index of the estimate with the worst verdict and, among those, the
        smallest margin; None if the claim was not run.
    """
    if not measured.estimates:
        return Verdict.NOT_RUN, None
    if rule.designed:
        verdict, index = member(Verdict, "verdict", measured.designed), 0
    else:
        numbered = enumerate(measured.estimates)
        judged = [(*rule.judge(estimate, i, error_rate), i) for i, estimate in numbered]
        verdict, _, index = min(judged, key=lambda case: (_SEVERITY.index(case[0]), case[1]))
    if verdict is Verdict.SUPPORTED and assumes:
        verdict = Verdict.SUPPORTED_UNDER_ASSUMPTIONS
    return verdict, index


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
