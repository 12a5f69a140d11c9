"""Tests, speed and memory on a machine with an NVIDIA card, by one command in limited time.

Run ``python -m benchmarks.cuda --out FOLDER [--minutes 9]`` from the checkout. The tests marked
``cuda`` and the benchmarks run one after the other, each in a process of its own with a time limit:
one that hangs, dies or fails leaves what it has stored, and the next one runs.
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

ROOT = Path(__file__).resolve().parents[1]
TABLE = "cuda.md"
_CARD = "import json; from benchmarks._record import card; print(json.dumps(card()))"
_ANSWERS = 120.0  # seconds until the card must have answered
_LEAST = 12.0  # with fewer seconds left a process would spend them on starting
_OUTCOME = re.compile(r"^(tests/.+?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL)\b", re.MULTILINE)


class Part(NamedTuple):
    """A process: its name, seconds on a fast card, and arguments; without any, the tests."""

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


class Target(NamedTuple):
    """Bounds of a column in the rows of a part whose load and rival match a pattern."""

    part: str
    rows: str
    column: str
    low: float = -float("inf")
    high: float = float("inf")


_DEFAULT = "LoCA|LoCA locations"
TARGETS = (
    Target("dense", r"dct2 24x768x768 float32, dct2/.*", "times_floor", high=3.0),
    Target("dense", r"dct2 1x4096x4096 float32, dct2/.*", "times_floor", high=2.0),
    Target("layers", rf".*, ({_DEFAULT})", "of_fourierft", high=1.0),
    Target("models", rf".*, ({_DEFAULT})", "of_fourierft", low=1.0),
    Target("models", rf".*, ({_DEFAULT})", "of_lora", low=0.9),
    *(
        Target(part, rf".*, ({_DEFAULT})", column, high=most)
        for part in ("layers", "models")
        for column, most in (("peak_of_fourierft", 1.0), ("peak_of_lora", 1.09))
    ),
    # The same W in float64, and an error is a ratio of sums of squares: only rounding differs.
    Target("simulation", ".*", "largest_difference", high=1e-9),
    # Sums of up to four million products in float32, in a different order.
    Target("analysis", ".*", "largest_relative_difference", high=1e-3),
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
    return f"ended with exit code {code}: {_last_line(log)}" if code else None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its children; the first signal writes Python's stack to the log."""
    for number in (signal.SIGABRT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=3)


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in _text(log).splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no output"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def command_of(part: Part, out: Path, *, rehearse: bool) -> list[str]:
    """The command line of a part."""
    if part.arguments:
        more = ["--device", "cpu", "--tiny"] if rehearse else ["--device", "cuda"]
        out_file = str(out / f"{part.name}.json")
        return [sys.executable, "-m", *part.arguments, *more, "--out", out_file]
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
    return max(left - sum(one.seconds for one in after), min(part.seconds, left))


def run_parts(
    out: Path, end: float, command: Callable[[Part], list[str]]
) -> Iterator[tuple[str, str | None]]:
    """Run every part for which there is time until the end; its name, and how it failed."""
    for index, part in enumerate(PARTS):
        left = end - time.monotonic()
        if left < _LEAST:
            yield part.name, f"not run: {max(left, 0.0):.0f} s were left"
            continue
        seconds = allowance(left, part, PARTS[index + 1 :])
        yield part.name, run(command(part), seconds, out / f"{part.name}.log")


def read_rows(out: Path, name: str) -> list[dict[str, Any]]:
    """The rows that a benchmark has stored, with their part."""
    content = json.loads(_text(out / f"{name}.json") or "{}")
    return [{"part": part, **row} for part, found in content.items() for row in found["rows"]]


def report(machine: dict[str, Any], endings: dict[str, str | None], out: Path) -> str:
    """The page: the machine, whether each target was reached, and what failed."""
    known = {k: v for k, v in machine.items() if v is not None and not isinstance(v, dict)}
    known |= machine.get("packages", {})
    lines = [f"# {machine['card']}", "", *(f"- {name}: {value}" for name, value in known.items())]
    rows = {name: read_rows(out, name) for name in endings}
    if "rehearsal" not in machine:
        judged = [verdict for found in rows.values() for row in found for verdict in _judge(row)]
        reached = sum(verdict.endswith("| reached |") for verdict in judged)
        lines += ["", f"## Targets: {reached} of {len(judged)} reached", ""]
        lines += ["| where | target | found | |", "| --- | --- | ---: | --- |", *judged]
    lines += ["", "## Parts", ""]
    for name, ending in endings.items():
        failed = [row for row in rows[name] if "error" in row]
        done = f"{len(rows[name])} rows, {len(failed)} of them errors"
        if name == "tests":
            outcomes = _OUTCOME.findall(_text(out / "tests.log"))
            kinds = dict.fromkeys(kind for _, kind in outcomes)
            done = ", ".join(f"{[k for _, k in outcomes].count(k)} {k.lower()}" for k in kinds)
            lines += [f"- {test} {kind}" for test, kind in outcomes if kind in ("FAILED", "ERROR")]
        lines.append(f"- {name}: {'; '.join(filter(None, [done, ending]))}")
        lines += [f"  - {_where(row)}: {row['error']}" for row in failed]
    return "\n".join(lines) + "\n"


def _where(row: dict[str, Any]) -> str:
    return ", ".join(str(row[key]) for key in ("load", "rival") if key in row)


def _judge(row: dict[str, Any]) -> Iterator[str]:
    """Lines of the table of targets for a row."""
    for target in TARGETS:
        found = row.get(target.column)
        if found is None or target.part != row["part"]:
            continue
        if re.fullmatch(target.rows, _where(row)):
            bound = f"≥ {target.low:g}" if target.high == float("inf") else f"≤ {target.high:g}"
            verdict = "reached" if target.low <= found <= target.high else "**not reached**"
            yield f"| {_where(row)} | {target.column} {bound} | {found:.4g} | {verdict} |"


def _ask_card(out: Path, *, rehearse: bool) -> dict[str, Any]:
    """The machine; in a process of its own, since a card may not answer or allow one process."""
    if rehearse:
        return {"card": "A rehearsal on the CPU", "rehearsal": True}
    log = out / "card.log"
    ending = run([sys.executable, "-c", _CARD], _ANSWERS, log)
    refused = f"the card's process {ending}"
    machine = {"refused": refused} if ending else json.loads(_text(log).splitlines()[-1])
    if "refused" in machine:
        msg = f"nothing was measured: {machine['refused']}"
        raise click.ClickException(msg)
    return machine


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


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
            signal.signal(number, _interrupt)
    # A process that is killed because it hangs should not spend minutes on a core dump.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if (out / TABLE).exists():
        msg = f"{out} holds the results of an earlier run; name another folder"
        raise click.ClickException(msg)
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
    click.echo(_text(out / TABLE))
    failed = [f"{name} {ending}" for name, ending in endings.items() if ending]
    if failed:
        raise click.ClickException("; ".join(failed))


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.cuda")
