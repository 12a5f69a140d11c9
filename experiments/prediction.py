"""Test which numbers, known before an adapter is trained or early in its run, predict the best one.

Candidates are the energy of a full fine-tune's ΔW that an adapter can retain, the same weighted by
the curvature, what its first steps see of the gradient, its effective dimension, and its training
loss after a few steps; see :mod:`~experiments.finetuning.prediction.predictors`. Each is compared
with the accuracy that the tuned adapters reach, by rank correlation. The best is chosen on half of
the tasks and judged on the others. The runs are those of the comparison and the budgets; runs that
are already stored are not repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import click
from rich.table import Table

from experiments.budgets import sweep
from experiments.comparison import compare
from experiments.finetuning.configurations import small_tasks
from experiments.finetuning.options import session_command
from experiments.finetuning.prediction import forecast
from experiments.finetuning.prediction.predictors import PREDICTORS
from experiments.finetuning.prediction.rank_correlation import (
    OTHER_SEEDS,
    cells,
    correlations,
    pairs,
)
from experiments.finetuning.printing import number, print_table
from experiments.finetuning.protocol import Row
from experiments.finetuning.session import Finished, Session
from experiments.finetuning.statistics import interval, summary
from loca_theory.cli.progress import progress_bar
from loca_theory.sweeps import Point, ResultStore, Runner

# The other variants of LoCA differ in how they search, which no number here but the losses sees.
ADAPTERS = ("lora", "dora", "fourierft", "waveft", "shira", "c3a", "loca-v1", "loca",
            "loca-charged", "loca-reselect")  # fmt: skip
# Predictors are means over this many seeds.
_SEEDS = 2
_SIGNS = {one.name: one.sign for one in PREDICTORS.values()}
_TITLES = {one.name: one.title for one in PREDICTORS.values()}
_TITLES[OTHER_SEEDS] = "accuracy of other seeds (a ceiling)"
_SCOPE = "methods at one budget"


@session_command
@click.option("--task", help="One of the small tasks.  [default: all of them]")
def main(session: Session, task: str | None) -> None:
    """Compare what predicts the better adapter with what the adapters reach.

    Example: python -m experiments.prediction --seeds 10
    """
    tasks = small_tasks(session)
    if task and task not in tasks:
        msg = (
            f"--task must be one of {', '.join(tasks)}, not {task}: the predictors need layers of "
        )
        msg += "at most some 100x100 numbers"
        raise click.UsageError(msg)
    runs: list[Row] = []
    errors: list[Row] = []
    points: list[Point] = []
    for name in [task] if task else tasks:
        done = _distinct([*compare(session, name), *sweep(session, name)])
        runs += [one.row for one in done if one.configuration.method in ADAPTERS]
        errors += reconstruction_errors(done)
        points += _forecasts(session, name, done)
    predictions = [row for result in _computed(session, points) for row in result["rows"]]
    if not predictions:
        msg = "every full fine-tune diverged, so there is nothing to predict from"
        raise click.ClickException(msg)
    found = correlations(runs, predictions, _SIGNS)
    compared = pairs(cells(runs, predictions, _SIGNS))
    lines = figure_rows(runs, predictions, found)
    own = f"-{task}" if task else ""
    tables = {"": lines, "predictors": predictions, "correlations": found}
    session.store("prediction" + own, {**tables, "pairs": compared, "errors": errors})
    session.draw("prediction", lines, own)
    _print(found, compared)


def _distinct(done: Sequence[Finished]) -> list[Finished]:
    """The runs without those that both experiments contain."""
    return list({(one.configuration, one.seed): one for one in done}.values())


def _forecasts(session: Session, task: str, done: Sequence[Finished]) -> list[Point]:
    """The points that compute the predictors of these runs."""
    wanted = [
        configuration
        for configuration in dict.fromkeys(one.configuration for one in done)
        if configuration.method in ADAPTERS
    ]
    full = next(one.run for one in done if one.configuration.method == "full")
    seeds = session.seeds_of(task)[:_SEEDS]
    return [forecast.forecast(full, seed, wanted) for seed in seeds]


def _computed(session: Session, points: Sequence[Point]) -> list[dict[str, Any]]:
    store = ResultStore(session.out / "runs", forecast.version())
    session.say("predictors")
    with progress_bar("predictors", "full fine-tunes", quiet=session.quiet) as bar:
        jobs = 1 if session.resolved_device.startswith("cuda") else session.jobs
        compute = partial(forecast.compute, folder=session.out / "tasks")
        results = Runner(store, jobs, progress=bar).run(points, compute)
    for line in store.rejected:
        session.say(f"note: {line}")
    return results


def reconstruction_errors(done: Sequence[Finished]) -> list[Row]:
    """Relative squared errors of every method on the full fine-tunes, means over seeds."""
    by_method: dict[tuple[str, str, str, int], list[float]] = {}
    for one in done:
        for entry in one.result.get("increments", {}).get("errors", []):
            key = (one.configuration.task, entry["accounting"], entry["method"], entry["r"])
            by_method.setdefault(key, []).append(entry["error"])
    return [
        {
            **dict(zip(("task", "accounting", "method", "r"), key, strict=True)),
            **dict(zip(("error", "low", "high"), interval(found), strict=True)),
            "seeds": len(found),
        }
        for key, found in by_method.items()
    ]


def figure_rows(runs: Sequence[Row], predictions: Sequence[Row], found: Sequence[Row]) -> list[Row]:
    """One row per predictor, task, method and budget: predicted value, accuracy and correlations.

    Returns:
        ``predictor``, ``predictor_title``, ``task``, ``method``, ``title``, ``r``, ``measure``,
        ``value`` (larger predicts the better), ``mean`` and, of the predictor, ``correlation``,
        ``low``, ``high`` on all tasks, ``judged``, ``judged_low``, ``judged_high`` on the tasks of
        the judgement (None if there are none) and ``chosen``.
    """
    of = {(one["predictor"], one["tasks"]): one for one in found if one["scope"] == _SCOPE}
    lines = {
        (line["task"], line["r"], line["method"]): line
        for line in summary(runs, ("task", "method", "r"))
    }
    rows = []
    for cell in cells(runs, predictions, _SIGNS):
        for name, values in cell.predicted.items():
            overall, judged = of[name, "all"], of.get((name, "judgement"), {})
            for method, predicted in zip(cell.methods, values, strict=True):
                line = lines[cell.task, cell.r, method]
                seen = [value for value in predicted.tolist() if value == value]
                rows.append({
                    "predictor": name, "predictor_title": _TITLES[name],
                    **{key: line[key] for key in ("task", "method", "title", "r", "measure")},
                    "value": sum(seen) / len(seen), "mean": line["mean"],
                    **{key: overall[key] for key in ("correlation", "low", "high", "chosen")},
                    "judged": judged.get("correlation"),
                    "judged_low": judged.get("low"), "judged_high": judged.get("high"),
                })  # fmt: skip
    return rows


def _print(found: Sequence[Row], compared: Sequence[Row]) -> None:
    for scope in dict.fromkeys(one["scope"] for one in found):
        of = {(one["predictor"], one["tasks"]): one for one in found if one["scope"] == scope}
        table = Table("predictor", "all tasks", "choice", "judgement", box=None, pad_edge=False)
        for name in dict.fromkeys(key[0] for key in of):
            cells_ = [_correlation(of.get((name, part))) for part in ("all", "choice", "judgement")]
            mark = " *" if of[name, "all"]["chosen"] else ""
            table.add_row(_TITLES[name] + mark, *cells_)
        note = "rank correlations with the accuracy, with 95% intervals over tasks and seeds\n"
        note += "* largest on the tasks of the choice; its correlation on the others judges it"
        print_table(table, f"what predicts the better adapter: {scope}", note)
    table = Table("predictor", "right", "right, if clear", box=None, pad_edge=False)
    for name in dict.fromkeys(one["predictor"] for one in compared):
        own = [one for one in compared if one["predictor"] == name]
        clear = [one for one in own if one["clear"]]
        counts = (f"{sum(one['right'] for one in some)} of {len(some)}" for some in (own, clear))
        table.add_row(_TITLES[name], *counts)
    note = "clear: the 95% interval of the difference, paired by seed, excludes 0"
    print_table(table, "pairs of methods at one budget whose winner is predicted", note)


def _correlation(one: Row | None) -> str:
    if one is None:
        return "–"
    ends = f"{number(one['low'], sign=True)} to {number(one['high'], sign=True)}"
    return f"{number(one['correlation'], sign=True)} ({ends})"


if __name__ == "__main__":
    main(prog_name="python -m experiments.prediction")
