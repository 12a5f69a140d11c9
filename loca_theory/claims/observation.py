"""What a claim's check observes, as a point of a sweep; it judges nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loca_theory.claims.measurement import Setting, Tier
from loca_theory.sweeps import Point, SweepInterruptedError, generator

if TYPE_CHECKING:
    # The ledger decides what is run, which the point names, and judges it, which changes no number.
    from loca_theory.claims.ledger import Claim

EXPERIMENT = "verify"


def measure(point: Point, *, claims: Mapping[str, Claim], results: Path | None) -> dict[str, Any]:
    """What a claim's check observes, and the seconds it took: the work that a sweep distributes.

    Raises:
        KeyboardInterrupt: a sweep inside the check was interrupted.
        LedgerError: the check cannot be run as the ledger says.
    """
    given = point.parameters
    rng = generator(given["seed"], EXPERIMENT, given["claim"])
    start = time.perf_counter()
    try:
        found = claims[given["claim"]].measure(Setting(Tier(given["tier"]), rng, results))
    except SweepInterruptedError:
        # Of a sweep inside a check. The claims are what the user counts.
        raise KeyboardInterrupt from None
    return {**found.to_json(), "seconds": time.perf_counter() - start}
