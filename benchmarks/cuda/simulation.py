"""The dense sampler of ``simulate`` on the device: the numbers of the CPU, and how much faster."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from benchmarks.cuda.comparison import verdict
from benchmarks.cuda.session import Row, Session
from loca_theory.expressivity.curves import CURVES, DEFAULT_CURVES, Engine
from loca_theory.expressivity.monte_carlo import Sampler
from loca_theory.expressivity.simulation import Simulation, squares

# (K, ranks, methods, draws); of the large ones only those whose work is dense linear algebra.
_SIMULATED = tuple(name for name in DEFAULT_CURVES if Engine.MONTE_CARLO in CURVES[name].engines)
LOADS = (
    (300, (8, 32), _SIMULATED, 64),
    (1024, (8,), ("R", "F2", "D"), 3),
    (2048, (8,), ("R", "F2", "D"), 2),
)
_TINY = ((16, (2,), _SIMULATED, 2),)
# Both sample the same W in float64 from the same generators, and an error is a ratio of sums of
# squares: what differs is rounding, of about 1e-16 times the number of operations in a row.
_ROUNDING = 1e-9


def check(session: Session) -> None:
    """Each load on both."""
    for size, ranks, names, draws in _TINY if session.tiny else LOADS:

        def work(
            row: Row,
            size: int = size,
            ranks: tuple[int, ...] = ranks,
            names: Any = names,
            draws: int = draws,
        ) -> None:
            simulation = Simulation(
                shapes=squares([size]),
                ranks=ranks,
                curves=names,
                engines=(Engine.MONTE_CARLO,),
                draws=draws,
                sampler=Sampler.DENSE,
                jobs=1,
            )
            found = {}
            for device, name in ((session.device, "s"), ("cpu", "cpu_s")):
                there = simulation.on_device(device)
                replace(there, draws=1).run()  # plans, workspaces and tables of indices
                start = time.perf_counter()
                found[name] = there.run()
                row[name] = time.perf_counter() - start
            row |= _difference(found["s"], found["cpu_s"])
            row["speed_over_cpu"] = row["cpu_s"] / row["s"]

        key = f"K = {size}, {draws} draws, {len(names)} methods"
        session.attempt({"key": key}, work, seconds=10.0 if session.is_cuda else 0.0)


def _difference(here: list[dict[str, Any]], cpu: list[dict[str, Any]]) -> Row:
    def apart(pair: tuple[dict[str, Any], dict[str, Any]]) -> float:
        return abs(pair[0]["error"] - pair[1]["error"])

    ours, theirs = max(zip(here, cpu, strict=True), key=apart)
    largest, spread = apart((ours, theirs)), theirs["standard_error"]
    target = f"difference from the CPU at most {_ROUNDING:g}"
    return {
        "largest_difference": largest,
        "of_method": theirs["curve"],
        "in_standard_errors": largest / spread if spread else None,
        "verdicts": [verdict(target, largest, reached=largest <= _ROUNDING)],
    }
