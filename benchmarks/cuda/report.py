"""The Markdown page with the tables of all results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.cuda.runner import Outcome, Row

# Keys that are not columns of a table, because they are only for the files or shown elsewhere.
_INSIDE = {"key", "load", "final", "hidden", "timing", "verdicts", "kernels", "took_s", "rival"}
_HEADINGS = {
    "ms": "ms",
    "host_ms": "ms of the host",
    "marginal_ms": "ms beyond frozen",
    "of_lora": "speed over LoRA's",
    "of_fourierft": "speed over FourierFT's",
    "times_floor": "time over the floor's",
    "peak_mib": "peak MiB",
    "waits": "waits for the device",
    "steps_per_s": "steps/s",
    "left_out": "not run",
    "s": "s",
    "cpu_s": "s on the CPU",
    "speed_over_cpu": "speed over the CPU's",
    "speed_over_thread": "speed over one CPU thread's",
    "peak_matrices": "peak, in matrices",
}


def report(
    machine: Mapping[str, Any], outcomes: Sequence[Outcome], left_out: Mapping[str, str]
) -> str:
    """Make the page.

    Args:
        machine: The row of the check of the machine.
        outcomes: Outcomes of the checks.
        left_out: Reasons why checks were not run, by title.
    """
    parts = [f"# {machine.get('card', 'CUDA')}", _machine(machine)]
    if not machine.get("rehearsal"):
        parts += _targets(outcomes)
    for outcome in outcomes:
        parts += _section(outcome)
    if left_out:
        parts.append("## Not run")
        parts.append("\n".join(f"- {title}: {reason}" for title, reason in left_out.items()))
    return "\n\n".join(parts) + "\n"


def missing(machine: Mapping[str, Any]) -> list[str]:
    """One line per missing module, with what cannot be run without it."""
    return [
        f"{name} is missing; not run: {what}" for name, what in machine.get("missing", {}).items()
    ]


def _machine(machine: Mapping[str, Any]) -> str:
    known = machine.get("environment", {})
    cores = known.get("cpu_cores", {})
    shown = {
        "date": known.get("date"),
        "loca-theory": known.get("packages", {}).get("loca-theory"),
        "commit": known.get("commit"),
        "minutes given": machine.get("minutes"),
        "processor": known.get("cpu"),
        "logical cores": cores.get("logical"),
        "physical cores": cores.get("physical"),
        "driver": machine.get("driver"),
        "CUDA": machine.get("cuda"),
        "compute capability": machine.get("capability"),
        "memory, GiB": machine.get("memory_gib"),
        "Python": machine.get("python"),
        **machine.get("libraries", {}),
    }
    lines = [f"- {name} {_cell(value)}" for name, value in shown.items() if value is not None]
    return "\n".join([*lines, *(f"- {line}" for line in missing(machine))])


def _targets(outcomes: Iterable[Outcome]) -> list[str]:
    rows = [
        (
            row.get("load", row["key"]) + (f", {row['rival']}" if "rival" in row else ""),
            one["target"],
            one["found"],
            "reached" if one["reached"] else "**not reached**",
        )
        for outcome in outcomes
        for row in outcome.rows.values()
        for one in row.get("verdicts", ())
    ]
    if not rows:
        return []
    reached = sum(row[3] == "reached" for row in rows)
    return [
        f"## Targets: {reached} of {len(rows)} reached",
        _table(("where", "target", "found", ""), rows),
    ]


def _section(outcome: Outcome) -> list[str]:
    parts = [f"## {outcome.check.title}"]
    rows = [row for row in outcome.rows.values() if _is_shown(row)]
    tests = [row for row in rows if "outcome" in row]
    if tests:
        counts = {name: sum(row["outcome"] == name for row in tests)
                  for name in dict.fromkeys(row["outcome"] for row in tests)}  # fmt: skip
        parts.append(", ".join(f"{count} {name}" for name, count in counts.items()))
        rows = [row for row in rows if row.get("outcome") not in ("passed", "skipped")]
    for load in dict.fromkeys(row.get("load") for row in rows):
        here = [row for row in rows if row.get("load") == load]
        names = [name for name in dict.fromkeys(n for row in here for n in row)
                 if name not in _INSIDE]  # fmt: skip
        cells = [(row.get("rival", row["key"]), *(row.get(n, "") for n in names)) for row in here]
        if load:
            parts.append(f"### {load}")
        parts.append(_table(("", *(_HEADINGS.get(n, n.replace("_", " ")) for n in names)), cells))
    parts += [
        _table(
            ("kernel", "calls a step", "µs a step"),
            [(one["name"], one["calls_a_step"], one["us_a_step"]) for one in row["kernels"]],
        )
        for row in rows
        if "kernels" in row
    ]
    parts.append("\n".join([*(f"- {note}" for note in outcome.notes),
                            f"- took {outcome.seconds:.0f} s"]))  # fmt: skip
    return parts


def _is_shown(row: Row) -> bool:
    return not row.get("hidden") or "error" in row or "left_out" in row


def _table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [[_cell(value) for value in row] for row in rows]
    rules = [" --- "] + [" ---: "] * (len(headings) - 1)
    head = ["|" + "|".join(f" {heading} " for heading in headings) + "|", f"|{'|'.join(rules)}|"]
    return "\n".join([*head, *("| " + " | ".join(line) + " |" for line in lines)])


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value).replace("|", "\\|").replace("\n", " ")
