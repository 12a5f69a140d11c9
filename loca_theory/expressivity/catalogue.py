"""Error of every method beside what it costs, for one shape and a range of budgets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loca_theory import _arguments
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.method_table import costs
from loca_theory.expressivity.methods import Method
from loca_theory.expressivity.methods.method import Engine
from loca_theory.expressivity.methods.registry import METHODS
from loca_theory.expressivity.simulation import Simulation
from loca_theory.sweeps import Result, Runner
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.results import rows
from loca_theory.sweeps.runner import DEFAULT_RUNNER


@dataclass(frozen=True)
class CatalogueRow:
    """Error and costs of one method at one budget.

    Attributes:
        p: Rows.
        q: Columns.
        r: LoRA's rank, which sets the budget.
        method: Name of the method.
        is_oracle: Whether the method needs W, which training does not know.
        parameters: Trained numbers; None for a formula.
        stored_bits: Bits of the stored adapter; None for a formula.
        engine: How the error was obtained.
        error: Relative error ‖W − Ŵ‖²/‖W‖².
        standard_error: Standard error of the mean; 0 for exact values, None if it is unknown.
    """

    p: int
    q: int
    r: int
    method: str
    is_oracle: bool
    parameters: int | None
    stored_bits: float | None
    engine: Engine
    error: float
    standard_error: float | None


@dataclass(frozen=True, repr=False)
class CatalogueResult(Result):
    """Errors and costs of the methods.

    Attributes:
        rows: One row per method and rank at which it exists.
    """

    rows: tuple[CatalogueRow, ...] = rows(CatalogueRow)
    command = "catalogue"


@dataclass(frozen=True)
class Catalogue:
    """Specification: the methods of the package, at the ranks at which each exists.

    An error is exact if the method has an exact error, and simulated otherwise.

    Attributes:
        p: Rows.
        q: Columns.
        ranks: LoRA ranks r.
        simulated_ranks: Those of the methods that can only be simulated; empty for none of these.
        draws: Number of Monte Carlo draws.
        seed: Root seed.
    """

    p: int = 768
    q: int = 768
    ranks: tuple[int, ...] = tuple(range(1, 65))
    simulated_ranks: tuple[int, ...] = (2, 4, 8, 16)
    draws: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        _arguments.fields_to_int(self, "p", "q", "draws", "seed")
        object.__setattr__(self, "ranks", _arguments.ranks(self.ranks))
        object.__setattr__(
            self, "simulated_ranks", _arguments.integers("simulated_ranks", self.simulated_ranks)
        )
        for r in (*self.ranks, *self.simulated_ranks):
            Budget(self.p, self.q, r)

    def describe(self) -> dict[str, Any]:
        """Shape, ranks, draws and methods as plain data, for a manifest."""
        return {
            "shape": [self.p, self.q],
            "ranks": list(self.ranks),
            "simulated_ranks": list(self.simulated_ranks),
            "draws": self.draws,
            "methods": list(METHODS),
        }

    def run(self, runner: Runner = DEFAULT_RUNNER) -> CatalogueResult:
        """Compute the table."""
        found = []
        for method in METHODS.values():
            simulation = self._simulation(method)
            for row in simulation.run(runner).rows if simulation else ():
                parameters, stored_bits = costs(method, Budget(self.p, self.q, row.r))
                found.append(
                    CatalogueRow(
                        p=row.p,
                        q=row.q,
                        r=row.r,
                        method=row.method,
                        is_oracle=method.is_oracle,
                        parameters=parameters,
                        stored_bits=stored_bits,
                        engine=row.engine,
                        error=row.error,
                        standard_error=row.standard_error,
                    )
                )
        return CatalogueResult(manifest(grid=self.describe(), seed=self.seed), tuple(found))

    def _simulation(self, method: Method) -> Simulation | None:
        """The errors of one method at the ranks at which it exists; None if there are none."""
        ranks = self._evaluated(method, Engine.EXACT, self.ranks)
        ranks = ranks or self._evaluated(method, Engine.MONTE_CARLO, self.simulated_ranks)
        if not ranks:
            return None
        shape = (self.p, self.q)
        return Simulation((shape,), ranks, (method,), draws=self.draws, seed=self.seed)

    def _evaluated(self, method: Method, engine: Engine, ranks: tuple[int, ...]) -> tuple[int, ...]:
        budgets = (Budget(self.p, self.q, r) for r in ranks)
        return tuple(budget.r for budget in budgets if engine in method.engines(budget))
