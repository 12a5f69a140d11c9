"""The ledger: what is claimed where, what decides it, and the verdict that is expected."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from loca_theory.claims.measurement import Measurement, Setting
from loca_theory.claims.rules import Rule, Verdict
from loca_theory.errors import InvalidArgumentError, LocaTheoryError

KINDS = ("identity", "bound", "asymptotic", "Monte Carlo", "empirical")
Check = Callable[..., Measurement]

_PACKAGE = "loca_theory.claims.checks"
_ID = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")
_TEXTS = ("id", "place", "statement", "kind", "check", "expected", "verdict")
_FIELDS = {*_TEXTS, "assumptions", "added", "command", "arguments", "rule", "comparisons", "cost",
           "tables", "figure", "note"}  # fmt: skip


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
class Ledger:
    """All claims.

    Attributes:
        claims: In the order of the paper.
    """

    claims: tuple[Claim, ...]

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
            mine = [one for one in known if one == name or (name[-1:] == "." and _in(one, name))]
            if not mine:
                near = get_close_matches(name, known, n=3, cutoff=0.4)
                hint = f"nearest: {', '.join(near)}" if near else f"there are {len(known)}"
                msg = f"unknown claim {name!r}; {hint} (verify --list shows all)"
                raise InvalidArgumentError(msg)
            chosen |= set(mine)
        return [claim for claim in self.claims if not names or claim.id in chosen]


def _in(one: str, family: str) -> bool:
    return one.startswith(family)


def load_ledger(path: Path | None = None) -> Ledger:
    """Read the ledger that the package ships, or another one.

    Args:
        path: A file of the same form; None for the package's own.

    Raises:
        LedgerError: it cannot be read, or a claim is not one; the message names the line.
    """
    name = "claims.toml" if path is None else str(path)
    try:
        source = files("loca_theory.claims") / name if path is None else path
        text = source.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        msg = f"cannot read the ledger {name}: {getattr(error, 'strerror', None) or error}"
        raise LedgerError(msg) from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        msg = f"{name} is not TOML: {error}"
        raise LedgerError(msg) from error
    return Ledger(tuple(_Reader(name, text, data).claims()))


class _Reader:
    """Turns the document into claims, and says in which line one is none."""

    def __init__(self, name: str, text: str, data: dict[str, Any]) -> None:
        self._name, self._lines, self._data = name, text.splitlines(), data
        headers = enumerate(self._lines, start=1)
        self._starts = [i for i, line in headers if re.match(r"\s*\[\[\s*claim\s*\]\]", line)]

    def claims(self) -> Iterator[Claim]:
        entries = self._data.get("claim")
        if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
            self._refuse(0, "", "needs a table [[claim]] for each claim")
        if extra := set(self._data) - {"claim"}:
            self._refuse(0, min(extra), f"unknown table {min(extra)!r}")
        seen: set[str] = set()
        for index, entry in enumerate(self._data["claim"]):
            claim = self._claim(index, entry)
            if claim.id in seen:
                self._refuse(index, "id", f"{claim.id!r} is claimed twice")
            seen.add(claim.id)
            yield claim

    def _claim(self, index: int, entry: dict[str, Any]) -> Claim:
        def refuse(key: str, why: str) -> NoReturn:
            self._refuse(index, key, why)

        for key in sorted(set(entry) - _FIELDS):
            refuse(key, f"unknown field {key!r}; known are {', '.join(sorted(_FIELDS))}")
        for key in _TEXTS:
            if not isinstance(entry.get(key), str) or not entry[key].strip():
                refuse(key, f"{key!r} must be text" if key in entry else f"lacks {key!r}")
        for key in ("assumptions", "added", "tables"):
            listed = entry.get(key, [])
            if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
                refuse(key, f"{key!r} must be a list of texts")
        if not _ID.fullmatch(entry["id"]):
            refuse("id", f"{entry['id']!r} is no id: lower-case words joined by dots and hyphens")
        if entry["kind"] not in KINDS:
            refuse("kind", f"kind {entry['kind']!r} is none of {', '.join(KINDS)}")
        if not re.fullmatch(r"\w+\.\w+", entry["check"]):
            refuse("check", f"check {entry['check']!r} is not module.function")
        if entry["verdict"] not in [verdict.value for verdict in Verdict]:
            refuse("verdict", f"verdict {entry['verdict']!r} is none of {', '.join(Verdict)}")
        comparisons = entry.get("comparisons", 0)
        if type(comparisons) is not int or comparisons < 0:
            refuse("comparisons", "'comparisons' must be a number of intervals, 0 or more")
        cost = entry.get("cost", 1.0)
        if not _is_number(cost) or not cost > 0:
            refuse("cost", "'cost' must be a positive number of seconds")
        for key, kind in (("arguments", dict), ("note", str), ("command", str), ("figure", str)):
            if not isinstance(entry.get(key, kind()), kind):
                refuse(key, f"{key!r} has the wrong type")
        return Claim(
            **{key: entry[key] for key in _TEXTS if key != "verdict"},
            rule=self._rule(index, entry.get("rule")),
            ledger=Verdict(entry["verdict"]),
            command=entry.get("command", f"loca-theory verify {entry['id']}"),
            assumptions=tuple(entry.get("assumptions", ())),
            added=tuple(entry.get("added", ())),
            arguments=entry.get("arguments", {}),
            comparisons=comparisons,
            cost=float(cost),
            tables=tuple(entry.get("tables", ())),
            figure=entry.get("figure", ""),
            note=entry.get("note", ""),
        )

    def _rule(self, index: int, given: Any) -> Rule:
        if not isinstance(given, dict):
            self._refuse(index, "rule", "lacks a table 'rule'")
        keys = set(given)
        if "value" in keys:
            wanted = {"value", "precision"}
            if keys != wanted:
                self._refuse(index, "rule", f"this rule needs value and precision, not {_of(keys)}")
            precision = given["precision"]
            if not _is_number(precision) or precision < 0:
                self._refuse(index, "rule", "'precision' must be a number, 0 or more")
            value = self._numbers(index, given["value"])
            return Rule("near", value=value, precision=float(precision))
        if not keys or not keys <= {"low", "high"}:
            self._refuse(index, "rule", f"a rule has low, high or value, not {_of(keys)}")
        low = self._numbers(index, given.get("low", -np.inf))
        high = self._numbers(index, given.get("high", np.inf))
        pairs = zip(low * (len(high) // len(low) or 1), high * (len(low) // len(high) or 1),
                    strict=False)  # fmt: skip
        if any(a > b for a, b in pairs):
            self._refuse(index, "rule", "'low' lies above 'high'")
        return Rule("inside", low=low, high=high)

    def _numbers(self, index: int, given: Any) -> tuple[float, ...]:
        listed = given if isinstance(given, list) else [given]
        if not listed or not all(_is_number(one) for one in listed):
            self._refuse(index, "rule", "the bounds of a rule are numbers")
        return tuple(float(one) for one in listed)

    def _refuse(self, index: int, key: str, why: str) -> NoReturn:
        line = self._line(index, key)
        msg = f"{self._name}, line {line}: {why}"
        raise LedgerError(msg)

    def _line(self, index: int, key: str) -> int:
        """Where the key of a claim stands, or the claim."""
        if index >= len(self._starts):
            return 1
        start = self._starts[index]
        rest = [*self._starts[index + 1 :], len(self._lines) + 1][0]
        for number in range(start, rest):
            if key and re.match(rf"\s*\[?(claim\.)?{re.escape(key)}\b", self._lines[number - 1]):
                return number
        return start


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _of(keys: set[str]) -> str:
    return ", ".join(sorted(keys)) or "nothing"
