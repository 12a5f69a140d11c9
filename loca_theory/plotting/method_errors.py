"""The table of every method's errors, from which the figure of their costs is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.methods.method import Engine
from loca_theory.expressivity.methods.registry import METHODS
from loca_theory.expressivity.results import SimulationResult
from loca_theory.expressivity.simulation import Simulation
from loca_theory.sweeps import Runner
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.runner import DEFAULT_RUNNER


@dataclass(frozen=True)
class MethodErrors:
    """Specification: the errors of all methods at the ranks at which each exists.

    Attributes:
        p: Rows.
        q: Columns.
        ranks: LoRA ranks r.
        simulated_ranks: Those of the methods without exact errors; empty for none of these.
        draws: Number of Monte Carlo draws.
        seed: Root seed.
    """

    p: int = 768
    q: int = 768
    ranks: tuple[int, ...] = tuple(range(1, 65))
    simulated_ranks: tuple[int, ...] = (2, 4, 8, 16)
    draws: int = 2
    seed: int = 0

    def describe(self) -> dict[str, Any]:
        """The specification as plain data, for a manifest."""
        return {
            "shape": [self.p, self.q],
            "ranks": list(self.ranks),
            "simulated_ranks": list(self.simulated_ranks),
            "draws": self.draws,
            "methods": list(METHODS),
        }

    def run(self, runner: Runner = DEFAULT_RUNNER) -> SimulationResult:
        """Compute the table."""
        found = [row for one in self._simulations() for row in one.run(runner).rows]
        return SimulationResult(manifest(grid=self.describe(), seed=self.seed), tuple(found))

    def _simulations(self) -> Iterator[Simulation]:
        shape = (self.p, self.q)
        wanted = {Engine.EXACT: self.ranks, Engine.MONTE_CARLO: self.simulated_ranks}
        for method in METHODS.values():
            for engine, ranks in wanted.items():
                existing = [r for r in ranks if engine in method.engines(Budget(*shape, r))]
                if existing:
                    yield Simulation(
                        (shape,), tuple(existing), (method,), draws=self.draws, seed=self.seed
                    )
                    break
