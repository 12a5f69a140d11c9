"""Fair timing of rival functions, and a record of the machine.

Rivals are timed in rounds. Strict alternation would not be fair: torch and scipy have separate
thread pools, and the spinning threads of the one that has just run slow down the other. Timing one
rival after the other would not be fair either: the machine's clock and its other load drift during
a benchmark. So each round gives each rival a warm-up call and then a short block of calls, in an
order that changes from round to round, and the result is the median over rounds.

If other processes are busy, threads share cores, and a rival is delayed by a time slice each time
that its threads wait for one another, more so the more threads it has. So a round during which
other processes were busy is repeated. Only this load decides which rounds count, never the times.

psutil measures the load and rich prints tables; without them the other functions still work.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import os
import platform
import random
import statistics
import subprocess
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

import loca_theory

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from rich.console import Console

Name = TypeVar("Name", bound="Hashable")

_ROOT = Path(__file__).resolve().parents[1]

QUIET = 0.1
"""Largest load by other processes, in processors, at which a round counts as undisturbed."""

ATTEMPTS = 4
"""At most this multiple of the requested rounds is run to find undisturbed ones."""


@dataclass(frozen=True)
class Rival:
    """One of the functions to compare.

    Attributes:
        call: Does the work once.
        prepare: Runs untimed before each block, for example to set the number of threads.
    """

    call: Callable[[], object]
    prepare: Callable[[], object] | None = None


@dataclass(frozen=True)
class Timing:
    """Timing of one rival.

    Attributes:
        seconds: Seconds per call, one entry per round.
        other_load: Load by other processes in the worst of these rounds, in processors; None
            without psutil.
        enqueueing: Part of these seconds until the call returned. The rest is waiting for the
            device; if there is no rest, the host limits the speed.
    """

    seconds: tuple[float, ...]
    other_load: float | None
    enqueueing: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median over rounds."""
        return statistics.median(self.seconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Lower and upper quartile over rounds."""
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return low, high

    def ratio_to(self, other: Timing) -> float:
        """Median over rounds of the ratio to another time; drift between rounds cancels."""
        return statistics.median(a / b for a, b in zip(self.seconds, other.seconds, strict=True))

    def as_record(self) -> dict[str, float | None]:
        """The timing as an entry of the result file."""
        low, high = self.quartiles
        return {
            "median_s": self.median,
            "lower_quartile_s": low,
            "upper_quartile_s": high,
            "other_load": self.other_load,
            "median_enqueueing_s": statistics.median(self.enqueueing),
        }


def interleaved(
    rivals: Mapping[Name, Rival],
    *,
    rounds: int = 11,
    block_seconds: float = 0.05,
    device: str = "cpu",
    attempts: int = ATTEMPTS,
    seconds: float = math.inf,
) -> dict[Name, Timing]:
    """Time rivals in rounds; see the module docstring.

    Args:
        rivals: The functions to compare, by name.
        rounds: Number of rounds that count, at least 2.
        block_seconds: Each block has as many calls as fit into this time, at least one.
        device: Device of the work; on CUDA each block waits for the device to finish.
        attempts: At most this multiple of ``rounds`` is run to find undisturbed ones.
        seconds: No round starts later than this, but at least two are run.
    """

    def finish() -> None:
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)

    def block(rival: Rival, calls: int) -> tuple[float, float]:
        if rival.prepare is not None:
            rival.prepare()
        rival.call()
        finish()
        start = time.perf_counter()
        for _ in range(calls):
            rival.call()
        returned = time.perf_counter()
        finish()
        return (time.perf_counter() - start) / calls, (returned - start) / calls

    end = time.perf_counter() + seconds
    calls = {
        name: max(1, math.floor(block_seconds / block(rival, 1)[0]))
        for name, rival in rivals.items()
    }
    order = list(rivals)
    shuffle = random.Random(0).shuffle
    measured: list[tuple[float, dict[Name, tuple[float, float]]]] = []
    now = None
    for _ in range(attempts * rounds):
        shuffle(order)
        start, busy = time.perf_counter(), _busy_elsewhere()
        times = {name: block(rivals[name], calls[name]) for name in order}
        now = _busy_elsewhere()
        load = 0.0 if now is None or busy is None else now - busy
        measured.append((max(0.0, load / (time.perf_counter() - start)), times))
        if sum(load <= QUIET for load, _ in measured) == rounds:
            break
        if len(measured) >= 2 and time.perf_counter() > end:
            break
    quietest = sorted(measured, key=lambda entry: entry[0])[:rounds]
    worst = quietest[-1][0] if now is not None else None
    found: dict[Name, Timing] = {}
    for name in rivals:
        whole, enqueueing = zip(*(times[name] for _, times in quietest), strict=True)
        found[name] = Timing(whole, worst, enqueueing)
    return found


def _busy_elsewhere() -> float | None:
    """Processor seconds since a fixed time, without those of this process and its children.

    None without psutil.
    """
    try:
        import psutil
    except ImportError:
        return None
    system, process = psutil.cpu_times(), psutil.Process()
    own = process.cpu_times()
    ours = own.user + own.system
    # Add children that have ended, then those that are still running.
    ours += getattr(own, "children_user", 0.0) + getattr(own, "children_system", 0.0)
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = child.cpu_times()
            ours += times.user + times.system
    fields = ("user", "nice", "system", "irq", "softirq", "steal")
    return sum(getattr(system, field, 0.0) for field in fields) - ours


def environment(packages: Sequence[str]) -> dict[str, Any]:
    """Date, processor, threads, load, and versions of this package and the named ones.

    Values that cannot be determined are None.
    """
    try:
        import psutil
    except ImportError:
        psutil = None
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _commit(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_model(),
        "cpu_cores": {
            "logical": os.cpu_count(),
            "physical": psutil and psutil.cpu_count(logical=False),
        },
        "load_average_1min": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "memory_gib": psutil and round(psutil.virtual_memory().total / 2**30, 1),
        "torch_threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "packages": {"loca-theory": loca_theory.__version__}
        | {name: _version(name) for name in packages},
    }


def _commit() -> str | None:
    """The commit of the checkout, with ``-dirty`` if it has changes; None without git."""
    command = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _version(name: str) -> str | None:
    """The version of a distribution; None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def print_rows(console: Console, title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print records as a table with one column per key."""
    from rich.table import Table

    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        cells = (row.get(column, "") for column in columns)
        table.add_row(*(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in cells))
    console.print(table)
