"""Print what the first step says of PEFT's public comparison, or compute the steps.

``python -m experiments.peft_benchmark`` prints the tables of the page, from what is stored. With
``--data``, the published table, it stores the runs; with ``--steps`` it computes the first steps
that are missing, in some half hour of one core, and can be stopped at any time.
"""

from __future__ import annotations

from pathlib import Path

import click
import pandas as pd

from experiments.peft_benchmark import analysis, predicted, runs
from experiments.pretrained.__main__ import show
from loca_theory.cli.command import Command
from loca_theory.cli.options import Folder

STORED = Path(__file__).parents[2] / "figures" / "peft-benchmark"


@click.command(cls=Command)
@click.option(
    "--data",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The published table, to store it anew.",
)
@click.option("--steps", is_flag=True, help="Compute the first steps that are missing.")
@click.option(
    "--out", type=Folder(), default=STORED, help="Folder of the tables.  [default: the checkout's]"
)
def main(data: Path | None, steps: bool, out: Path) -> None:
    """Print what the first step says of PEFT's comparison, or compute the steps.

    Example: python -m experiments.peft_benchmark --steps --out rows
    """
    if data is not None:
        runs.store_runs(data, out)
    if steps:
        _compute(out)
    if data is None and not steps:
        published, computed = runs.stored_runs(out), runs.stored_steps(out)
        if len(computed) == len(published):
            _print(analysis.joined(published, computed))
        else:
            click.echo(
                f"{len(computed)} of {len(published)} runs have a first step, or a reason why not; "
                "continue with --steps"
            )


def _print(table: pd.DataFrame) -> None:
    """Print the tables of the page."""
    left = table[~table["is_fitted"]]
    show("left out of the fits", left[["task", "experiment", "reason"]].set_index("experiment"))
    for task, design in runs.DESIGN["tasks"].items():
        show(f"{task}: Spearman's correlations", analysis.correlations(table, task))
        for outcome in design["outcomes"]:
            show(f"{task}, {outcome}: linear models", analysis.models(table, task, outcome))
            click.echo(f"by the other runs of a type: {analysis.of_types(table, task, outcome)}")
    show("hypotheses, on image generation", analysis.hypotheses(table))
    show("predictions", analysis.predictions(table, predicted.candidates()))


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
