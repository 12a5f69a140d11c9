"""Fair timing of rival functions.

Rivals are timed in rounds. Strict alternation would not be fair: torch and scipy have separate
thread pools, and the spinning threads of the one that has just run slow down the other. Timing one
rival after the other would not be fair either: the machine's clock and its other load drift during
a benchmark. So each round gives each rival a warm-up call and then a short block of calls, in an
order that changes from round to round, and the result is the median over rounds.

If other processes are busy, threads share cores, and a rival is delayed by a time slice each time
that its threads wait for one another, more so the more threads it has. So a round during which
other processes were busy is repeated. Only this load decides which rounds count, never the times.

``compare`` measures memory and synchronisations, too: on CUDA it clears the cache of ``dct_matrix``
and resets the counters of peak memory.
"""

from __future__ import annotations

import contextlib
import gc
import math
import random
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import psutil
import torch

from benchmarks._bounds import bounds
from benchmarks._record import Row, error_line
from loca_theory.transforms.matrices import dct_matrix

Step = Callable[[], object]
Build = Callable[[], tuple[Step, Mapping[str, Any]]]
"""Builds a rival: its step, and facts for its row."""

QUIET = 0.1
"""Largest load by other processes, in processors, at which a round counts as undisturbed."""

ATTEMPTS = 4
"""At most this multiple of the requested rounds is run to find undisturbed ones."""


@dataclass(frozen=True)
class Timing:
    """Timing of one rival."""

    seconds: tuple[float, ...]  # seconds per call, one entry per round
    other_load: float  # load by other processes in the worst of these rounds, in processors
    # Part of these seconds until the call returned. The rest is waiting for the device; if there is
    # no rest, the host limits the speed.
    enqueueing: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median over rounds."""
        return statistics.median(self.seconds)

    def ratio_to(self, other: Timing) -> float:
        """Median over rounds of the ratio to another time; drift between rounds cancels."""
        return statistics.median(a / b for a, b in zip(self.seconds, other.seconds, strict=True))

    def as_record(self) -> Row:
        """The timing as an entry of the result file."""
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return {
            "median_s": self.median,
            "lower_quartile_s": low,
            "upper_quartile_s": high,
            "other_load": self.other_load,
            "median_enqueueing_s": statistics.median(self.enqueueing),
        }


def interleaved(
    rivals: Mapping[str, Step],
    *,
    rounds: int = 11,
    block_seconds: float = 0.05,
    device: str = "cpu",
    attempts: int = ATTEMPTS,
) -> dict[str, Timing]:
    """Time rivals, each of which does its work once when it is called, in rounds."""

    def block(rival: Step, calls: int) -> tuple[float, float]:
        rival()
        _finish(device)
        start = time.perf_counter()
        for _ in range(calls):
            rival()
        returned = time.perf_counter()
        _finish(device)
        return (time.perf_counter() - start) / calls, (returned - start) / calls

    calls = {
        name: max(1, math.floor(block_seconds / block(rival, 1)[0]))
        for name, rival in rivals.items()
    }
    order = list(rivals)
    shuffle = random.Random(0).shuffle
    measured: list[tuple[float, dict[str, tuple[float, float]]]] = []
    for _ in range(attempts * rounds):
        shuffle(order)
        start, busy = time.perf_counter(), _other_cpu_seconds()
        times = {name: block(rivals[name], calls[name]) for name in order}
        load = (_other_cpu_seconds() - busy) / (time.perf_counter() - start)
        measured.append((max(0.0, load), times))
        if sum(load <= QUIET for load, _ in measured) == rounds:
            break
    quietest = sorted(measured, key=lambda entry: entry[0])[:rounds]
    timings: dict[str, Timing] = {}
    for name in rivals:
        total, enqueueing = zip(*(times[name] for _, times in quietest), strict=True)
        timings[name] = Timing(total, quietest[-1][0], enqueueing)
    return timings


def timed(
    rivals: Mapping[str, Step], reference: str = "", ratio: str = "ratio", **options: Any
) -> list[Row]:
    """Rows of rivals that are timed in rounds, with the ratios of their times to a reference's."""
    times = interleaved(rivals, **options)
    return [
        {"what": name, **timing.as_record()}
        | ({ratio: timing.ratio_to(times[reference])} if reference else {})
        for name, timing in times.items()
    ]


def _finish(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def _other_cpu_seconds() -> float:
    """Processor seconds since a fixed time, without those of this process and its children."""
    system, process = psutil.cpu_times(), psutil.Process()
    process_times = process.cpu_times()
    ours = process_times.user + process_times.system
    # Add children that have ended, then those that are still running.
    ours += getattr(process_times, "children_user", 0.0) + getattr(
        process_times, "children_system", 0.0
    )
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = child.cpu_times()
            ours += times.user + times.system
    fields = ("user", "nice", "system", "irq", "softirq", "steal")
    return sum(getattr(system, field, 0.0) for field in fields) - ours


def compare(
    builds: Mapping[str, Build], *, device: str, rounds: int, tiny: bool = False
) -> tuple[dict[str, Row], dict[str, Timing]]:
    """Build rivals and time those that work; an exception becomes the ``error`` of the rival's row.

    A row has ``ms`` and ``host_ms``, the part until the calls have returned, and what a step costs
    at least (:mod:`benchmarks._bounds`). On CUDA it also has ``peak_mib``, the peak memory that the
    rival alone would need, and ``waits``, how often a step waits for the device, as far as torch
    can tell.
    """
    _make_workspaces(device)
    rows: dict[str, Row] = {}
    steps: dict[str, Step] = {}
    for name, build in builds.items():
        rows[name] = {"rival": name}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                steps[name] = _built(build, rows[name], device)
        except Exception as error:
            rows[name]["error"] = error_line(error)
            gc.collect()
    if tiny:
        times = interleaved(steps, rounds=2, block_seconds=0, attempts=1, device=device)
    else:
        # Nothing else should run beside a measurement on a card.
        attempts = ATTEMPTS if device == "cpu" else 1
        times = interleaved(steps, rounds=rounds, attempts=attempts, device=device)
    for name, timing in times.items():
        rows[name] |= {
            "ms": 1e3 * timing.median,
            "host_ms": 1e3 * statistics.median(timing.enqueueing),
            "timing": timing.as_record(),
        }
    return rows, times


def _built(build: Build, row: Row, device: str) -> Step:
    """Build a rival, run it, and add to its row what can be measured on the device."""
    if not device.startswith("cuda"):
        step, facts = build()
        step()
        row |= {**facts, **bounds(step, device)}
        return step
    # All rivals share these matrices; here they count for every rival that needs them.
    dct_matrix.cache_clear()  # pyright: ignore[reportFunctionMemberAccess]
    before = torch.cuda.memory_allocated()
    step, facts = build()
    row |= facts
    torch.cuda.reset_peak_memory_stats()
    step()
    step()
    row["peak_mib"] = (torch.cuda.max_memory_allocated() - before) / 2**20
    _finish(device)
    row["waits"] = _waits(step)
    row |= bounds(step, device)
    return step


def _waits(step: Step) -> int:
    """How often a step waits for the device, as counted by torch."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("called a synchronizing" in str(warning.message) for warning in heard)


def _make_workspaces(device: str) -> None:
    """Let the libraries allocate their workspaces, so that they do not count for any rival.

    Backward passes run in a separate thread, which has its own workspaces.
    """
    for dtype in (torch.float32, torch.bfloat16):
        layer = torch.nn.Linear(64, 64, device=device, dtype=dtype)
        x = torch.ones(64, 64, device=device, dtype=dtype, requires_grad=True)
        layer(x).sum().backward()
