"""The side of a check: a process that says each row as soon as it has it, in lines of JSON.

``{"starts": key, "limit": s}`` a row is under way, and is given up after so many seconds;
``{"row": {...}}`` what is known of it, ``final`` or to be completed; ``{"note": "..."}``.
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

from loca_theory.sweeps import write_atomically
from loca_theory.transforms.devices import is_out_of_memory

Row = dict[str, Any]
PATIENCE = 90.0
"""Seconds after which a row that says nothing is given up."""


class PoisonedError(Exception):
    """The CUDA context of this process is lost; another process can go on."""


@dataclass
class Session:
    """What a check works with.

    Attributes:
        out: The folder of results.
        lines: Where rows are said.
        deadline: When to stop, by ``time.monotonic``.
        device: ``cuda``, or ``cpu`` in a rehearsal.
        tiny: Whether it is a rehearsal, at sizes that take no time.
        done: Keys of rows that an earlier process has finished or died of.
    """

    out: Path
    lines: TextIO
    deadline: float
    device: str = "cuda"
    tiny: bool = False
    done: set[str] = field(default_factory=set)

    @property
    def is_cuda(self) -> bool:
        """Whether there is a device to ask about."""
        return self.device.startswith("cuda")

    def left(self) -> float:
        """Seconds that are left."""
        return self.deadline - time.monotonic()

    def say(self, **line: Any) -> None:
        """Write a line."""
        self.lines.write(json.dumps(line, default=str) + "\n")
        self.lines.flush()

    def note(self, text: str) -> None:
        """What the table shall say beneath this check."""
        self.say(note=text)

    def starts(self, key: str, limit: float = PATIENCE) -> None:
        """Say what is under way."""
        self.say(starts=key, limit=limit)

    def so_far(self, row: Row) -> None:
        """Say what is known of a row whose work goes on: it is kept should the time end."""
        self.say(row=row)
        self.starts(row["key"])

    def finish(self, row: Row) -> None:
        """Say a row that is complete."""
        row["final"] = True
        self.done.add(row["key"])
        self.say(row=row)

    def attempt(
        self, row: Row, work: Callable[[Row], object], *, seconds: float = 0.0, final: bool = True
    ) -> bool:
        """Do the work of a row, whatever comes of it, and say the row.

        Args:
            row: With its ``key``; the work adds to it. An exception is its result.
            work: Gets the row.
            seconds: What it may take; it is left out where less is left.
            final: Whether the row is complete after that.

        Returns:
            Whether the work was done.

        Raises:
            PoisonedError: nothing can be done on the device any more.
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
            self.synchronize()  # what went wrong on the device went wrong here
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
        """Free what the failed row held, and see whether the device still answers."""
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
        """Bytes that tensors hold on the device; 0 where there is none."""
        return torch.cuda.memory_allocated() if self.is_cuda else 0

    def peak_of(self, work: Callable[[], object]) -> int | None:
        """Most bytes that tensors held while it worked; None where there is no device."""
        if not self.is_cuda:
            work()
            return None
        self.synchronize()
        torch.cuda.reset_peak_memory_stats()
        work()
        self.synchronize()
        return torch.cuda.max_memory_allocated()

    def synchronisations_of(self, work: Callable[[], object]) -> int | None:
        """How often it waits for the device, as far as torch can tell."""
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
        """Record three steps: a file for chrome://tracing, and the kernels that took longest.

        Args:
            name: What the file is called by.
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
    """What took longest of the events on the device, as steps of the three recorded.

    The time of a kernel counts for the operator that launched it, too: that one is left out.
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
    """One line; for memory what was needed."""
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
    """Without the warnings of the libraries that are measured."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
