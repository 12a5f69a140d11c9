"""Test which numbers, known before an adapter is trained or early in its run, predict the best one.

Each number of :mod:`~experiments.finetuning.prediction.predictors` is compared with the accuracy
that the tuned adapters reach, by rank correlation. The best is chosen on half of the kinds of tasks
and judged on the others. The accuracies are read from the tables of runs in the folder ``--out``,
as ``experiments.study`` writes them; only full fine-tunes, to compute the predictors from, are run
here. A task needs full fine-tunes, whose learning rate is used here, and three adapters at one
budget; a random variant of a task, such as ``digits-3``, may have the learning rate of the task.
"""

from __future__ import annotations

from collections.abc import Sequence

import click
import numpy as np
import pandas as pd

from experiments.finetuning.prediction.predictors import SIGNS, TITLES, compute, forecast
from experiments.finetuning.prediction.rank_correlation import (
    FEWEST_METHODS,
    OTHER_SEEDS,
    correlations,
)
from experiments.finetuning.printing import print_table
from experiments.finetuning.protocol import Configuration, point
from experiments.finetuning.run_tables import read_runs
from experiments.finetuning.session import Session, session_command
from experiments.finetuning.statistics import Row, grouped
from loca_theory.errors import ResourceError
from loca_theory.sweeps.store import Point

# The other variants of LoCA differ in how they search, which no number here but the losses sees.
ADAPTERS = ("lora", "dora", "fourierft", "waveft", "shira", "c3a", "loca-v1", "loca",
            "loca-charged", "loca-reselect")  # fmt: skip
# Predictors are means over this many seeds.
_SEEDS = 2
# Columns of the tables beside those that every experiment needs.
COLUMNS = ("title", "trained", "stored", "rate", "loss_10", "loss_25")
_MAKE_THEM = (
    "make them with python -m experiments.study comparison --full, python -m experiments.study "
    "budgets and python -m experiments.study many_tasks, with the same --out"
)
_TITLES = TITLES | {OTHER_SEEDS: "accuracy of other seeds"}


@session_command
@click.option("--task", help="One of the small tasks.  [default: all that the tables have]")
def main(session: Session, task: str | None = None) -> None:
    """Compare what predicts the better adapter with what the adapters reach.

    Example: python -m experiments.prediction --out loca-results/experiments
    """
    if task and session.settings(task)["grid"] != "small":
        msg = f"--task cannot be {task}: the predictors need layers of at most some 100x100 numbers"
        raise click.UsageError(msg)
    stored = read_runs(session.folder, COLUMNS, tuned=True, otherwise=_MAKE_THEM)
    known = sorted(set(stored["task"]))
    tasks = [task] if task else [x for x in known if session.settings(x)["grid"] == "small"]
    rates, runs = usable(stored, tasks)
    if not rates:
        msg = f"{session.folder} has no tables with full fine-tunes and {FEWEST_METHODS} adapters "
        msg += f"at one budget of {task or 'any small task'}; {_MAKE_THEM}"
        raise ResourceError(msg)
    if lacking := [name for name in tasks if name not in rates]:
        session.say(f"note: left out, because runs are missing: {', '.join(lacking)}")
    points = [one for name, rate in rates.items() for one in _forecasts(session, name, rate, runs)]
    done = session.compute(points, compute, "predictors, by full fine-tunes")
    rows = [row for result in done for row in result["rows"]]
    if not rows:
        msg = "every full fine-tune diverged, so there is nothing to predict from"
        raise click.ClickException(msg)
    found = correlations(runs, pd.DataFrame(rows), SIGNS)
    found = [{**one, "title": _TITLES[one["predictor"]]} for one in found]
    suffix = f"-{task}" if task else ""
    session.store("prediction" + suffix, {"": found, "predictors": rows})
    session.draw("prediction", found, suffix)
    _print(found)


def usable(stored: pd.DataFrame, tasks: Sequence[str]) -> tuple[dict[str, float], pd.DataFrame]:
    """Select the tasks that can be predicted, and the runs of their adapters."""
    adapters = stored[stored["method"].isin(ADAPTERS)].astype({"r": int})
    counts = adapters.groupby(["task", "r"])["method"].nunique().groupby("task").max()
    known = stored[stored["method"] == "full"].groupby("task")["rate"].first()
    found = {task: known.get(task, known.get(task.rpartition("-")[0])) for task in tasks}
    rates = {
        task: float(rate)
        for task, rate in found.items()
        if rate is not None and counts.get(task, 0) >= FEWEST_METHODS
    }
    runs = adapters[adapters["task"].isin(list(rates))]
    at, method = runs["task"].map(list(tasks).index), runs["method"].map(ADAPTERS.index)
    return rates, runs.iloc[np.lexsort((runs["seed"], method, runs["r"], at))]


def _forecasts(session: Session, task: str, rate: float, runs: pd.DataFrame) -> list[Point]:
    """The points that compute the predictors of the runs of a task."""
    own = runs.loc[runs["task"] == task, ["method", "r"]].drop_duplicates()
    wanted = [Configuration(task, *one) for one in own.itertuples(index=False, name=None)]
    chosen = session.settings(task)
    full = point(
        Configuration(task, "full", chosen["r"]), chosen, session.prepared(task), rate=rate,
        seeds=range(_SEEDS), device=session.resolved_device,
    )  # fmt: skip
    return [forecast(full, seed, wanted) for seed in range(_SEEDS)]


def _print(found: Sequence[Row]) -> None:
    note = "rank correlations with the accuracy, with 95% intervals over tasks\n"
    note += "* largest on the kinds of the choice; its correlation on the others judges it"
    parts = ("all", "choice", "judgement")
    for (scope,), lines in grouped(found, ["scope"]).items():
        rows = []
        for (title,), own in grouped(lines, ["title"]).items():
            of = {one["tasks"]: "{correlation:+.2f} ({low:+.2f} to {high:+.2f})".format(**one)
                  for one in own}  # fmt: skip
            rows.append((title + " *" * own[0]["chosen"], *map(of.get, parts)))
        print_table(f"what predicts the better adapter: {scope}", ("predictor",), parts, rows, note)


if __name__ == "__main__":
    main(prog_name="python -m experiments.prediction")
