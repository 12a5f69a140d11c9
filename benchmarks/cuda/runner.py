"""Run one check after the other, each in processes of its own, within a time limit.

An exception in a row is its result. If a row crashes, hangs or loses the device, its process ends
and another process continues with the next row.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parents[2]
POISONED = 3
"""Exit code of a process that lost the device and has reported this in a row."""

_START = 150.0
"""Seconds that a process may take until its first row: imports, driver, CUDA context."""

# Seconds for a process to end after its last line, and after a signal.
_AFTERWARDS, _LAST_WORDS = 20.0, 3.0
# Seconds for which the lines of a process are still read after its time limit.
_GRACE = 2.0

Row = dict[str, Any]
Command = Callable[[float], Sequence[str]]


@dataclass(frozen=True)
class Check:
    """A check of the device.

    Attributes:
        name: Name for ``--check``, of its result file and of its module.
        title: Heading of its table.
        seconds: Time it takes on a fast card, which the checks before it leave for it.
        needs: Modules without which it cannot run.
    """

    name: str
    title: str
    seconds: float
    needs: tuple[str, ...] = ()


# The most important checks come first: if time is short, the last are not run.
CHECKS = (
    Check("suite", "Tests marked `cuda`", 90, ("pytest",)),
    Check("transforms", "Cosine transforms", 70),
    Check("layers", "One layer, forward and backward", 140),
    Check("models", "Training steps of models", 130, ("transformers",)),
    Check("simulation", "Dense simulation, device and CPU", 50),
    Check("analysis", "`analyze`, device and CPU", 30, ("safetensors",)),
)
DEVICE = Check("device", "The machine", 30)


@dataclass
class Outcome:
    """The outcome of a check.

    Attributes:
        check: The check.
        rows: Its rows by key, in the order of their arrival.
        notes: Notes below its table.
        seconds: Time it took.
        out_of_time: Whether it was stopped at its time limit.
    """

    check: Check
    rows: dict[str, Row] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    out_of_time: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether it was not stopped early and yet has no rows but errors."""
        rows = self.rows.values()
        return not self.out_of_time and all("error" in r or r.get("hidden") for r in rows)

    def hear(self, line: dict[str, Any]) -> None:
        """Process a line from the process of the check."""
        if "row" in line:
            row = line["row"]
            self.rows[row["key"]] = {**self.rows.get(row["key"], {}), **row}
        if "note" in line and line["note"] not in self.notes:
            self.notes.append(line["note"])

    @property
    def done(self) -> list[str]:
        """Keys of the rows that are final."""
        return [key for key, row in self.rows.items() if row.get("final")]

    def as_record(self) -> dict[str, Any]:
        """The outcome as an entry of the result file."""
        return {
            "check": self.check.name,
            "seconds": self.seconds,
            "notes": self.notes,
            "rows": list(self.rows.values()),
        }


def allowance(check: Check, left: float, after: Sequence[Check]) -> float:
    """Seconds for a check: those not needed by later checks, but at least its own time."""
    return max(left - sum(one.seconds for one in after), min(check.seconds, left))


def conduct(
    check: Check,
    command: Command,
    seconds: float,
    log: Path,
    changed: Callable[[Outcome], None] = lambda _: None,
) -> Outcome:
    """Run a check in as many processes as needed.

    Args:
        check: The check.
        command: Returns the command line for the remaining seconds. The command reads a JSON list
            of finished rows from stdin and writes lines as in :mod:`benchmarks.cuda.session`.
        seconds: Time limit at which the check is stopped.
        log: File for other output of the processes.
        changed: Called after each line that changes the outcome.

    Returns:
        The outcome, including unfinished rows.
    """
    outcome, start = Outcome(check), time.monotonic()
    deadline = start + seconds
    while True:
        before = len(outcome.done)
        process = _Process(command(deadline - time.monotonic()), outcome.done, log)
        try:
            for line in process.lines(deadline):
                outcome.hear(line)
                outcome.seconds = time.monotonic() - start
                if "starts" not in line:
                    changed(outcome)
        except BaseException:
            process.stop()
            raise
        ending = process.end()
        outcome.seconds = time.monotonic() - start
        if ending is None:
            break
        outcome.out_of_time = out_of_time = time.monotonic() >= deadline
        if out_of_time:
            outcome.notes.append(f"stopped after {outcome.seconds:.0f} s: time limit reached")
        if process.under_way is not None:
            key = process.under_way
            why = "time limit reached" if out_of_time else ending
            outcome.hear({"row": {"key": key, "error": why, "final": not out_of_time}})
        elif process.code != POISONED and not out_of_time:
            outcome.notes.append(f"{ending}; see {log.name}")
        changed(outcome)
        if out_of_time or len(outcome.done) == before:
            break
    return outcome


class _Process:
    """A process that writes lines, and is stopped if it writes none for too long."""

    def __init__(self, command: Sequence[str], done: Sequence[str], log: Path) -> None:
        self.under_way: str | None = None
        self.code: int | None = None
        self._patience, self._why = _START, ""
        self._log: TextIO = log.open("a", encoding="utf-8")
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
            cwd=ROOT,
            env=environment,
            start_new_session=True,
        )
        self._said: queue.Queue[str | None] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        given: Any = self._process.stdin
        with contextlib.suppress(BrokenPipeError), given:
            given.write(json.dumps(list(done)))

    def _listen(self) -> None:
        said: Any = self._process.stdout
        with said:
            for text in said:
                self._said.put(text)
        self._said.put(None)

    def lines(self, deadline: float) -> Iterator[dict[str, Any]]:
        """Yield its lines until it ends, hangs or reaches the time limit."""
        while True:
            left = deadline - time.monotonic()
            if left < -_GRACE:  # it writes so fast that the queue is never empty
                self._why = "time limit reached"
                return
            try:
                text = self._said.get(timeout=max(0.0, min(self._patience, left)))
            except queue.Empty:
                self._why = f"no output for {self._patience:.0f} s: stopped"
                return
            if text is None:
                return
            try:
                line = json.loads(text)
            except ValueError:
                self._log.write(text)
                continue
            if not isinstance(line, dict):
                self._log.write(text)
            elif "starts" in line:
                self.under_way, self._patience = line["starts"], line["limit"]
            elif line.get("row", {}).get("key") == self.under_way:
                self.under_way = None
            if isinstance(line, dict):
                yield line

    def end(self) -> str | None:
        """Wait for its end, and return how it failed; None if it succeeded."""
        if self._why:
            self.stop()
            return self._why
        try:
            self.code = self._process.wait(timeout=_AFTERWARDS)
        except subprocess.TimeoutExpired:
            self._why = "it did not end after its last line"
        self.stop()
        if self._why or self.code == 0:
            return self._why or None
        if self.code is not None and self.code < 0:
            return f"the process died of {signal.Signals(-self.code).name}"
        return f"the process ended with exit code {self.code}"

    def stop(self) -> None:
        """Kill it at once, with all its child processes."""
        # The first signal makes Python write a traceback to the log.
        for number in (signal.SIGABRT, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=_LAST_WORDS)
        self._listener.join(timeout=_LAST_WORDS)
        self._log.close()


def command_of(check: Check, out: Path, *, rehearse: bool) -> Command:
    """Make the function that returns the command line of a check."""

    def command(seconds: float) -> list[str]:
        given = [sys.executable, "-m", "benchmarks.cuda", "--check", check.name, "--out", str(out)]
        given += ["--minutes", f"{max(seconds, 0.0) / 60:.6f}"]
        return given + ["--rehearse"] * rehearse

    return command
