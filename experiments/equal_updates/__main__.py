"""Do PEFT's adapters score alike at equally large first updates? Train runs, or print the result.

``python -m experiments.equal_updates`` prints the design and what the stored runs say. With
``--data``, the folder of the published texts, whose sources are in the designs, it trains the
missing runs. It can be stopped at any time. Prepared tasks are stored in
``loca-results/experiments/tasks`` of the current folder, and rows, without ``--out``, in
``figures/equal-updates`` of the checkout.
"""

from __future__ import annotations

from pathlib import Path

import click
import pandas as pd

from experiments.equal_updates import analysis, phases
from experiments.equal_updates.phases import DESIGN
from experiments.pretrained import runs
from experiments.pretrained.commands import DATA, MINUTES, continue_study, out_option
from experiments.pretrained.runs import Rows
from experiments.tables import show
from loca_theory.cli.command import Command

STORED = Path(__file__).parents[2] / "figures" / "equal-updates"


@click.command(cls=Command)
@DATA
@out_option(STORED)
@MINUTES
def main(data: Path | None, out: Path, minutes: float) -> None:
    """Continue the runs of the study, one at a time, or print its result.

    Example: python -m experiments.equal_updates --data texts --out rows --minutes 60
    """
    if data is None:
        _print(runs.stored(out))
    else:
        continue_study(phases.next_trials, data, out, DESIGN, minutes)


def _print(rows: Rows) -> None:
    """Print the design, and what the rows say so far."""
    click.echo(DESIGN["analysis"])
    hours = sum(row["seconds"] for row in rows.values()) / 3600
    click.echo(f"{len(rows)} runs, {hours:.2f} CPU hours")
    _, won = phases.tuning(rows)
    if won is None:
        return
    by_rule = phases.rates(won)
    ends = [method for method, rates in won.items() if rates.adapter in _ends(method)]
    show("rates that won", pd.DataFrame({name: chosen._asdict() for name, chosen in won.items()}).T)
    click.echo(f"rates that won at an end of their grid: {', '.join(ends) or 'none'}")
    if missing := len(phases.next_trials(rows)):
        click.echo(f"{missing} of {len(phases.counted(by_rule))} runs that count are missing")
        return
    measured = analysis.scores(rows, by_rule)
    show("mean scores", analysis.means(measured, by_rule))
    show("spread between methods at PEFT's defaults, points", analysis.spreads(measured).to_frame())
    show("result", analysis.spread_verdicts(measured))
    show("primary ratio without each task", analysis.without_each_task(measured).to_frame())


def _ends(method: str) -> tuple[float, float]:
    return DESIGN["rates"][method][0], DESIGN["rates"][method][-1]


if __name__ == "__main__":
    main(prog_name="python -m experiments.equal_updates")
