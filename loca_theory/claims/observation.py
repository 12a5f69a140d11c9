"""Run a claim's check as a cell of a sweep; nothing is judged here."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loca_theory.claims.ledger import CHECKS, Claim
from loca_theory.claims.measurement import Setting, Tier
from loca_theory.sweeps import Cell, generator
from loca_theory.sweeps.runner import SweepInterruptedError

EXPERIMENT = "verify"

# The packages whose code each family of checks runs besides its own. The families that only read
# tables run none.
_EXPRESSIVITY = ("expressivity", "increments", "transforms")
_DEPENDENCE = ("dependence", *_EXPRESSIVITY)
_CONVERGENCE = ("convergence", "locations", "transforms")
_INCREMENTS = ("increments", "transforms")
_RUNS = {
    "assumptions": _INCREMENTS,
    "complexity": _EXPRESSIVITY,
    "convergence": _CONVERGENCE,
    "dense": _EXPRESSIVITY,
    "dependence": _DEPENDENCE,
    "detection": _DEPENDENCE,
    "expectations": _EXPRESSIVITY,
    "fine_tuned": _INCREMENTS,
    "fourier": ("transforms",),
    "gradients": ("adapters", "locations", "transforms"),
    "half_matrix": ("transforms",),
    "hypothesis_tests": _INCREMENTS,
    "theorems": _EXPRESSIVITY,
    "theory_bases": _EXPRESSIVITY,
    "theory_gradients": _EXPRESSIVITY,
    "theory_law": _EXPRESSIVITY,
    "theory_order": _EXPRESSIVITY,
    "theory_search": _CONVERGENCE,
    "theory_spikes": _EXPRESSIVITY,
    "variants": _EXPRESSIVITY,
    "wishart": _EXPRESSIVITY,
}
_ALL = (CHECKS, "loca_theory.claims.measurement", "loca_theory.sweeps.random")


def packages_of(check: str) -> tuple[str, ...]:
    """The packages whose code a check runs; the code that judges does not count."""
    family = check.partition(".")[0]
    return (*_ALL, *(".".join(("loca_theory", one)) for one in _RUNS.get(family, ())))


def _described(claim: Claim) -> dict[str, Any]:
    """What the measurement of a claim depends on; the rules change no number."""
    return {
        "id": claim.id,
        "check": claim.check,
        "arguments": dict(claim.arguments),
        "comparisons": claim.comparisons,
    }


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

    experiment = EXPERIMENT

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
        """The packages whose code the check runs."""
        return packages_of(self.claim.check)


def measure(cell: ClaimCell, *, results: Path | None) -> dict[str, Any]:
    """Run the check of one claim; return its measurement and its duration in seconds."""
    rng = generator(cell.seed, EXPERIMENT, cell.claim.id)
    start = time.perf_counter()
    try:
        found = cell.claim.measure(Setting(cell.tier, rng, results))
    except SweepInterruptedError:
        # A sweep inside the check was interrupted. The user follows claims, not its cells.
        raise KeyboardInterrupt from None
    return {**found.to_json(), "seconds": time.perf_counter() - start}
