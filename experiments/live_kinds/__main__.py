"""Continue the runs of the study, or print its result.

``python -m experiments.live_kinds`` prints the design, its power, and what the stored runs say.
With the folder of the published texts, whose sources are in the designs, it continues the runs,
phase by phase; it can be stopped at any time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import pandas as pd

from experiments.live_kinds import phases, power
from experiments.live_kinds.phases import DESIGN, DIAGNOSIS, Rows
from experiments.live_kinds.verdicts import judged
from experiments.pretrained import runs
from experiments.pretrained.__main__ import show
from experiments.pretrained.analysis import compare, gains, without_each_kind
from loca_theory.cli.command import Command
from loca_theory.cli.options import Folder

STORED = Path(__file__).parents[2] / "figures" / "live-kinds"
_TASKS = Path("loca-results") / "experiments" / "tasks"


@click.command(cls=Command)
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the published texts; without it nothing is run.",
)
@click.option(
    "--out",
    type=Folder(),
    default=STORED,
    help="Folder of the table of runs.  [default: that of the checkout]",
)
@click.option("--minutes", default=math.inf, help="Start no run after so many minutes.")
@click.option("--diagnosis", is_flag=True, help="The runs that came before the design instead.")
def main(data: Path | None, out: Path, minutes: float, diagnosis: bool) -> None:
    """Continue the runs of the study, one at a time, or print its result.

    Example: python -m experiments.live_kinds --data texts --out rows --minutes 60
    """
    if data is None:
        _print_diagnosis(out / "diagnosis")
        _print(runs.stored(out))
        return
    start = time.monotonic()
    design = DIAGNOSIS if diagnosis else DESIGN
    folder = out / "diagnosis" if diagnosis else out
    prepared = runs.prepare_all(data, _TASKS, design)

    def is_late() -> bool:
        return time.monotonic() - start > 60 * minutes

    def missing() -> list[runs.Trial]:
        done = runs.stored(folder)
        every = phases.diagnosis() if diagnosis else phases.next_trials(done)
        return [trial for trial in every if trial not in done]

    while not is_late() and (trials := missing()):
        runs.continue_runs(trials, prepared, folder, design, say=click.echo, stops=is_late)


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
    found = {method: phases.halving(method, rows)[1] for method in DESIGN["rates"]}
    won = {method: rates._asdict() for method, rates in found.items() if rates}
    show("rates that won", pd.DataFrame(won).T)
    if len(won) < len(found) or any(trial not in rows for trial in phases.liveness(rows)):
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
    show("primary comparisons with V1, points", judged(counted, design, gap).T)
    show("primary comparisons without one kind", without_each_kind(counted, design).T)
    show("others with V1, points", compare(counted, DESIGN["described"], design=design).T)
    show("mean scores", gains(counted, methods, design))
    of_dead = gains(counted, methods, {**DESIGN, "kinds": dead})
    show("mean scores of kinds that are not live", of_dead)


if __name__ == "__main__":
    main(prog_name="python -m experiments.live_kinds")
