"""The dense sampler of ``simulate`` on the device and the CPU: differences, speed, memory.

``simulate`` gives each of its processes one thread, so the device is compared with one thread. The
peak of memory is reported in float64 matrices.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.cuda.comparison import verdict
from benchmarks.cuda.session import Row, Session
from loca_theory.expressivity.methods.method import Engine
from loca_theory.expressivity.methods.registry import DEFAULT_METHODS, find_methods
from loca_theory.expressivity.monte_carlo import Sampler
from loca_theory.expressivity.simulation import ErrorRow, Simulation, squares
from loca_theory.sweeps import Runner

# (K, ranks, methods, draws, seconds on the CPU); the large loads have only methods of dense linear
# algebra. If the seconds are None, the CPU would take minutes and is not measured.
_SIMULATED = tuple(method.name for method in DEFAULT_METHODS if method.can_approximate)
LOADS = (
    (300, (8, 32), _SIMULATED, 64, 5.0),
    (1024, (8,), ("R", "F2", "D"), 3, 5.0),
    (4096, (8,), ("R", "F2", "D", "DoRA"), 1, None),
    (2048, (8,), ("R", "F2", "D"), 2, 25.0),
)
_TINY = ((16, (2,), _SIMULATED, 2, 0.0), (18, (2,), ("R", "F2", "D", "DoRA"), 1, None))
# Both sample the same W in float64 from the same generators, and an error is a ratio of sums of
# squares, so they differ only by rounding: about 1e-16 times the number of successive operations.
_ROUNDING = 1e-9


def check(session: Session) -> None:
    """Measure each load on the device and, unless that takes minutes, on the CPU."""
    one = Runner(jobs=1)
    session.note("on the CPU `simulate` uses one thread, as in each of its processes")
    for size, ranks, names, draws, cpu_seconds in _TINY if session.tiny else LOADS:

        def work(
            row: Row,
            size: int = size,
            ranks: tuple[int, ...] = ranks,
            names: Any = names,
            draws: int = draws,
            cpu_seconds: float | None = cpu_seconds,
        ) -> None:
            simulation = Simulation(
                shapes=squares([size]),
                ranks=ranks,
                methods=find_methods(names),
                engines=(Engine.MONTE_CARLO,),
                draws=draws,
                sampler=Sampler.DENSE,
            )
            there = simulation.on_device(session.device)
            before, found = session.allocated(), []
            if cpu_seconds is not None:
                replace(there, draws=1).run(one)  # plans, workspaces and tables of indices
            start = time.perf_counter()
            peak = session.peak_of(lambda: found.extend(there.run(one).rows))
            row["s"] = time.perf_counter() - start
            if peak is not None:
                row["peak_mib"] = (peak - before) / 2**20
                row["peak_matrices"] = (peak - before) / (8 * size**2)
            if cpu_seconds is None:
                return
            session.so_far(row)
            if session.left() < cpu_seconds:
                row["left_out"] = f"the CPU, which takes up to {cpu_seconds:.0f} s"
                return
            start = time.perf_counter()
            expected = simulation.run(one).rows
            row["cpu_s"] = time.perf_counter() - start
            row |= _difference(found, expected)
            row["speed_over_thread"] = row["cpu_s"] / row["s"]

        key = f"K = {size}, {draws} draws, {len(names)} methods"
        key += " (the device alone)" if cpu_seconds is None else ""
        session.attempt({"key": key}, work, seconds=10.0 if session.is_cuda else 0.0)


def _difference(here: Sequence[ErrorRow], cpu: Sequence[ErrorRow]) -> Row:
    def apart(pair: tuple[ErrorRow, ErrorRow]) -> float:
        return abs(pair[0].error - pair[1].error)

    ours, theirs = max(zip(here, cpu, strict=True), key=apart)
    largest, spread = apart((ours, theirs)), theirs.standard_error
    target = f"difference from the CPU at most {_ROUNDING:g}"
    return {
        "largest_difference": largest,
        "of_method": theirs.method,
        "in_standard_errors": largest / spread if spread else None,
        "verdicts": [verdict(target, largest, reached=largest <= _ROUNDING)],
    }
