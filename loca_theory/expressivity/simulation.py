"""Compare methods: a table with one row per method, shape, rank and engine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any, Literal

import joblib

from loca_theory import _arguments
from loca_theory._lookup import find, member
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Accounting, Budget
from loca_theory.expressivity.memory import check_memory
from loca_theory.expressivity.method_numbers import checked_numbers
from loca_theory.expressivity.methods import Method
from loca_theory.expressivity.methods.engine import Engine
from loca_theory.expressivity.methods.names import DEFAULT_NAMES
from loca_theory.expressivity.methods.registry import (
    DEFAULT_METHODS,
    find_methods,
    names_of,
    own_titles,
)
from loca_theory.expressivity.monte_carlo import ErrorCell, Sampler, estimate
from loca_theory.expressivity.results import ErrorRow, MeanError, SimulationResult
from loca_theory.sweeps import Runner, generator
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.runner import DEFAULT_RUNNER, chosen_runner
from loca_theory.sweeps.store import described
from loca_theory.sweeps.workers import has_context

DEFAULT_DRAWS = 100


def simulate(
    sizes: int | Iterable[int] | None = None,
    *,
    ranks: int | Iterable[int],
    shape: tuple[int, int] | None = None,
    methods: str | Method | Iterable[str | Method] = DEFAULT_NAMES,
    engine: Literal["exact", "asymptotic", "monte-carlo", "all"] | None = None,
    accounting: str = "paper",
    value_bits: int = 16,
    draws: int = DEFAULT_DRAWS,
    seed: int = 0,
    sampler: Literal["reduced", "dense"] | None = None,
    device: str = "auto",
    runner: Runner | None = None,
) -> SimulationResult:
    """Expected error of each method in reconstructing a Gaussian matrix.

    Args:
        sizes: Sizes K of square matrices.
        ranks: LoRA ranks r, which set the budgets.
        shape: One rectangular shape (p, q) instead of sizes.
        methods: Methods or their names.
        engine: How errors are computed. ``exact``: the expectation, by formula; ``asymptotic``: the
            limit of large matrices; ``monte-carlo``: the mean of random draws; ``all``: all three,
            where a method has them; None for ``exact`` where the method has it, and
            ``monte-carlo`` elsewhere, but both if there is a sampler.
        accounting: What is charged to a budget; see :class:`Accounting`.
        value_bits: Bits of a stored number, for rate–distortion and the accounting ``bits``.
        draws: Number of Monte Carlo draws.
        seed: Root seed.
        sampler: How Monte Carlo draws errors. ``reduced``: from their law; ``dense``: by
            approximating random matrices; None for ``reduced`` where the method has it.
        device: ``auto``, ``cpu`` or ``cuda[:N]``, for the dense sampler.
        runner: Runner that computes the Monte Carlo draws.

    Raises:
        InvalidArgumentError: an argument is out of range, or nothing can be computed.
        ResourceError: the simulation does not fit in memory, or the workers or the store fail.

    >>> import loca_theory as loca
    >>> result = loca.simulate(768, ranks=[8, 16], methods=["LoCA"], engine="exact")
    >>> [(row.r, round(row.error, 4)) for row in result.rows]
    [(8, 0.9128), (16, 0.8515)]
    """
    if (sizes is None) == (shape is None):
        raise InvalidArgumentError("give either sizes=... (square matrices) or shape=...")
    simulation = Simulation(
        shapes=squares(_arguments.integers("sizes", sizes)) if shape is None else (shape,),
        ranks=_arguments.ranks(ranks),
        methods=find_methods(methods),
        engines=engines_of(engine, sampler),
        accounting=member(Accounting, "accounting", accounting),
        value_bits=value_bits,
        draws=draws,
        seed=seed,
        sampler=None if sampler is None else member(Sampler, "sampler", sampler),
    )
    return simulation.on_device(device).run(chosen_runner(runner))


@dataclass(frozen=True)
class Simulation:
    """Specification of a comparison of methods; the fields are arguments of :func:`simulate`."""

    shapes: tuple[tuple[int, int], ...]
    ranks: tuple[int, ...]
    methods: tuple[Method, ...] = field(default=DEFAULT_METHODS, metadata={"describe": names_of})
    engines: tuple[Engine, ...] | None = None
    accounting: Accounting = Accounting.PAPER
    value_bits: int = 16
    draws: int = DEFAULT_DRAWS
    seed: int = 0
    sampler: Sampler | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("shapes", "methods", "engines"):
            if getattr(self, name) == ():
                raise InvalidArgumentError(f"{name} is empty; give at least one")
        shapes = tuple(map(_arguments.shape, self.shapes))
        vars(self).update(shapes=shapes, ranks=_arguments.ranks(self.ranks))
        _arguments.fields_to_int(self, "value_bits", "draws", "seed")
        find_methods(self.methods)
        for budget, method in product(self.budgets, self.methods):
            method.check_budget(budget)
        if not any(engines for *_, engines in self._plan):
            names = ", ".join(method.name for method in self.methods)
            engines = ", ".join(self.engines or (Engine.EXACT, Engine.MONTE_CARLO))
            grid = product(self.budgets, self.methods)
            possible = {engine for budget, method in grid for engine in method.engines(budget)}
            way_out = " or ".join(f'engine="{engine}"' for engine in sorted(possible))
            raise InvalidArgumentError(
                f"nothing to compute: {names} has no value from the engine {engines} at these "
                f"shapes; choose {way_out or 'other methods'}"
            )
        _arguments.positive_number("draws", self.draws)
        generator(self.seed)  # refuses a seed that is out of range
        _ = self._cells  # refuses a sampler that a method lacks

    @property
    def uses_dense_sampler(self) -> bool:
        """Whether any method draws dense matrices (and so imports torch)."""
        return any(cell.sampler is Sampler.DENSE for cell in self._cells)

    def on_device(self, name: str) -> Simulation:
        """Copy of this simulation on the device that a name such as ``auto`` resolves to."""
        if name == "cpu" or (name == "auto" and not self.uses_dense_sampler):
            return replace(self, device="cpu")  # without importing torch
        from loca_theory.transforms.devices import resolve_device

        return replace(self, device=resolve_device(name))

    def describe(self) -> dict[str, Any]:
        """All shapes, ranks, methods, engines and options as plain data, for a manifest."""
        return {**described(self, "seed", "device"), **own_titles(self.methods)}

    def run(self, runner: Runner = DEFAULT_RUNNER) -> SimulationResult:
        """Compute the table."""
        if self._cells:
            # In a context of joblib the draws may be made on other machines.
            is_alone = self.device != "cpu" or has_context()
            check_memory(
                max(self.budgets, key=lambda budget: (budget.p * budget.q, budget.r)),
                dense=self.uses_dense_sampler,
                processes=1 if is_alone else joblib.effective_n_jobs(runner.jobs),
                device=self.device,
            )
        computed: dict[tuple[str, Budget, Engine], MeanError] = {}
        for cell, drawn in zip(self._cells, estimate(self._cells, runner), strict=True):
            errors = drawn.standard_error
            for i, budget in enumerate(cell.budgets):
                error = None if errors is None else float(errors[i])
                computed[cell.method.name, budget, Engine.MONTE_CARLO] = MeanError(
                    drawn.mean[i], error, drawn.count, self.seed, cell.sampler
                )
        for method, budgets in self._grouped(Engine.EXACT):
            errors = checked_numbers(method, "expected_errors", budgets).tolist()
            for budget, error in zip(budgets, errors, strict=True):
                computed[method.name, budget, Engine.EXACT] = MeanError(error, 0.0)
        for budget, method, engines in self._plan:
            if Engine.ASYMPTOTIC in engines:
                error = float(checked_numbers(method, "limit", budget))
                computed[method.name, budget, Engine.ASYMPTOTIC] = MeanError(error, None)
        rows = tuple(
            ErrorRow.of(method, budget, engine, computed[method.name, budget, engine])
            for budget, method, engines in self._plan
            for engine in engines
        )
        origin = manifest(grid=self.describe(), seed=self.seed, device=self.device)
        fractions: dict[str, list[float]] = {}
        for row in rows:
            if row.spent is not None:
                fractions.setdefault(row.method, []).append(row.spent)
        origin["spent"] = {name: [min(values), max(values)] for name, values in fractions.items()}
        return SimulationResult(origin, rows)

    @cached_property
    def _plan(self) -> tuple[tuple[Budget, Method, tuple[Engine, ...]], ...]:
        """The budgets, methods and engines of the rows, in order."""
        grid = product(self.budgets, self.methods)
        return tuple((budget, method, self._engines(method, budget)) for budget, method in grid)

    def _engines(self, method: Method, budget: Budget) -> tuple[Engine, ...]:
        engines = self.engines or (Engine.EXACT, Engine.MONTE_CARLO)
        available = method.engines(budget)
        usable = tuple(engine for engine in engines if engine in available)
        return usable if self.engines else usable[:1]

    def _grouped(self, engine: Engine) -> list[tuple[Method, list[Budget]]]:
        """The budgets that an engine evaluates, for each method and shape."""
        groups: dict[tuple[str, int, int], tuple[Method, list[Budget]]] = {}
        for budget, method, engines in self._plan:
            if engine in engines:
                group = groups.setdefault((method.name, budget.p, budget.q), (method, []))
                group[1].append(budget)
        return list(groups.values())

    @cached_property
    def _cells(self) -> list[ErrorCell]:
        cells = []
        for method, budgets in self._grouped(Engine.MONTE_CARLO):
            natural = Sampler.REDUCED if method.defines("sample") else Sampler.DENSE
            sampler = self.sampler or natural
            device = self.device if sampler is Sampler.DENSE else None
            draws = (0, self.draws)
            cells.append(ErrorCell(method, tuple(budgets), sampler, draws, self.seed, device))
        return cells

    @property
    def budgets(self) -> list[Budget]:
        """Every budget, in order of shape and rank."""
        return [
            Budget(p, q, r, self.accounting, self.value_bits)
            for (p, q), r in product(self.shapes, self.ranks)
        ]


def squares(sizes: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """The shape K×K for each size K."""
    return tuple((size, size) for size in sizes)


def engines_of(name: str | None, sampler: str | None = None) -> tuple[Engine, ...] | None:
    """Engines that the arguments ``engine`` and ``sampler`` of :func:`simulate` stand for."""
    if name is None:
        return None if sampler is None else (Engine.EXACT, Engine.MONTE_CARLO)
    return find(
        "engine", name, {**{member.value: (member,) for member in Engine}, "all": tuple(Engine)}
    )
