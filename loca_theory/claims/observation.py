"""A claim's check as a cell of a sweep; nothing is judged here."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from loca_theory.claims.claim import CHECKS, Claim
from loca_theory.claims.estimates import Measured, Tier
from loca_theory.sweeps import Cell, generator

MEASURED = TypeAdapter(Measured)
"""Observations as plain data for JSON, and back."""

# The packages whose code checks run besides their own, by family of checks. Most compute errors.
_SEARCH = ("locations", "transforms")
_ERRORS = ("expressivity", "increments", "transforms")
_RUNS = {
    **dict.fromkeys(("dependence", "hypothesis_tests"), ("dependence", *_ERRORS)),
    **dict.fromkeys(("empirical", "normality"), ("increments", "transforms")),
    **dict.fromkeys(("convergence", "theory_search"), ("convergence", *_SEARCH)),
    "gradients": ("adapters", "increments", *_SEARCH),
    "fourier": ("transforms",),
    "theory_rounding": ("increments", "rounding", "transforms"),
    **dict.fromkeys(("published", "tables"), ()),
}
_ALL = (CHECKS, "loca_theory.claims.estimates", "loca_theory.sweeps.random")


def _described(claim: Claim) -> dict[str, Any]:
    """The parts of a claim on which its measurement depends; the rules change no number."""
    return {name: getattr(claim, name) for name in ("id", "check", "arguments", "comparisons")}


@dataclass(frozen=True)
class ClaimCell(Cell):
    """The check of one claim.

    Attributes:
        claim: The claim.
        tier: How much work the check does.
        seed: Root seed.
        tables: Digests of the stored tables that the check reads.
        measured_by: Version of the code that measured it; empty for the present code.
    """

    experiment = "verify"
    result = Measured

    claim: Claim = field(metadata={"describe": _described})
    tier: Tier
    seed: int
    tables: tuple[str, ...]
    measured_by: str = field(default="", compare=False)

    @property
    def version(self) -> str:
        """Version of the code that measured it."""
        return self.measured_by or super().version

    @property
    def packages(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The packages whose code the check runs; the code that judges does not count."""
        names = _RUNS.get(self.claim.check.partition(".")[0], _ERRORS)
        return (*_ALL, *(".".join(("loca_theory", name)) for name in names))


def measure(cell: ClaimCell, *, results: Path | None) -> Measured:
    """Run the check of one claim; return what it measured and its duration in seconds."""
    rng = generator(cell.seed, cell.experiment, cell.claim.id)
    start = time.perf_counter()
    measured = cell.claim.measure(cell.tier, rng, results)
    return replace(measured, seconds=time.perf_counter() - start)
