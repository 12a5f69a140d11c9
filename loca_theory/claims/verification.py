"""Deciding claims through the sweep store: a point a claim."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from loca_theory.claims.ledger import Claim, Ledger
from loca_theory.claims.measurement import Effort, Measurement, Setting
from loca_theory.claims.reader import load_ledger
from loca_theory.claims.rules import decide
from loca_theory.errors import ResourceError
from loca_theory.sweeps import (
    Cluster,
    Point,
    ResultStore,
    code_version,
    find_tables,
    generator,
    run,
)

EXPERIMENT = "verify"
# Everything that a check can reach.
_MODULES = ("adapters", "claims", "convergence", "dependence", "expressivity", "increments",
            "sweeps/seeds.py", "sweeps/moments.py", "transforms")  # fmt: skip
_LIBRARIES = ("numpy", "scipy", "torch", "pandas")

Entry = dict[str, Any]


def version() -> str:
    """Version of the code and libraries that observations depend on."""
    return code_version(_MODULES, _LIBRARIES)


@dataclass(frozen=True)
class Verification:
    """What to decide, and how.

    Attributes:
        ledger: The ledger.
        names: Claims by name; none for all.
        effort: How much work goes into each.
        seed: Root seed.
        results: Folder of the experiments' tables, looked through with its subfolders.
        jobs: Worker processes; −1 for one a core.
        cluster: Where workers are.

    Raises:
        InvalidArgumentError: a claim is unknown.
        ResourceError: the folder of tables is not there.
    """

    ledger: Ledger = field(default_factory=load_ledger)
    names: tuple[str, ...] = ()
    effort: Effort = Effort.DEFAULT
    seed: int = 0
    results: Path | None = None
    jobs: int = -1
    cluster: Cluster = field(default_factory=Cluster)

    def __post_init__(self) -> None:
        self.ledger.find(self.names)
        if self.results is not None and not self.results.is_dir():
            msg = f"there is no folder {self.results}; give that of the experiments' tables, or "
            msg += "leave --results out"
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

    def run(
        self,
        *,
        store: ResultStore | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Entry]:
        """Decide every claim.

        Args:
            store: Where finished observations are kept.
            progress: Called with (finished, total) claims.

        Returns:
            An entry a claim, in the order of the ledger (see :func:`entry`).
        """
        # The longest first: none is left to run alone at the end.
        ordered = sorted(self.claims, key=lambda claim: -claim.cost)
        for claim in ordered:
            claim.function()  # a missing check is told before anything is computed
        known = {claim.id: claim for claim in ordered}
        points = [self._point(claim) for claim in ordered]
        compute = partial(measure, claims=known, results=self.results)
        found = run(
            points, compute, store=store, jobs=self.jobs, cluster=self.cluster, progress=progress
        )
        by_id = dict(zip(known, found, strict=True))
        return [
            entry(claim, by_id[claim.id], self.effort, self.ledger.comparisons, self.seed)
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


def measure(point: Point, *, claims: dict[str, Claim], results: Path | None) -> dict[str, Any]:
    """What a claim's check observes, and the seconds it took: the work that a sweep distributes."""
    given = point.parameters
    rng = generator(given["seed"], EXPERIMENT, given["claim"])
    start = time.perf_counter()
    found = claims[given["claim"]].measure(Setting(Effort(given["effort"]), rng, results))
    return {**found.to_json(), "seconds": time.perf_counter() - start}


def entry(
    claim: Claim, stored: dict[str, Any], effort: Effort, comparisons: int, seed: int
) -> Entry:
    """The line of the ledger's outcome for one claim, as plain data.

    Args:
        claim: The claim.
        stored: What :func:`measure` returned.
        effort: With which effort.
        comparisons: Comparisons of the whole ledger.
        seed: Root seed.

    Returns:
        ``id``, ``verdict``, ``observed``, ``standard_error``, ``low`` and ``high`` (the interval
        that decided), ``expected``, ``rule``, ``n``, ``seconds``, ``note``, ``parts``, ``remark``
        (the check's part of the note), ``effort``, ``seed``, ``version`` (of the code), ``ledger``
        (the verdict that the ledger expects), ``changed`` (whether a decided verdict is another)
        and what the ledger says of the claim.
    """
    found = Measurement.from_json(stored)
    decision = decide(claim.rule, found, comparisons=comparisons, assumes=bool(claim.added))
    part = decision.part
    changed = decision.verdict.is_decided and decision.verdict is not claim.ledger
    notes = [claim.note, found.note]
    if not found.parts:
        notes.append(f"make it with: {claim.command}")
    return {
        "id": claim.id,
        "verdict": decision.verdict.value,
        "observed": part.value if part else None,
        "standard_error": part.standard_error if part else None,
        "expected": claim.expected,
        "rule": claim.rule.in_words(),
        "n": part.n if part else 0,
        "seconds": stored["seconds"],
        "note": " ".join(one.strip() for one in notes if one.strip()),
        "low": decision.low,
        "high": decision.high,
        "parts": stored["parts"],
        "remark": found.note,
        "effort": effort.value,
        "seed": seed,
        "version": version(),
        "ledger": claim.ledger.value,
        "changed": changed,
        "place": claim.place,
        "statement": claim.statement,
        "kind": claim.kind,
        "assumptions": list(claim.assumptions),
        "added": list(claim.added),
        "check": claim.check,
        "command": claim.command,
        "figure": claim.figure or None,
        "definition": definition(claim),
    }


def renewed(one: Entry, claim: Claim, comparisons: int) -> Entry:
    """An earlier entry by the ledger as it is now: the observation stays, all else follows anew.

    Raises:
        KeyError: it is no entry.
    """
    stored = {"parts": one["parts"], "note": one["remark"], "seconds": one["seconds"]}
    again = entry(claim, stored, Effort(one["effort"]), comparisons, one["seed"])
    return {**again, "version": one["version"]}


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
