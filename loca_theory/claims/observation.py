"""Run a claim's check as a point of a sweep; nothing is judged here."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loca_theory.claims.measurement import Setting, Tier
from loca_theory.sweeps import Point, SweepInterruptedError, generator

if TYPE_CHECKING:
    # For types only: the ledger must not count for the version of a measurement. A point names the
    # check and its arguments, and the rules change no number.
    from loca_theory.claims.ledger import Claim

EXPERIMENT = "verify"


def measure(point: Point, *, claims: Mapping[str, Claim], results: Path | None) -> dict[str, Any]:
    """Run the check of one claim; return its measurement and its duration in seconds.

    Raises:
        KeyboardInterrupt: a sweep inside the check was interrupted.
        LedgerError: the claim does not fit its check.
    """
    given = point.parameters
    rng = generator(given["seed"], EXPERIMENT, given["claim"])
    start = time.perf_counter()
    try:
        found = claims[given["claim"]].measure(Setting(Tier(given["tier"]), rng, results))
    except SweepInterruptedError:
        # A sweep inside the check was interrupted. The user follows claims, not its points.
        raise KeyboardInterrupt from None
    return {**found.to_json(), "seconds": time.perf_counter() - start}
