"""Read the fields of a claim that are tables: its rule, the rule's history, its alternative."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any, NoReturn

import numpy as np

from loca_theory.claims.ledger import Alternative
from loca_theory.claims.measurement import Tier
from loca_theory.claims.rules import Rule, RuleChange

Refuse = Callable[[str], NoReturn]
_ALTERNATIVE = {"statement": str, "arguments": dict, "table": str, "tier": str}


def read_rule(given: Any, refuse: Refuse) -> Rule:
    """Read a rule; refuse raises the error.

    The forms are bounds (``low``, ``high``), a ``value`` with its ``precision``, a ``printed``
    number with the ``unit`` of its last digit, which bounds the number by half a unit on either
    side, and ``designed``.
    """
    if not isinstance(given, dict):
        refuse("a claim needs a table 'rule'")
    keys = set(given)
    if "designed" in keys:
        if given != {"designed": True}:
            refuse("a rule with 'designed' needs designed = true alone")
        return Rule("designed")
    for key, other in (("value", "precision"), ("printed", "unit")):
        if key not in keys:
            continue
        if keys != {key, other}:
            refuse(f"a rule with '{key}' needs {key} and {other} alone, not {_of(keys)}")
        width, value = given[other], _numbers(given[key], refuse)
        if not is_number(width) or not 0 <= width < np.inf:
            refuse(f"'{other}' must be a finite number, 0 or more")
        if not np.isfinite(value).all():
            refuse(f"'{key}' must be finite")
        if key == "value":
            return Rule("near", value=value, precision=float(width))
        low, high = ([round(one + side * width / 2, 12) for one in value] for side in (-1, 1))
        return Rule("inside", low=tuple(low), high=tuple(high))
    if not keys or not keys <= {"low", "high"}:
        why = "a rule needs low or high or both, or value and precision, or printed and unit, or "
        refuse(f"{why}designed, not {_of(keys)}")
    low = _numbers(given.get("low", -np.inf), refuse)
    high = _numbers(given.get("high", np.inf), refuse)
    if len({len(low), len(high)} - {1}) > 1:
        why = f"'low' has {len(low)} bounds, but 'high' has {len(high)}; "
        refuse(f"{why}give one per estimate, or one for all")
    lows, highs = np.broadcast_arrays(low, high)
    if (lows > highs).any():
        refuse("'low' lies above 'high'")
    if (lows == np.inf).any() or (highs == -np.inf).any():
        refuse("no finite number satisfies this bound")
    if (np.isinf(lows) & np.isinf(highs)).any():
        refuse("a rule without any bound cannot fail; give low or high")
    return Rule("inside", low=low, high=high)


def read_changes(given: Any, rule: Rule, definition: str, refuse: Refuse) -> tuple[RuleChange, ...]:
    """Read the history of a rule; refuse raises the error.

    The last entry must be that of the present rule, check and arguments, so that none can change
    without an entry.
    """
    listed = given if isinstance(given, list) else [given]
    found: list[RuleChange] = []
    for one in listed:
        wanted = {"date", "digest", *({"why", "before"} if found else ())}
        if not isinstance(one, dict) or set(one) - {"definition"} != wanted:
            which = "change" if found else "first rule"
            refuse(f"an entry of 'rule_changes' for a {which} needs {', '.join(sorted(wanted))}")
        texts = [value for key, value in one.items() if key != "date"]
        if type(one["date"]) is not date or not all(isinstance(text, str) for text in texts):
            refuse("an entry of 'rule_changes' needs a day and texts")
        if found and not (found[-1].date <= one["date"] and one["why"].strip()):
            refuse("the entries of 'rule_changes' must be in order, and each change needs a reason")
        found.append(RuleChange(**one))
    present = (rule.digest, definition)
    if not found or (found[-1].digest, found[-1].definition) != present:
        why = "the rule, the check or its arguments are not those of the last entry of "
        why += "'rule_changes'; append an entry with the date, why, before, "
        refuse(f'{why}digest = "{rule.digest}" and definition = "{definition}"')
    return tuple(found)


def read_alternative(given: Any, refuse: Refuse, *, is_designed: bool) -> Alternative:
    """Read the alternative of a claim; refuse raises the error."""
    if not isinstance(given, dict) or not str(given.get("statement", "")).strip():
        refuse("'refuted_by' must be a table with a 'statement'")
    known = {**_ALTERNATIVE, "difference": float}
    if extra := set(given) - set(known):
        refuse(f"unknown field {min(extra)!r} of 'refuted_by'; known are {', '.join(known)}")
    for key, kind in _ALTERNATIVE.items():
        if not isinstance(given.get(key, kind()), kind):
            refuse(f"{key!r} of 'refuted_by' must be {'a table' if kind is dict else 'a text'}")
    if given.get("tier", Tier.QUICK) not in set(Tier):
        refuse(f"unknown tier {given['tier']!r} of 'refuted_by'; choose from {', '.join(Tier)}")
    difference = given.get("difference")
    if is_designed != is_number(difference):
        refuse("'refuted_by' needs a number 'difference' if, and only if, the rule is 'designed'")
    if not (is_designed or given.get("arguments") or given.get("table")):
        refuse("'refuted_by' needs 'arguments' that differ from the claim's, or a 'table'")
    return Alternative(
        given["statement"],
        given.get("arguments", {}),
        given.get("table", ""),
        None if difference is None else float(difference),
        Tier(given.get("tier", Tier.QUICK)),
    )


def is_number(value: Any) -> bool:
    """Whether a value of a TOML document is a number, but not NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _numbers(given: Any, refuse: Refuse) -> tuple[float, ...]:
    listed = given if isinstance(given, list) else [given]
    if not listed or not all(is_number(one) for one in listed):
        refuse("the bounds of a rule must be numbers")
    return tuple(float(one) for one in listed)


def _of(keys: set[str]) -> str:
    return ", ".join(sorted(keys)) or "nothing"
