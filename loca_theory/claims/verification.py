"""Deciding claims through the sweep store: a point a claim."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from loca_theory.claims.ledger import CHECKS, Claim, Ledger
from loca_theory.claims.measurement import Effort, Measurement
from loca_theory.claims.observation import EXPERIMENT, measure
from loca_theory.claims.reader import load_ledger
from loca_theory.claims.rules import Verdict, decide
from loca_theory.errors import ResourceError
from loca_theory.sweeps import DEFAULT_RUNNER, Point, Runner, code_version, find_tables

# Where experiments write unless told otherwise, and where verify looks.
DEFAULT_RESULTS = "loca-results"

Entry = dict[str, Any]


def version() -> str:
    """Version of the code and libraries that observations depend on, not of what judges them."""
    return code_version(measure, CHECKS)


@dataclass(frozen=True)
class Verification:
    """What to decide.

    Attributes:
        ledger: The ledger.
        names: Claims by name; none for all.
        effort: How much work goes into each.
        seed: Root seed.
        results: Folder of the experiments' tables, looked through with its subfolders.

    Raises:
        InvalidArgumentError: a claim is unknown.
        ResourceError: the folder of tables is not there.
    """

    ledger: Ledger = field(default_factory=load_ledger)
    names: tuple[str, ...] = ()
    effort: Effort = Effort.DEFAULT
    seed: int = 0
    results: Path | None = None

    def __post_init__(self) -> None:
        self.ledger.find(self.names)
        if self.results is not None and not self.results.is_dir():
            msg = f"there is no folder {self.results}; give that of the experiments' tables, or "
            msg += 'leave out results="..."'
            raise ResourceError(msg)

    @property
    def version(self) -> str:
        """Version of the code and libraries that stored observations depend on."""
        return version()

    @property
    def claims(self) -> list[Claim]:
        """The claims to decide."""
        return self.ledger.find(self.names)

    def describe(self) -> dict[str, Any]:
        """The options as plain data, for a manifest."""
        return {
            "claims": [claim.id for claim in self.claims],
            "effort": self.effort.value,
            "comparisons": self.ledger.comparisons,
        }

    def run(self, runner: Runner = DEFAULT_RUNNER) -> list[Entry]:
        """Decide every claim.

        Args:
            runner: How; a point is a claim.

        Returns:
            An entry a claim, in the order of the ledger (see :func:`entry`).
        """
        # The longest first: none is left to run alone at the end.
        ordered = sorted(self.claims, key=lambda claim: -claim.cost)
        known = {claim.id: claim for claim in ordered}
        points = [self._point(claim) for claim in ordered]
        compute = partial(measure, claims=known, results=self.results)
        found = runner.run(points, compute)
        by_id = {
            point.parameters["claim"]: {**result, "data": point.parameters["tables"]}
            for point, result in zip(points, found, strict=True)
        }
        return [
            entry(claim, by_id[claim.id], self.effort, self.ledger, self.seed)
            for claim in self.claims
        ]

    def _point(self, claim: Claim) -> Point:
        return Point(
            EXPERIMENT,
            {
                "claim": claim.id,
                "check": claim.check,
                "arguments": dict(claim.arguments),
                "comparisons": claim.comparisons,
                "effort": self.effort.value,
                "seed": self.seed,
                "tables": [_digest(path) for path in find_tables(self.results, claim.tables)],
            },
        )


def entry(claim: Claim, stored: dict[str, Any], effort: Effort, ledger: Ledger, seed: int) -> Entry:
    """The line of the ledger's outcome for one claim, as plain data.

    Args:
        claim: The claim.
        stored: What :func:`measure` returned, and as ``data`` the digests of the tables it read.
        effort: With which effort.
        ledger: The ledger, whose claims share the family-wise rate.
        seed: Root seed.

    Returns:
        ``id``, ``verdict``, ``observed``, ``standard_error``, ``low`` and ``high`` (the interval
        that decided), ``expected``, ``rule``, ``decided_by`` (name and bounds of the deciding
        part), ``n``, ``seconds``, ``note``, ``parts``, ``remark`` (the check's part of the note),
        ``effort``, ``seed``, ``data``, ``version`` (of the code), ``stale`` (whether that is not
        the present one), ``ledger`` (the verdict that the ledger expects), ``changed`` (whether a
        decided verdict is another), ``lost`` (whether it is inconclusive where the ledger expects a
        decision at this effort) and what the ledger says of the claim.
    """
    found = Measurement.from_json(stored)
    alarm = ledger.alarm(claim)
    decision = decide(claim.rule, found, alarm=alarm, assumes=bool(claim.added))
    verdict, part = decision.verdict, decision.part
    may_be_open = not claim.ledger.is_decided or effort in claim.undecided
    notes = [claim.note, found.note]
    if not found.parts:
        notes.append(_how_to_make(claim))
    return {
        "id": claim.id,
        "verdict": verdict.value,
        "observed": part.value if part else None,
        "standard_error": part.standard_error if part else None,
        "expected": claim.expected,
        "rule": claim.rule.in_words(),
        "n": part.n if part else 0,
        "seconds": stored["seconds"],
        "note": " ".join(one.strip() for one in notes if one.strip()),
        "low": decision.low,
        "high": decision.high,
        "decided_by": {
            "name": part.name if part else "",
            "rule": claim.rule.in_words(decision.index),
        },
        "parts": stored["parts"],
        "remark": found.note,
        "effort": effort.value,
        "seed": seed,
        "data": stored.get("data", []),
        "version": version(),
        "stale": False,
        "ledger": claim.ledger.value,
        "changed": verdict.is_decided and verdict is not claim.ledger,
        "lost": verdict is Verdict.INCONCLUSIVE and not may_be_open,
        "part": ledger.part(claim),
        "place": claim.place,
        "statement": claim.statement,
        "kind": claim.kind,
        "subject": claim.subject,
        "slip": claim.slip,
        "assumptions": list(claim.assumptions),
        "added": list(claim.added),
        "check": claim.check,
        "command": claim.command,
        "figure": claim.figure or None,
        "definition": definition(claim),
    }


def _how_to_make(claim: Claim) -> str:
    """All that is to be typed to decide a claim whose tables are not there."""
    written = re.findall(r"--out[ =](\S+)", claim.command)
    folder = written[-1] if written else DEFAULT_RESULTS
    where = " (experiments need a checkout of the repository)"
    return (
        f"Make it with: {claim.command} && loca-theory verify {claim.id} --results {folder}"
        f"{where if 'experiments.' in claim.command else ''}"
    )


def renewed(one: Entry, claim: Claim, ledger: Ledger) -> Entry:
    """An earlier entry by the ledger as it is now: the observation stays, all else follows anew.

    Raises:
        KeyError: it is no entry.
    """
    stored = {**{name: one[name] for name in ("parts", "seconds", "data")}, "note": one["remark"]}
    again = entry(claim, stored, Effort(one["effort"]), ledger, one["seed"])
    return {**again, "version": one["version"], "stale": one["version"] != again["version"]}


def definition(claim: Claim) -> str:
    """Hash of what an observation depends on in the ledger; of another one it says nothing."""
    content = [claim.id, claim.check, dict(claim.arguments)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _digest(path: Path) -> str:
    try:
        return f"{path.name}:{hashlib.sha256(path.read_bytes()).hexdigest()[:32]}"
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror or error}"
        raise ResourceError(msg) from error
