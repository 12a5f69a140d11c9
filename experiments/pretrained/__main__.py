"""Repeat the ablation on a pretrained sentence transformer, or print its result.

``python -m experiments.pretrained`` prints the design and the result of the runs that are stored.
With the folder of the published texts, whose sources are in ``design.toml``, and another folder for
the results, it runs them again; it can be stopped at any time and continues.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click
import pandas as pd
import torch

from experiments.finetuning.tasks.prepared import Prepared
from experiments.pretrained import analysis, runs
from experiments.pretrained.commands import DATA, TASKS, out_option
from experiments.pretrained.runs import FIRST
from experiments.tables import show
from loca_theory.cli.command import Command
from loca_theory.errors import ResourceError
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.tables import store_rows


@click.command(cls=Command)
@DATA
@out_option(runs.STORED)
@click.option(
    "--again",
    "repeated_tasks",
    multiple=True,
    metavar="TASK",
    help="Repeat the runs of a task with seed 0 from this kind of machine, to the bit.",
)
def main(data: Path | None, out: Path, repeated_tasks: tuple[str, ...]) -> None:
    """Repeat the runs of the ablation, those that tuned last, or print its result.

    Example: python -m experiments.pretrained --data texts --out again
    """
    if data is None:
        _print(out)
        return
    prepared = runs.prepare_all(data, TASKS)
    if repeated_tasks:
        raise SystemExit(_repeat(repeated_tasks, prepared, out))
    trials = sorted(runs.stored(runs.STORED), key=lambda trial: trial.tunes)
    runs.continue_runs(trials, prepared, out, say=click.echo)
    verdicts = analysis.verdicts(list(runs.stored(out).values()))
    store_rows(verdicts, manifest(grid={}, seed=0, dtype="float32"), out, "comparisons")


def _repeat(tasks: tuple[str, ...], prepared: Mapping[str, Prepared], out: Path) -> bool:
    """Run stored trials of seed 0 again, and return whether a result differs."""
    machine = runs.machine("cuda" if torch.cuda.is_available() else "cpu")
    from_here = [row for row in runs.stored(out).values() if row["machine"] == machine]
    rows = [row for row in from_here if row["task"] in tasks and row["seed"] == 0]
    if absent := {*tasks} - {row["task"] for row in rows}:
        raise ResourceError(
            f"{out} has no run with seed 0 of {', '.join(sorted(absent))} from {machine}"
        )
    differ = False
    for row in rows:
        repeated = runs.train(runs.trial_of(row), prepared[row["task"]])
        is_other = any(row[name] != repeated[name] for name in runs.MEASURED)
        differ = differ or is_other
        click.echo(f"{row['task']}, {row['method']}: {'differs' if is_other else 'the same'}")
    return differ


def _primary() -> list[str]:
    return [FIRST["reference"], *FIRST["primary"]]


def _print(out: Path) -> None:
    """Print the design, the comparisons, and the scores."""
    all_rows = list(runs.stored(out).values())
    click.echo(FIRST["analysis"])
    other_methods, described = _primary()[1:], FIRST["described"]
    for setting in FIRST["settings"]:
        rows = [row for row in all_rows if row["setting"] == setting]
        show(f"{setting}: mean scores", analysis.gains(rows, [*_primary(), *described]))
        if len({row["task"] for row in rows}) < 2:
            continue  # the mean of one kind has no interval
        show(f"{setting}: primary comparisons with V1, points", analysis.primary(rows).T)
        show(f"{setting}: others with V1, points", analysis.compare(rows, described).T)
        title = f"{setting}: losses, % less than that of V1"
        show(title, analysis.compare(rows, [*other_methods, *described], analysis.LOSS).T)
        if setting == "main":
            show("primary comparisons without one kind", analysis.without_each_kind(rows).T)
            early = analysis.compare(rows, other_methods, "loss_25").T
            show("losses over steps 16 to 25, % less than that of V1", early)
    show("comparisons that are stored", pd.DataFrame(analysis.verdicts(all_rows)).T)
    if (path := out / f"{runs.RETAINED}.parquet").exists():
        energy = pd.read_parquet(path).groupby("method")[[runs.RETAINED]].mean()
        show("energy of full fine-tuning's increment at the locations", energy)
    hours = sum(row["seconds"] for row in all_rows) / 3600
    click.echo(f"{len(all_rows)} rows, {hours:.2f} CPU hours")


if __name__ == "__main__":
    main(prog_name="python -m experiments.pretrained")
