"""The process of a check, which writes each row as soon as possible, as lines of JSON.

``{"starts": key, "limit": s}``: a row is started, and will be given up after ``s`` seconds;
``{"row": {...}}``: the contents of a row so far, complete if ``final``; ``{"note": "..."}``: a
note below the table.
"""

from __future__ import annotations

import contextlib
import gc
import json
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import torch

from loca_theory.sweeps.files import write_atomically
from loca_theory.transforms.devices import is_out_of_memory

Row = dict[str, Any]
PATIENCE = 90.0
"""Seconds without output after which a row is given up."""


class PoisonedError(Exception):
    """The CUDA context of this process is lost; another process can continue."""


@dataclass
class Session:
    """The state of the process of a check.

    Attributes:
        out: The folder of results.
        lines: The stream that lines are written to.
        deadline: Time at which to stop, by ``time.monotonic``.
        device: ``cuda``, or ``cpu`` in a rehearsal.
        tiny: Whether it is a rehearsal with tiny sizes.
        done: Keys of rows that an earlier process has finished, or that crashed it.
    """

    out: Path
    lines: TextIO
    deadline: float
    device: str = "cuda"
    tiny: bool = False
    done: set[str] = field(default_factory=set)

    @property
    def is_cuda(self) -> bool:
        """Whether the device is a CUDA device."""
        return self.device.startswith("cuda")

    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    def say(self, **line: Any) -> None:
        """Write a line of JSON."""
        self.lines.write(json.dumps(line, default=str) + "\n")
        self.lines.flush()

    def note(self, text: str) -> None:
        """Write a note, which is shown below the table of this check."""
        self.say(note=text)

    def starts(self, key: str, limit: float = PATIENCE) -> None:
        """Report that a row is started."""
        self.say(starts=key, limit=limit)

    def so_far(self, row: Row) -> None:
        """Report the contents of a row so far, in case the time limit interrupts its work."""
        self.say(row=row)
        self.starts(row["key"])

    def finish(self, row: Row) -> None:
        """Report a complete row."""
        row["final"] = True
        self.done.add(row["key"])
        self.say(row=row)

    def attempt(
        self, row: Row, work: Callable[[Row], object], *, seconds: float = 0.0, final: bool = True
    ) -> bool:
        """Do the work of a row and report the row; an exception becomes part of it.

        Args:
            row: The row with its ``key``; the work adds to it.
            work: Called with the row.
            seconds: Time the work may take; if less is left, it is not done.
            final: Whether the row is complete afterwards.

        Returns:
            Whether the work was done without an error.

        Raises:
            PoisonedError: the device does not work any more.
        """
        if row["key"] in self.done:
            return False
        if self.left() < seconds:
            self.say(row={**row, "left_out": f"no time: {seconds:.0f} s, {self.left():.0f} left"})
            return False
        self.starts(row["key"])
        start = time.perf_counter()
        try:
            work(row)
            self.synchronize()  # errors on the device belong to this row
        except PoisonedError:
            raise
        except Exception as error:
            row["error"] = _described(error)
            failed = True
        else:
            failed = False
        row.setdefault("took_s", time.perf_counter() - start)
        if failed:
            self.finish(row)
            self._recover()
            return False
        if final:
            self.finish(row)
        else:
            self.say(row=row)
        return True

    def _recover(self) -> None:
        """Free the memory of a failed row, and check that the device still works."""
        gc.collect()
        if not self.is_cuda:
            return
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except Exception as error:
            raise PoisonedError(_described(error)) from None

    # --- the device ---

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.is_cuda:
            torch.cuda.synchronize()

    def allocated(self) -> int:
        """Bytes that tensors hold on the device; 0 without a CUDA device."""
        return torch.cuda.memory_allocated() if self.is_cuda else 0

    def peak_of(self, work: Callable[[], object]) -> int | None:
        """Do some work, and return the peak bytes of tensors; None without a CUDA device."""
        if not self.is_cuda:
            work()
            return None
        self.synchronize()
        torch.cuda.reset_peak_memory_stats()
        work()
        self.synchronize()
        return torch.cuda.max_memory_allocated()

    def synchronisations_of(self, work: Callable[[], object]) -> int | None:
        """Do some work, and return how often it waits for the device, as counted by torch."""
        if not self.is_cuda:
            work()
            return None
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            before = torch.cuda.get_sync_debug_mode()
            torch.cuda.set_sync_debug_mode("warn")
            try:
                work()
            finally:
                torch.cuda.set_sync_debug_mode(before)
        return sum("called a synchronizing" in str(one.message) for one in heard)

    def trace(self, name: str, build: Callable[[], Callable[[], object]]) -> None:
        """Profile three steps: write a file for chrome://tracing, and report the slowest kernels.

        Args:
            name: Part of the file name.
            build: Returns the step.
        """
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * self.is_cuda

        def work(row: Row) -> None:
            with quietly():
                step = build()
                step()
            self.synchronize()
            with quietly(), profile(activities=activities) as profiler:
                for _ in range(3):
                    step()
                self.synchronize()
            path = self.out / f"trace-{name}.json"
            write_atomically(path, lambda partial: profiler.export_chrome_trace(str(partial)))
            row["file"] = path.name
            row["kernels"] = _slowest(profiler.key_averages(), "CUDA" if self.is_cuda else "CPU")

        self.attempt({"key": f"trace of {name}"}, work, seconds=5.0)


def _slowest(events: Iterable[Any], device: str) -> list[Row]:
    """The slowest events on the device, with counts and times per recorded step.

    Operators are excluded, because their time includes that of the kernels they launch.
    """
    time_of = "self_device_time_total" if device == "CUDA" else "self_cpu_time_total"
    there = [event for event in events if event.device_type.name == device]
    there.sort(key=lambda event: getattr(event, time_of), reverse=True)
    return [
        {
            "name": event.key[:120],
            "calls_a_step": event.count / 3,
            "us_a_step": getattr(event, time_of) / 3,
        }
        for event in there[:12]
    ]


def _described(error: BaseException) -> str:
    """Describe an error in one line; if memory was missing, with the amount."""
    text = str(error)
    if is_out_of_memory(error):
        wanted = re.search(r"(?:allocate|allocating) ([\d.,]+ ?(?:[KMGT]i?B|bytes))", text)
        total = re.search(r"total capacity of ([\d.]+ ?[KMGT]iB)", text)
        line = "out of memory"
        line += f": it needed {wanted[1]} more" if wanted else ""
        return line + (f" on a card of {total[1]}" if total else "")
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first}"[:300]


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Suppress warnings of the measured libraries."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
