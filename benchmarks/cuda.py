"""Tests, speed and memory on a machine with an NVIDIA card, by one command in limited time.

Run ``python -m benchmarks.cuda --out FOLDER [--minutes 9]`` from the checkout. The tests marked
``cuda`` and the benchmarks run one after the other, each in a process of its own with a time limit:
one that hangs, dies or fails leaves what it has stored, and the next one runs. The command ends its
children when it gets SIGTERM or SIGHUP, and writes no core dumps.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from benchmarks._page import report, text

ROOT = Path(__file__).resolve().parents[1]
TABLE = "cuda.md"
_CARD = "import json; from benchmarks._record import card; print(json.dumps(card()))"
_CARD_TIMEOUT = 120.0  # seconds until the card must have answered
_MIN_SECONDS = 12.0  # with fewer seconds left a process would spend them on starting


class Part(NamedTuple):
    """A process: its name, seconds on a fast card, and arguments; the tests have none."""

    name: str
    seconds: float
    arguments: tuple[str, ...] = ()


# The most important parts come first: if time is short, the last are not run.
PARTS = (
    Part("tests", 90),
    Part("transforms", 70, ("benchmarks.transforms", "--rounds", "5")),
    Part("layers", 100, ("benchmarks.layer", "--part", "layers", "--rounds", "5")),
    Part("models", 120, ("benchmarks.layer", "--part", "models", "--rounds", "5")),
    Part("choices", 20, ("benchmarks.layer", "--part", "choices", "--rounds", "5")),
    Part("searches", 30, ("benchmarks.searches", "--rounds", "3")),
    Part("devices", 80, ("benchmarks.devices",)),
)


def run(command: Sequence[str], seconds: float, log: Path) -> str | None:
    """Run a command, and kill it with its children after some seconds; how it failed, or None."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {"HF_HUB_OFFLINE": "1", "PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"}
    with log.open("w", encoding="utf-8") as stream:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, **variables, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return f"stopped after {seconds:.0f} s"
        finally:
            _kill(process)
    if code < 0:
        return f"died of {signal.Signals(-code).name}"
    last = text(log).strip().rpartition("\n")[2].strip()
    return f"ended with exit code {code}: {last[:300] or 'no output'}" if code else None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its children; the first signal writes Python's stack to the log."""
    for number in (signal.SIGABRT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=3)


def command_of(part: Part, out: Path, *, rehearse: bool) -> list[str]:
    """The command line of a part; of the tests, those that mention CUDA."""
    if part.arguments:
        device_options = ["--device", "cpu", "--tiny"] if rehearse else ["--device", "cuda"]
        out_file = str(out / f"{part.name}.json")
        return [sys.executable, "-m", *part.arguments, *device_options, "--out", out_file]
    # Tests of the code that the benchmarks run come first.
    files = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if re.search(r"\b(cuda|device)\b", path.read_text(encoding="utf-8"))
        and (path.parent.name == "transforms" or not rehearse)
    ]
    files.sort(key=lambda name: not name.startswith(("tests/transforms", "tests/adapters")))
    # Without the suite's own options, some of which need plugins.
    options = ["-o", "addopts=", "--import-mode=importlib", "-p", "no:cacheprovider"]
    options += ["-m", "cuda", "-W", "default", "-v", "--continue-on-collection-errors"]
    return [sys.executable, "-m", "pytest", *options, *files]


def allowance(left: float, part: Part, after: Sequence[Part]) -> float:
    """Seconds for a part: those not needed by later parts, but at least its own time."""
    return max(left - sum(later.seconds for later in after), min(part.seconds, left))


def run_parts(
    out: Path, end: float, command: Callable[[Part], list[str]]
) -> Iterator[tuple[str, str | None]]:
    """Run every part for which there is time until the end; its name, and how it failed."""
    for index, part in enumerate(PARTS):
        left = end - time.monotonic()
        if left < _MIN_SECONDS:
            yield part.name, f"not run: {max(left, 0.0):.0f} s were left"
            continue
        seconds = allowance(left, part, PARTS[index + 1 :])
        yield part.name, run(command(part), seconds, out / f"{part.name}.log")


def _ask_card(out: Path, *, rehearse: bool) -> dict[str, Any]:
    """The machine; in a process of its own, because a card may hang or allow only one process."""
    if rehearse:
        return {"card": "A rehearsal on the CPU", "rehearsal": True}
    log = out / "card.log"
    ending = run([sys.executable, "-c", _CARD], _CARD_TIMEOUT, log)
    refused = f"the card's process {ending}"
    machine = {"refused": refused} if ending else json.loads(text(log).splitlines()[-1])
    if "refused" in machine:
        raise click.ClickException(f"nothing was measured: {machine['refused']}")
    return machine


@click.command()
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True)
@click.option("--minutes", type=click.FloatRange(0, 1440), default=9.0, show_default=True)
@click.option("--rehearse", is_flag=True, help="Run everything at tiny sizes on the CPU.")
def main(out: Path, minutes: float, rehearse: bool) -> None:
    """Measure on an NVIDIA card, the most important first.

    Example: python -m benchmarks.cuda --out measured --minutes 9
    """
    end = time.monotonic() + 60 * minutes
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, signal.default_int_handler)
    # A process that is killed because it hangs should not spend minutes on a core dump.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if (out / TABLE).exists():
        raise click.ClickException(
            f"{out} holds the results of an earlier run; name another folder"
        )
    out.mkdir(parents=True, exist_ok=True)
    out = out.resolve()
    machine = _ask_card(out, rehearse=rehearse)
    endings: dict[str, str | None] = {}
    parts = run_parts(out, end, lambda part: command_of(part, out, rehearse=rehearse))
    try:
        for name, ending in parts:
            endings[name] = ending
            click.echo(f"{name}: {ending or 'done'}")
            (out / TABLE).write_text(report(machine, endings, out), encoding="utf-8")
    except KeyboardInterrupt:
        click.echo(f"interrupted; the results so far are in {out}", err=True)
        sys.exit(130)
    click.echo(text(out / TABLE))
    failed = [f"{name} {ending}" for name, ending in endings.items() if ending]
    if failed:
        raise click.ClickException("; ".join(failed))


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.cuda")
