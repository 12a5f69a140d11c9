"""The comparison as a table: every curve, shape, rank and engine asked for, one row each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import joblib

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.asymptotic import asymptotic_error
from loca_theory.expressivity.budgets import Accounting, Budget
from loca_theory.expressivity.curves import CURVES, DEFAULT_CURVES, Engine, find_curve
from loca_theory.expressivity.exact import exact_error, has_exact_value
from loca_theory.expressivity.memory import check_memory
from loca_theory.expressivity.monte_carlo import (
    Estimate,
    MonteCarlo,
    Sampler,
    Series,
    store_version,
)
from loca_theory.sweeps import DEFAULT_RUNNER, Runner

Row = dict[str, Any]
COLUMNS = (
    "K", "p", "q", "r", "curve", "engine", "error", "standard_error", "draws", "seed", "sampler",
)  # fmt: skip

DEFAULT_DRAWS = 100


@dataclass(frozen=True)
class Simulation:
    """What to compare.

    Attributes:
        shapes: Matrix shapes (p, q).
        ranks: LoRA ranks r; each must fit every shape.
        curves: Names of curves.
        engines: Engines; a curve is evaluated by those of them that it has.
        accounting: How budgets count.
        value_bits: Bits of a stored number, for ``bits`` and ``RD``.
        draws: Monte Carlo draws.
        seed: Root seed.
        sampler: Sampler, or None for the reduced one where a curve has it.
        device: Device of the dense sampler.

    Raises:
        InvalidArgumentError: anything of it is out of range, or a curve has none of the engines.
    """

    shapes: tuple[tuple[int, int], ...]
    ranks: tuple[int, ...]
    curves: tuple[str, ...] = DEFAULT_CURVES
    engines: tuple[Engine, ...] = (Engine.EXACT, Engine.MONTE_CARLO)
    accounting: Accounting = Accounting.PAPER
    value_bits: int = 16
    draws: int = DEFAULT_DRAWS
    seed: int = 0
    sampler: Sampler | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        if not (self.shapes and self.ranks and self.curves and self.engines):
            msg = "a simulation needs at least one shape, rank, curve and engine"
            raise InvalidArgumentError(msg)
        for curve in self.curves:
            find_curve(curve)
        for p, q in self.shapes:
            for r in self.ranks:
                self._check_counts(Budget(p, q, r, self.accounting, self.value_bits))
        if not any(True for _ in self._cells()):
            names, wanted = ", ".join(self.curves), ", ".join(self.engines)
            msg = f"nothing to compute: {names} cannot be had from {wanted} at these shapes; "
            msg += "choose another engine"
            raise InvalidArgumentError(msg)
        _ = self._monte_carlo  # raises where its part is out of range
        if self.sampler is Sampler.REDUCED:
            for one in self._series():
                if not CURVES[one.curve].reduced:
                    msg = f'{one.curve} has no reduced form; use sampler="dense", or leave it out'
                    raise InvalidArgumentError(msg)

    @property
    def uses_dense_sampler(self) -> bool:
        """Whether any curve draws dense matrices (and so imports torch)."""
        return any(one.sampler is Sampler.DENSE for one in self._series())

    @property
    def without_engine(self) -> tuple[str, ...]:
        """Curves that none of the engines can evaluate at some shape."""
        return tuple(
            curve
            for curve in self.curves
            if any(
                not any(_evaluates(engine, curve, p, q) for engine in self.engines)
                for p, q in self.shapes
            )
        )

    def on_device(self, name: str) -> Simulation:
        """The same simulation on the device that a name such as ``auto`` stands for here.

        Raises:
            InvalidArgumentError: the name means nothing.
            ResourceError: CUDA was asked for and there is none.
        """
        if name == "cpu" or (name == "auto" and not self.uses_dense_sampler):
            return replace(self, device="cpu")  # without importing torch
        # Imports torch.
        from loca_theory.transforms import resolve_device

        return replace(self, device=resolve_device(name))

    def describe(self) -> dict[str, Any]:
        """The expanded grid and options as plain data, for a manifest."""
        return {
            "shapes": [list(shape) for shape in self.shapes],
            "ranks": list(self.ranks),
            "curves": list(self.curves),
            "engines": [engine.value for engine in self.engines],
            "accounting": self.accounting.value,
            "value_bits": self.value_bits,
            "draws": self.draws,
            "sampler": self.sampler.value if self.sampler else None,
        }

    @property
    def version(self) -> str:
        """Version of the code and libraries that its Monte Carlo blocks depend on."""
        return store_version()

    def run(self, runner: Runner = DEFAULT_RUNNER) -> list[Row]:
        """Compute the table.

        Args:
            runner: How the Monte Carlo blocks are computed; on a GPU one process does all of them.

        Returns:
            Rows with the keys :data:`COLUMNS`, ordered by shape, rank, curve and engine. K is null
            for a matrix that is not square; draws, seed and sampler where nothing was drawn;
            standard_error is 0 for exact values and null where none is known.

        Raises:
            InvalidArgumentError: the address of the cluster's scheduler is none.
            ResourceError: a dense simulation does not fit the memory, the cluster is not there, or
                a result cannot be stored.
            SweepInterruptedError: Ctrl-C.
        """
        self.check_memory(runner.jobs)
        series = list(self._series())
        estimates = self._monte_carlo.run(series, runner)
        simulated = {
            (one.curve, one.p, one.q, r): (one, estimate)
            for one, row in zip(series, estimates, strict=True)
            for r, estimate in zip(one.ranks, row, strict=True)
        }
        rows = []
        for p, q, r, curve, engine in self._cells():
            if engine is Engine.MONTE_CARLO:
                one, estimate = simulated[curve, p, q, r]
                rows.append(self._row(p, q, r, curve, engine, estimate, one.sampler))
            else:
                budget = Budget(p, q, r, self.accounting, self.value_bits)
                rows.append(self._row(p, q, r, curve, engine, _formula(engine, curve, budget)))
        return rows

    @property
    def _monte_carlo(self) -> MonteCarlo:
        return MonteCarlo(self.draws, self.seed, self.accounting, self.value_bits, self.device)

    def _cells(self) -> Iterator[tuple[int, int, int, str, Engine]]:
        for p, q in self.shapes:
            for r in self.ranks:
                for curve in self.curves:
                    for engine in self.engines:
                        if _evaluates(engine, curve, p, q):
                            yield p, q, r, curve, engine

    def _series(self) -> Iterator[Series]:
        if Engine.MONTE_CARLO not in self.engines:
            return
        for p, q in self.shapes:
            for name in self.curves:
                curve = CURVES[name]
                if Engine.MONTE_CARLO in curve.engines:
                    natural = Sampler.REDUCED if curve.reduced else Sampler.DENSE
                    yield Series(name, p, q, self.ranks, self.sampler or natural)

    def _check_counts(self, budget: Budget) -> None:
        if {"F2", "M1", "M2"} & set(self.curves):
            _ = budget.chosen_locations  # raises where the budget asks for more than there are

    def check_memory(self, jobs: int = -1) -> None:
        """Refuse what would not fit, before anything is allocated or written.

        Args:
            jobs: Worker processes; −1 for one per core. On a GPU it is one.

        Raises:
            ResourceError: the simulation needs more memory than is free.
        """
        if Engine.MONTE_CARLO not in self.engines:
            return
        p, q = max(self.shapes, key=lambda shape: shape[0] * shape[1])
        check_memory(
            Budget(p, q, max(self.ranks), self.accounting, self.value_bits),
            dense=self.uses_dense_sampler,
            processes=joblib.effective_n_jobs(jobs) if self.device == "cpu" else 1,
            device=self.device,
        )

    def _row(
        self,
        p: int,
        q: int,
        r: int,
        curve: str,
        engine: Engine,
        estimate: Estimate,
        sampler: Sampler | None = None,
    ) -> Row:
        drawn = engine is Engine.MONTE_CARLO
        return {
            "K": p if p == q else None,
            "p": p,
            "q": q,
            "r": r,
            "curve": curve,
            "engine": engine.value,
            "error": estimate.error,
            "standard_error": estimate.standard_error,
            "draws": estimate.draws if drawn else None,
            "seed": self.seed if drawn else None,
            "sampler": sampler.value if sampler else None,
        }


def _evaluates(engine: Engine, curve: str, p: int, q: int) -> bool:
    if engine is Engine.EXACT:
        return has_exact_value(curve, p, q)
    return engine in CURVES[curve].engines


def _formula(engine: Engine, curve: str, budget: Budget) -> Estimate:
    if engine is Engine.EXACT:
        return Estimate(exact_error(curve, budget), 0.0, 0)
    return Estimate(asymptotic_error(curve, budget), None, 0)


def squares(sizes: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """The shapes K×K."""
    return tuple((size, size) for size in sizes)
