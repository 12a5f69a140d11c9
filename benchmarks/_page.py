"""Markdown report of a run on a GPU: machine, targets reached or not, and what failed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_OUTCOME = re.compile(r"^(tests/.+?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL)\b", re.MULTILINE)


class Target(NamedTuple):
    """Bounds of a column in the rows of a part whose load and rival match a pattern."""

    part: str
    rows: str
    column: str
    low: float = -float("inf")
    high: float = float("inf")


TARGETS = (
    *(Target("models", f".*, {rival}", "of_lora", low=0.9) for rival in ("LoCA", "LoCA locations")),
    Target("models", ".*, LoCA", "peak_of_lora", high=1.1),
    Target("layers", r".* 4096 tokens, bfloat16, LoCA", "peak_of_lora", high=1.1),
    Target("dense", r"dct2 24x768x768 float32, dct2/.*", "times_floor", high=3.0),
    Target("dense", r"dct2 1x4096x4096 float32, dct2/.*", "times_floor", high=2.0),
    # The same W in float64, and an error is a ratio of sums of squares: only rounding differs.
    Target("simulation", ".*", "largest_difference", high=1e-9),
    # Sums of up to four million products in float32, in a different order.
    Target("analysis", ".*", "largest_relative_difference", high=1e-3),
)
"""The targets of a run on a GPU; whole models, which a user feels, come first."""


def text(path: Path) -> str:
    """The text of a file; empty if there is none."""
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def read_rows(out: Path, name: str) -> list[dict[str, Any]]:
    """The rows that a benchmark has stored, with their part."""
    content = json.loads(text(out / f"{name}.json") or "{}")
    return [{"part": part, **row} for part, table in content.items() for row in table["rows"]]


def report(machine: dict[str, Any], endings: dict[str, str | None], out: Path) -> str:
    """The page: the machine, whether each target was reached, and what failed."""
    facts = {k: v for k, v in machine.items() if v is not None and not isinstance(v, dict)}
    facts |= machine.get("packages", {})
    lines = [f"# {machine['card']}", "", *(f"- {name}: {value}" for name, value in facts.items())]
    rows = {name: read_rows(out, name) for name in endings}
    if "rehearsal" not in machine:
        judged = [
            verdict
            for rows_of_part in rows.values()
            for row in rows_of_part
            for verdict in _judge(row)
        ]
        reached = sum("| reached |" in verdict for verdict in judged)
        lines += ["", f"## Targets: {reached} of {len(judged)} reached", ""]
        lines += [
            "| where | target | found | | time, and what takes most of it |",
            "| --- | --- | ---: | --- | --- |",
        ]
        lines += judged
    lines += ["", "## Parts", ""]
    for name, ending in endings.items():
        failed = [row for row in rows[name] if "error" in row]
        done = f"{len(rows[name])} rows, {len(failed)} of them errors"
        if name == "tests":
            outcomes = _OUTCOME.findall(text(out / "tests.log"))
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
        measured = row.get(target.column)
        if measured is None or target.part != row["part"]:
            continue
        if re.fullmatch(target.rows, _where(row)):
            bound = f"≥ {target.low:g}" if target.high == float("inf") else f"≤ {target.high:g}"
            verdict = "reached" if target.low <= measured <= target.high else "**not reached**"
            cells = [
                _where(row),
                f"{target.column} {bound}",
                f"{measured:.4g}",
                verdict,
                _time(row),
            ]
            yield f"| {' | '.join(cells)} |"


def _time(row: dict[str, Any]) -> str:
    """The time of a step, with what bounds it and that bound; empty if they are not known."""
    if "bound_ms" not in row or "ms" not in row:
        return ""
    return f"{row['ms']:.3g} ms; its {row['bound_by']} alone {row['bound_ms']:.3g}"
