"""Print what the first step says of PEFT's public comparison, or compute the steps.

``python -m experiments.peft_benchmark`` stores and prints the tables of the page. With ``--steps``
it computes the first steps that are missing, in some half hour of one core, and can be stopped at
any time.
"""

from __future__ import annotations

from pathlib import Path

import click
import pandas as pd

from experiments.peft_benchmark import analysis, page, runs
from experiments.tables import show
from loca_theory.cli.command import Command
from loca_theory.cli.options import Folder

STORED = Path(__file__).parents[2] / "figures" / "peft-benchmark"


@click.command(cls=Command)
@click.option("--steps", is_flag=True, help="Compute the first steps that are missing.")
@click.option(
    "--out", type=Folder(), default=STORED, help="Folder of the tables.  [default: the checkout's]"
)
def main(steps: bool, out: Path) -> None:
    """Store and print what the first step says of PEFT's comparison, or compute the steps.

    Example: python -m experiments.peft_benchmark --steps --out rows
    """
    if steps:
        _compute(out)
        return
    published, computed = runs.stored_runs(out), runs.stored_steps(out)
    if len(computed) < len(published):
        click.echo(
            f"{len(computed)} of {len(published)} runs have a first step, or a reason why not; "
            "continue with --steps"
        )
        return
    table = analysis.joined(published, computed)
    tables = page.compute(table)
    page.store(table, tables, out)
    left = table[~table["is_fitted"]]
    show("left out of the fits", left[["task", "reason"]].set_index(left["experiment"]))
    click.echo(page.printed(tables))


def _compute(folder: Path) -> None:
    """Compute the first step of each run that has none, and store it at once."""
    rows = runs.stored_steps(folder)
    for run in runs.stored_runs(folder).to_dict("records"):
        if run["experiment"] in set(rows["experiment"]):
            continue
        row = runs.step_of({str(key): value for key, value in run.items()})
        rows = pd.concat([rows, pd.DataFrame([row])], ignore_index=True)
        runs.store_step(rows, folder)
        click.echo(f"{run['experiment']}: {row.get('frobenius', row['reason'])}")


if __name__ == "__main__":
    main(prog_name="python -m experiments.peft_benchmark")
