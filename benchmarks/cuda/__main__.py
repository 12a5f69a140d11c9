"""The command ``python -m benchmarks.cuda``; see the package docstring."""

from __future__ import annotations

import argparse
import faulthandler
import importlib.util
import json
import os
import resource
import signal
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

_MISSING = "nothing was measured: {} is missing, but the package needs it"
try:
    from benchmarks._records import write_json, write_text
    from benchmarks.cuda.report import missing, report
    from benchmarks.cuda.runner import (
        CHECKS,
        DEVICE,
        POISONED,
        Check,
        Outcome,
        allowance,
        command_of,
        conduct,
    )
    from loca_theory.errors import LocaTheoryError, ResourceError
except ModuleNotFoundError as error:
    sys.exit(_MISSING.format(error.name))
if importlib.util.find_spec("torch") is None:  # only the checks import it
    sys.exit(_MISSING.format("torch"))

# A check ends by itself this many seconds before it would be stopped.
_EARLIER = 3.0
# Seconds reserved for writing the last table.
_RESERVE = 4.0
_MOST_MINUTES = 1440
_TABLE, _DETAILS = "cuda.md", "details.zip"
# With fewer seconds left a check would spend them on starting.
_LEAST = 12.0


def main(arguments: list[str] | None = None) -> int:
    """Run all checks, or a single one in this process."""
    given = _parse(arguments)
    out = given.out.resolve()
    try:
        _make_folder(out)
        if given.check:
            return _run_check(given.check, out, 60 * given.minutes, rehearse=given.rehearse)
        return _run_all(out, 60 * given.minutes, rehearse=given.rehearse)
    except (OSError, LocaTheoryError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"interrupted; the results so far are in {out}", file=sys.stderr)
        return 130


def _parse(arguments: list[str] | None) -> Any:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cuda",
        description="Tests, speed and memory on an NVIDIA card, the most important first.",
        epilog="Example: python -m benchmarks.cuda --out results --minutes 9",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of tables, JSON and traces")
    parser.add_argument("--minutes", type=float, default=9.0, help="time limit (default: 9)")
    parser.add_argument(
        "--rehearse",
        action="store_true",
        help="run every check at tiny sizes on the CPU, to see that everything works",
    )
    names = [check.name for check in (DEVICE, *CHECKS)]
    parser.add_argument("--check", choices=names, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if not 0 <= given.minutes <= _MOST_MINUTES:
        parser.error(f"--minutes must be from 0 to {_MOST_MINUTES}, not {given.minutes:g}")
    return given


def _make_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        msg = f"--out must be a folder, and {out} is a file; name another"
        raise ResourceError(msg)
    out.mkdir(parents=True, exist_ok=True)


def _clear(out: Path) -> None:
    """Remove files of a run without results; results are never overwritten."""
    results = [_TABLE, _DETAILS, *(f"{check.name}.json" for check in CHECKS)]
    if any((out / name).exists() for name in results):
        msg = f"{out} holds the results of an earlier run; name another folder"
        raise ResourceError(msg)
    for old in _loose(out):
        old.unlink()


def _loose(out: Path) -> list[Path]:
    """The logs and traces in the folder."""
    logs = [out / f"{check.name}.log" for check in (DEVICE, *CHECKS)]
    return [path for path in logs if path.exists()] + sorted(out.glob("trace-*.json"))


def _pack(out: Path) -> None:
    """Move logs and traces into one archive."""
    found = _loose(out)
    if not found:
        return
    with zipfile.ZipFile(out / _DETAILS, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in found:
            if path.stat().st_size:
                archive.write(path, path.name)
    for path in found:
        path.unlink()


def _run_all(out: Path, seconds: float, *, rehearse: bool) -> int:
    end = time.monotonic() + seconds - _RESERVE
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, _interrupt)
    _clear(out)

    def run(check: Check, allowed: float, changed: Any) -> Outcome:
        log = out / f"{check.name}.log"
        return conduct(check, command_of(check, out, rehearse=rehearse), allowed, log, changed)

    found = run(DEVICE, max(end - time.monotonic(), 0.0), lambda _: None)
    machine = found.rows.get("device", {})
    obstacle = machine.get("refused") or machine.get("error")
    if obstacle or not machine.get("final"):
        obstacle = obstacle or "; ".join(found.notes) or f"see {out / 'device.log'}"
        print(f"nothing was measured: {obstacle}", file=sys.stderr)
        return 1
    machine["minutes"] = seconds / 60
    print(f"{machine['card']}: {seconds / 60:g} minutes at most", flush=True)
    for line in missing(machine):
        print(line, flush=True)
    try:
        outcomes = _run_checks(machine, run, out, end, rehearse=rehearse)
    finally:
        _pack(out)
    print((out / _TABLE).read_text(encoding="utf-8"))
    print(f"wrote {out}")
    empty = [outcome.check.title for outcome in outcomes if outcome.is_empty]
    if empty:
        print(f"no results from: {'; '.join(empty)}", file=sys.stderr)
    return 1 if empty else 0


def _run_checks(
    machine: dict[str, Any],
    run: Callable[[Check, float, Any], Outcome],
    out: Path,
    end: float,
    *,
    rehearse: bool,
) -> list[Outcome]:
    """Run every check that has its modules and enough time, and write each result at once."""
    outcomes: list[Outcome] = []
    left_out: dict[str, str] = {}

    def write(current: Outcome | None = None) -> None:
        if current is not None:
            record = {"machine": machine, **current.as_record()}
            write_json(out / f"{current.check.name}.json", record)
        shown = [*outcomes, *([] if current is None else [current])]
        write_text(out / _TABLE, report(machine, shown, left_out))

    for index, check in enumerate(CHECKS):
        left = end - time.monotonic()
        absent = [name for name in check.needs if name in machine["missing"]]
        if absent:
            left_out[check.title] = f"{' and '.join(absent)} missing"
        elif left < _LEAST and not (rehearse and left > 0):
            left_out[check.title] = f"no time: {max(left, 0.0):.0f} s were left"
        else:
            outcome = run(check, allowance(check, left, CHECKS[index + 1 :]), write)
            write(outcome)
            outcomes.append(outcome)
            failed = sum("error" in row for row in outcome.rows.values())
            line = f"{check.title}: {len(outcome.rows)} rows in {outcome.seconds:.0f} s"
            print(line + (f", {failed} of them errors" if failed else ""), flush=True)
            continue
        print(f"{check.title}: not run, {left_out[check.title]}", flush=True)
    write()
    return outcomes


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _run_check(name: str, out: Path, seconds: float, *, rehearse: bool) -> int:
    """Run one check in this process: its lines go to stdout, everything else to stderr, the log."""
    faulthandler.enable()
    # Without this a process that is killed because it hangs may spend minutes on a core dump.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # End this process even if the one that should stop it has died.
    faulthandler.dump_traceback_later(seconds + 30, exit=True)
    deadline = time.monotonic() + seconds - _EARLIER
    done = set(json.load(sys.stdin))
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if rehearse:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    from benchmarks.cuda.session import PoisonedError, Session

    device = "cpu" if rehearse else "cuda"
    session = Session(out, lines, deadline, device, tiny=rehearse, done=done)
    try:
        importlib.import_module(f"benchmarks.cuda.{name}").check(session)
    except PoisonedError as error:
        session.note(f"a process lost the device and another one continued: {error}")
        return POISONED
    except Exception as error:
        session.note(f"{type(error).__name__}: {error}")
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main())
