"""Ablation of LoCA's locations on MiniLM over kinds of tasks: continue it, or print its result.

A kind is live if full fine-tuning beats linear probing by 2 points; the others are set apart.
``python -m experiments.live_kinds`` prints the design, its power, and what the stored runs say.
With ``--data``, the folder of the published texts, whose sources are in the designs, it continues
the runs, phase by phase; it can be stopped at any time. Prepared tasks are stored in
``loca-results/experiments/tasks`` of the current folder, and rows, without ``--out``, in
``figures/live-kinds`` of the checkout.

It also prints the diagnosis, ``diagnosis.toml``: why runs of ``experiments.pretrained`` failed. Its
rows are stored; commit 7c565700 is the last that could run it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import pandas as pd

from experiments.live_kinds import phases, power
from experiments.live_kinds.phases import DESIGN
from experiments.live_kinds.verdicts import with_verdicts
from experiments.pretrained import runs
from experiments.pretrained.analysis import compare, gains, without_each_kind
from experiments.pretrained.commands import DATA, MINUTES, continue_study, out_option
from experiments.pretrained.runs import Rows
from experiments.tables import show
from loca_theory.cli.command import Command

STORED = Path(__file__).parents[2] / "figures" / "live-kinds"


@click.command(cls=Command)
@DATA
@out_option(STORED)
@MINUTES
def main(data: Path | None, out: Path, minutes: float) -> None:
    """Continue the runs of the study, one at a time, or print its result.

    Example: python -m experiments.live_kinds --data texts --out rows --minutes 60
    """
    if data is None:
        _print_diagnosis(out / "diagnosis")
        _print(runs.stored(out))
    else:
        continue_study(phases.next_trials, data, out, DESIGN, minutes)


def _print_diagnosis(folder: Path) -> None:
    """Print the scores of the diagnosis by task, arm and head's rate."""
    if rows := list(runs.stored(folder).values()):
        by = ["task", "method", "rate", "location_rate", "head_rate"]
        scores = pd.DataFrame(rows).pivot_table(index=by, columns="seed", values="metric")
        show("diagnosis: scores by seed", scores)


def _print(rows: Rows) -> None:
    """Print the design, its power, and what the rows say so far."""
    click.echo(DESIGN["analysis"])
    show("power", power.table())
    hours = sum(row["seconds"] for row in rows.values()) / 3600
    click.echo(f"\n{len(rows)} runs, {hours:.2f} CPU hours")
    won = {
        method: rates._asdict()
        for method in DESIGN["rates"]
        if (rates := phases.halving(method, rows)[1])
    }
    show("rates that won", pd.DataFrame(won).T)
    if len(won) < len(DESIGN["rates"]) or any(trial not in rows for trial in phases.liveness(rows)):
        return
    gap, live = phases.gaps(rows), phases.live_kinds(rows)
    show("points from the probe to full fine-tuning", pd.Series(gap).to_frame("gap"))
    click.echo(f"live: {', '.join(live)}")
    if missing := len(phases.next_trials(rows)):
        click.echo(f"{missing} of {len(phases.counted(rows))} runs that count are missing")
    elif len(live) >= DESIGN["liveness"]["least_kinds"]:
        _print_result(rows, gap, live)


def _print_result(rows: Rows, gap: Mapping[str, float], live: Sequence[str]) -> None:
    counted = [rows[trial] for trial in phases.counted(rows)]
    show("failed runs", pd.DataFrame(phases.failures(rows)))
    kinds = {kind: DESIGN["kinds"][kind] for kind in live}
    dead = {kind: tasks for kind, tasks in DESIGN["kinds"].items() if kind not in kinds}
    design, methods = {**DESIGN, "kinds": kinds}, list(DESIGN["seeds"])
    show("primary comparisons with V1, points", with_verdicts(counted, design, gap).T)
    show("primary comparisons without one kind", without_each_kind(counted, design).T)
    show("others with V1, points", compare(counted, DESIGN["described"], design=design).T)
    show("mean scores", gains(counted, methods, design))
    of_dead = gains(counted, methods, {**DESIGN, "kinds": dead})
    show("mean scores of kinds that are not live", of_dead)


if __name__ == "__main__":
    main(prog_name="python -m experiments.live_kinds")
