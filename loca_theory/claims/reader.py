"""Read the claims of claims.toml; an error names the line at fault."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, NoReturn

from loca_theory import _arguments
from loca_theory.claims.fields import is_number, read_alternative, read_changes, read_rule
from loca_theory.claims.ledger import (
    EMPIRICAL,
    KINDS,
    OTHER_MODEL,
    PAPER,
    SUBJECTS,
    Claim,
    Ledger,
    LedgerError,
    Section,
    stands_for,
)
from loca_theory.claims.measurement import Tier
from loca_theory.claims.rules import Verdict

_ID = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")
_TEXTS = ("id", "passage", "statement", "kind", "check", "expected", "expected_verdict")
_LISTS = ("assumptions", "added", "tables", "undecided")
_OTHERS = {"arguments": dict, "note": str, "command": str, "figure": str, "erratum": bool,
           "subject": str}  # fmt: skip
_TYPES = {dict: "a table", str: "a text", bool: "true or false"}
_FIELDS = {*_TEXTS, *_LISTS, *_OTHERS, "rule", "comparisons", "cost", "refuted_by", "rule_changes"}


def load_ledger(path: str | Path | None = None) -> Ledger:
    """Read the ledger that the package ships, or another one.

    Args:
        path: Ledger file; None for the package's own.

    Raises:
        InvalidArgumentError: path is not a path.
        LedgerError: the file cannot be read, or a claim is invalid; the message names the line.
    """
    name = "claims.toml" if path is None else str(path)
    shipped = files("loca_theory.claims") / name
    source = shipped if path is None else _arguments.path("ledger", path)
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        msg = f"cannot read the ledger {name}: {getattr(error, 'strerror', None) or error}"
        raise LedgerError(msg) from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        msg = f"{name} is not TOML: {error}"
        raise LedgerError(msg) from error
    reader = _Reader(name, text, data)
    claims = list(reader.claims())
    titles = reader.titles([claim.id for claim in claims])
    return Ledger(
        tuple(
            replace(claim, section=replace(claim.section, title=titles.get(claim.id, "")))
            for claim in claims
        )
    )


class _Reader:
    """Converts the document into claims; its errors name the line at fault."""

    def __init__(self, name: str, text: str, data: dict[str, Any]) -> None:
        self._name, self._lines, self._data = name, text.splitlines(), data
        # Lines of the table headers: [[claim]] and [[section]].
        self._starts: dict[str, list[int]] = {"claim": [], "section": []}
        for number, line in enumerate(self._lines, start=1):
            if found := re.match(r"\s*\[\[\s*(claim|section)\s*\]\]", line):
                self._starts[found[1]].append(number)

    def claims(self) -> Iterator[Claim]:
        entries = self._data.get("claim")
        if not entries or not _are_tables(entries):
            self._refuse(0, "", "a ledger needs a table [[claim]] for each claim")
        if extra := set(self._data) - {"claim", "section"}:
            self._refuse(0, min(extra), f"unknown table {min(extra)!r}; known are claim, section")
        seen: set[str] = set()
        for index, entry in enumerate(self._data["claim"]):
            claim = self._claim(index, entry)
            if claim.id in seen:
                self._refuse(index, "id", f"the id {claim.id!r} is used twice")
            seen.add(claim.id)
            yield claim

    def titles(self, known: Sequence[str]) -> dict[str, str]:
        """The title of each claim's section; empty if the document has no sections."""

        def refuse(index: int, key: str, why: str) -> NoReturn:
            self._refuse(index, key, why, table="section")

        entries = self._data.get("section", [])
        if not _are_tables(entries):
            refuse(0, "", "'section' must be a list of tables [[section]]")
        found: dict[str, str] = {}
        for index, entry in enumerate(entries):
            title, names = entry.get("title"), entry.get("claims")
            if extra := set(entry) - {"title", "claims"}:
                why = f"unknown field {min(extra)!r} of a section; known are claims, title"
                refuse(index, min(extra), why)
            if not isinstance(title, str) or not title.strip():
                refuse(index, "title", "a section needs a 'title'")
            if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
                refuse(index, "claims", "a section needs 'claims', a list of ids and families")
            for name in names:
                mine = [one for one in known if stands_for(name, one)]
                if not mine:
                    refuse(index, "claims", f"no claim is named {name!r}")
                for one in mine:
                    if found.setdefault(one, title) != title:
                        why = f"{one!r} is already in the section {found[one]!r}"
                        refuse(index, "claims", why)
        for index, one in enumerate(known):
            if entries and one not in found:
                self._refuse(index, "id", f"{one!r} is not in any [[section]]; list it in one")
        return found

    def _claim(self, index: int, entry: dict[str, Any]) -> Claim:
        def refuse(key: str, why: str) -> NoReturn:
            self._refuse(index, key, why)

        for key in sorted(set(entry) - _FIELDS):
            refuse(key, f"unknown field {key!r}; known are {', '.join(sorted(_FIELDS))}")
        for key in _TEXTS:
            if not isinstance(entry.get(key), str) or not entry[key].strip():
                refuse(key, f"{key!r} must be a text" if key in entry else f"a claim needs {key!r}")
        for key in _LISTS:
            listed = entry.get(key, [])
            if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
                refuse(key, f"{key!r} must be a list of texts")
        if not _ID.fullmatch(entry["id"]):
            why = f"{entry['id']!r} is not an id; join lower-case words by dots and hyphens"
            refuse("id", why)
        if entry["kind"] not in KINDS:
            refuse("kind", f"unknown kind {entry['kind']!r}; choose from {', '.join(KINDS)}")
        if not re.fullmatch(r"\w+\.\w+", entry["check"]):
            refuse("check", f"check {entry['check']!r} is not of the form module.function")
        if entry["expected_verdict"] not in [verdict.value for verdict in Verdict]:
            why = f"unknown verdict {entry['expected_verdict']!r}; choose from {', '.join(Verdict)}"
            refuse("expected_verdict", why)
        comparisons = entry.get("comparisons", 0)
        if type(comparisons) is not int or comparisons < 0:
            refuse("comparisons", "'comparisons' must be a whole number, 0 or more")
        cost = entry.get("cost", 1.0)
        if not is_number(cost) or not cost > 0:
            refuse("cost", "'cost' must be a positive number of seconds")
        for key, kind in _OTHERS.items():
            if not isinstance(entry.get(key, kind()), kind):
                refuse(key, f"{key!r} must be {_TYPES[kind]}")
        if entry.get("subject", PAPER) not in SUBJECTS:
            why = f"unknown subject {entry['subject']!r}; choose from {', '.join(SUBJECTS)}"
            refuse("subject", why)
        if entry.get("erratum") and entry["expected_verdict"] != Verdict.NOT_SUPPORTED:
            refuse("erratum", "the expected verdict of an erratum must be 'not supported'")
        if extra := set(entry.get("undecided", ())) - set(Tier):
            refuse("undecided", f"unknown tier {min(extra)!r}; choose from {', '.join(Tier)}")
        if not entry.get("command", "x").strip():
            refuse("command", "'command' is empty; leave it out for loca-theory verify ID")
        for key, why in _contradictions(entry):
            refuse(key, why)
        try:
            json.dumps(entry.get("arguments", {}), allow_nan=False)
        except (TypeError, ValueError):
            why = "'arguments' may hold only finite numbers, texts, booleans, lists and tables"
            refuse("arguments", why)
        rule = read_rule(entry.get("rule"), partial(refuse, "rule"))
        changes, alternative = entry.get("rule_changes"), entry.get("refuted_by")
        claim = Claim(
            **{key: entry[key] for key in ("id", "statement", "kind", "check", "expected")},
            section=Section("", entry["passage"]),
            rule=rule,
            expected_verdict=Verdict(entry["expected_verdict"]),
            command=entry.get("command", f"loca-theory verify {entry['id']}"),
            assumptions=tuple(entry.get("assumptions", ())),
            added=tuple(entry.get("added", ())),
            arguments=entry.get("arguments", {}),
            comparisons=comparisons,
            cost=float(cost),
            tables=tuple(entry.get("tables", ())),
            figure=entry.get("figure", ""),
            note=entry.get("note", ""),
            erratum=entry.get("erratum", False),
            subject=entry.get("subject", OTHER_MODEL if entry["kind"] == EMPIRICAL else PAPER),
            undecided=tuple(Tier(one) for one in entry.get("undecided", ())),
            refuted_by=None
            if alternative is None
            else read_alternative(
                alternative, partial(refuse, "refuted_by"), is_designed=rule.kind == "designed"
            ),
            source=f"{self._name}, line {self._line(index, '', 'claim')}",
        )
        if changes is None:
            return claim
        history = read_changes(changes, rule, claim.definition, partial(refuse, "rule_changes"))
        return replace(claim, rule_changes=history)

    def _refuse(self, index: int, key: str, why: str, table: str = "claim") -> NoReturn:
        msg = f"{self._name}, line {self._line(index, key, table)}: {why}"
        raise LedgerError(msg)

    def _line(self, index: int, key: str, table: str) -> int:
        """Line of a key in a table of the document, or of the header of the table."""
        starts = self._starts[table]
        if index >= len(starts):
            return 1
        start = starts[index]
        every = sorted(one for found in self._starts.values() for one in found)
        rest = [*(one for one in every if one > start), len(self._lines) + 1][0]
        for number in range(start, rest):
            if key and re.match(rf"\s*\[?({table}\.)?{re.escape(key)}\b", self._lines[number - 1]):
                return number
        return start


def _contradictions(entry: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Fields that contradict each other: the field to report, and why."""
    kind, verdict = entry["kind"], entry["expected_verdict"]
    if kind == EMPIRICAL and not entry.get("tables"):
        yield "kind", "an empirical claim needs 'tables'"
    if kind != EMPIRICAL and entry.get("tables"):
        yield "tables", "only an empirical claim has 'tables'"
    if kind == "Monte Carlo" and not entry.get("comparisons"):
        yield "kind", "a Monte Carlo claim needs 'comparisons', the number of its intervals"
    if kind in ("identity", "bound") and entry.get("comparisons"):
        why = f"a claim of kind {kind!r} has no random estimates; drop 'comparisons'"
        yield "comparisons", why
    if verdict == Verdict.SUPPORTED and entry.get("added"):
        yield "expected_verdict", "with 'added', it must be 'supported under assumptions'"
    if verdict == Verdict.SUPPORTED_UNDER_ASSUMPTIONS and not entry.get("added"):
        yield "expected_verdict", "'supported under assumptions' needs 'added' assumptions"


def _are_tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)
