"""Fair timing of rival functions, and a record of the machine it was done on.

Rivals are timed in rounds. Calling them in strict alternation would not be fair: torch and scipy
keep thread pools of their own, and the one that has just run leaves its threads spinning in the
way of the other. Timing one after the other would not be fair either: the machine's clock and its
other load drift over a benchmark. So every round gives each rival a warm-up call and then a short
block of calls to itself, in an order that changes from round to round, and the result is the
median over rounds.

Two busy threads on one core slow a rival down by the length of a time slice each time they wait
for one another, the more the more threads it uses. So a round in which other processes kept the
processors busy is repeated; which rounds count is decided by that load alone, never by the times.

psutil tells that load, and rich prints; what asks for neither runs without them.
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
"""A round counts as undisturbed up to this load by other processes, in processors."""

ATTEMPTS = 4
"""Up to this many times the rounds asked for are made in search of undisturbed ones."""


@dataclass(frozen=True)
class Rival:
    """One of the functions compared.

    Attributes:
        call: Does the work once.
        prepare: Runs untimed before each block, to set a number of threads, say.
    """

    call: Callable[[], object]
    prepare: Callable[[], object] | None = None


@dataclass(frozen=True)
class Timing:
    """Timing of one rival.

    Attributes:
        seconds: Seconds a call, one entry a round.
        other_load: Processors that other processes kept busy, in the worst of these rounds; None
            without psutil.
        enqueueing: Of these seconds, those until the call returned. The rest went by waiting for
            the device: where there is no such rest, the processor is what limits the speed.
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
        """Median over rounds of this time over the other's: drift between rounds cancels."""
        return statistics.median(a / b for a, b in zip(self.seconds, other.seconds, strict=True))

    def as_record(self) -> dict[str, float | None]:
        """For the result file."""
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
    """Time rivals in rounds; see the module's text.

    Args:
        rivals: What to compare, by name.
        rounds: Number of rounds that count, at least 2.
        block_seconds: Each block makes as many calls as fit into this time, at least one.
        device: Where the work happens; on CUDA each block waits for the device to finish.
        attempts: Up to this many times the rounds asked for are made in search of undisturbed
            ones.
        seconds: No round begins later than this, but two are made at least.
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
    kept: list[tuple[float, dict[Name, tuple[float, float]]]] = []
    now = None
    for _ in range(attempts * rounds):
        shuffle(order)
        start, busy = time.perf_counter(), _busy_elsewhere()
        times = {name: block(rivals[name], calls[name]) for name in order}
        now = _busy_elsewhere()
        load = 0.0 if now is None or busy is None else now - busy
        kept.append((max(0.0, load / (time.perf_counter() - start)), times))
        if sum(load <= QUIET for load, _ in kept) == rounds:
            break
        if len(kept) >= 2 and time.perf_counter() > end:
            break
    kept = sorted(kept, key=lambda entry: entry[0])[:rounds]
    worst = kept[-1][0] if now is not None else None
    found: dict[Name, Timing] = {}
    for name in rivals:
        whole, enqueueing = zip(*(times[name] for _, times in kept), strict=True)
        found[name] = Timing(whole, worst, enqueueing)
    return found


def _busy_elsewhere() -> float | None:
    """Processor seconds, since some fixed time, of everything but this process and its children.

    None without psutil.
    """
    try:
        import psutil
    except ImportError:
        return None
    system, process = psutil.cpu_times(), psutil.Process()
    own = process.cpu_times()
    ours = own.user + own.system
    # Children that have ended, and those that live on.
    ours += getattr(own, "children_user", 0.0) + getattr(own, "children_system", 0.0)
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = child.cpu_times()
            ours += times.user + times.system
    fields = ("user", "nice", "system", "irq", "softirq", "steal")
    return sum(getattr(system, field, 0.0) for field in fields) - ours


def environment(packages: Sequence[str]) -> dict[str, Any]:
    """Date, processor, threads, load, and the versions of this package and the named ones.

    None stands for what cannot be told here.
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
    """Of the checkout, with ``-dirty`` where it was changed since; None where git tells none."""
    command = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _version(name: str) -> str | None:
    """Of a distribution; None where it is not installed."""
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
    """Print records as a table, one column a key."""
    from rich.table import Table

    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        cells = (row.get(column, "") for column in columns)
        table.add_row(*(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in cells))
    console.print(table)
