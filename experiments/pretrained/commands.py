"""Options of the commands of the studies, and runs up to a time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from experiments.pretrained import runs
from experiments.pretrained.runs import Design, Rows, Trial
from loca_theory.cli.options import Folder

TASKS = Path("loca-results") / "experiments" / "tasks"
DATA = click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the published texts; without it nothing is run.",
)
MINUTES = click.option("--minutes", default=math.inf, help="Start no run after so many minutes.")


def out_option(stored: Path) -> Callable[[Any], Any]:
    """The option for the folder of the table of runs."""
    text = "Folder of the table of runs.  [default: that of the checkout]"
    return click.option("--out", type=Folder(), default=stored, help=text)


def continue_study(
    next_trials: Callable[[Rows], list[Trial]],
    data: Path,
    out: Path,
    design: Design,
    minutes: float,
) -> None:
    """Run the next trials of a study, one at a time, until there are none or the time is over."""
    start, prepared = time.monotonic(), runs.prepare_all(data, TASKS, design)

    def is_late() -> bool:
        return time.monotonic() - start > 60 * minutes

    while not is_late() and (trials := next_trials(runs.stored(out))):
        runs.continue_runs(trials, prepared, out, design, say=click.echo, stops=is_late)
