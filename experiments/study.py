"""Run a study of fine-tuning: tune every method, run it on all seeds, store tables, draw, print.

``python -m experiments.study NAME`` runs one of those in ``studies.toml``. Runs that another study
has made are not repeated. Needs ``pip install 'loca-theory[experiments]'``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import click
from joblib import Parallel, delayed

from experiments.finetuning.methods import find_method
from experiments.finetuning.printing import print_summary
from experiments.finetuning.protocol import Configuration, Finished
from experiments.finetuning.session import TASKS, Session, configurations, session_command, tasks_of
from experiments.finetuning.statistics import Row, grouped, summary
from experiments.finetuning.tasks.prepared import prepare
from experiments.finetuning.verdicts.design import MANY_TASKS, read_design

_RANKS = (1, 2, 4, 8)  # budgets that are compared


@dataclass(frozen=True)
class Study:
    """A study, as ``studies.toml`` has it."""

    name: str
    methods: Sequence[str]  # at the budget of the task
    more: Sequence[str] = ()  # methods that are added with ``--full``
    at_every_budget: Sequence[str] = ()
    reference: str = ""  # the method that the others are compared with
    note: str = ""  # below the printed table
    figure: str = ""  # label of the figure that it draws
    task: str = ""  # that it is run on by default; empty for all small ones
    curves: bool = False  # whether the evaluations during the runs are stored too
    each_task_alone: bool = False  # whether each task has tables of its own
    # Settings that are varied one at a time, with their values.
    varied: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)  # of these settings, in the figure
    r: int | None = None  # the budget as LoRA's rank; None for that of the task


@cache
def studies() -> dict[str, Study]:
    """The studies by name."""
    text = Path(__file__).with_name("studies.toml").read_text(encoding="utf-8")
    return {name: Study(name, **entry) for name, entry in tomllib.loads(text).items()}


def run(session: Session, study: Study, task: str) -> list[Finished]:
    """Tune the methods of a study on a task and run them on all seeds."""
    title = f"{study.name.replace('_', ' ')}, {task}"
    wanted = configurations(session, task, study.methods, study.r)
    budgets = _RANKS[:2] if session.quick else _RANKS
    for rank in budgets if study.at_every_budget else ():
        wanted += configurations(session, task, study.at_every_budget, rank)
    return session.run(session.tune(wanted, title).items(), title)


@session_command
@click.argument("name", type=click.Choice(list(studies())), metavar="NAME")
@click.option("--task", help=TASKS)
@click.option("--methods", help="Names, separated by commas.  [default: those of the study]")
@click.option(
    "--r", type=click.IntRange(min=1), help="Budget as LoRA's rank.  [default: the task's]"
)
def main(
    session: Session,
    name: str,
    task: str | None = None,
    methods: str | None = None,
    r: int | None = None,
) -> None:
    """Run a study of fine-tuning.

    NAME is comparison, ablation, budgets, sensitivity, training_process, patterns or many_tasks.

    Example: python -m experiments.study comparison --task digits --methods lora,loca,fourierft
    """
    run_in(session, name, task, methods, r)


def run_in(
    session: Session,
    name: str,
    task: str | None = None,
    methods: str | None = None,
    r: int | None = None,
) -> None:
    """Run a study in a session."""
    study = replace(studies()[name], r=r)
    given = tuple(one.strip() for one in (methods or "").split(",") if one.strip())
    if (given or r) and not study.each_task_alone:
        msg = f"{name} has methods and budgets of its own; leave out --methods and --r"
        raise click.UsageError(msg)
    if task and name == "many_tasks":
        msg = f"{name} has tasks of its own; leave out --task"
        raise click.UsageError(msg)
    if given or session.full:
        study = replace(study, methods=given or (*study.methods, *study.more))
    tasks = tasks_of(session, task or study.task)
    for own in [[one] for one in tasks] if study.each_task_alone else [tasks]:
        is_named = study.each_task_alone or (task and task != study.task)
        named = (*(own if is_named else ()), *([f"r{r}"] if r else ()), *given)
        suffix = "".join(f"-{part}" for part in named)
        _REPORTS.get(name, _compare)(session, study, own, suffix)


def _compare(session: Session, study: Study, tasks: Sequence[str], suffix: str) -> None:
    """Runs of several methods, compared with the reference on the same seeds."""
    rows: list[Row] = []
    lines: list[Row] = []
    curves: list[Row] = []
    for task in tasks:
        done = run(session, study, task)
        mine = [finished.row for finished in done]
        own_r = study.r or session.settings(task)["r"]
        # Methods without a budget are compared with the reference at that of the task.
        reference = {"method": study.reference} | ({} if study.at_every_budget else {"r": own_r})
        is_compared = any(row["method"] == study.reference for row in mine)
        found = summary(mine, ("task", "method", "r"), reference=reference if is_compared else None)
        rows += mine
        lines += found
        curves += [line for finished in done for line in finished.curve]
        title, note = session.settings(task)["title"], study.note if is_compared else ""
        print_summary(found, title=title, columns=("method", "r"), note=note)
    tables = {"": rows, "summary": lines, **({"curves": curves} if study.curves else {})}
    session.store(study.name + suffix, tables)
    if study.figure:
        session.draw(study.figure, lines, suffix)


def _vary(session: Session, study: Study, tasks: Sequence[str], suffix: str) -> None:
    """One setting of LoCA after the other; each row has the name and the value of the setting."""
    rows = [row for one in tasks for row in _sweep(session, study, one)]
    lines = summary(rows, ("task", "setting", "label", "value", "method"))
    session.store(f"{study.name}{suffix}", {"": rows, "summary": lines})
    session.draw(study.figure, lines, suffix)
    for (task, setting), mine in grouped(lines, ("task", "setting")).items():
        title = f"{session.settings(task)['title']}: {setting}"
        print_summary(mine, title=title, columns=("value", "method"))


def _sweep(session: Session, study: Study, task: str) -> list[Row]:
    """Vary one setting at a time on a task."""
    chosen = session.settings(task)
    plain = {name: Configuration(task, name, chosen["r"]) for name in study.methods}
    rates = session.tune(list(plain.values()), f"{study.name}, {task}")
    # In as many steps components are pruned and regrown at least once.
    period = chosen["coefficient_steps"] + chosen["location_steps"]
    wanted = []
    for setting, listed in study.varied.items():
        values = listed or find_method("loca").rates(chosen["grid"], beyond=1)
        for name in study.methods if setting == "alternating" else ("loca",):
            for value in values[1:3] if session.quick else values:
                one, rate = plain[name], rates[plain[name]]
                if setting == "rate":
                    rate = value
                elif setting == "location_rate":
                    one = replace(one, location_rate=value)
                elif setting == "alternating" or value != 1:  # 1 is the usual scaling
                    one = replace(one, loca={setting: value})
                if name == "loca" or value == 0 or round(value * chosen["steps"]) >= period:
                    labels = {"setting": setting, "label": study.labels[setting], "value": value}
                    wanted.append((one, rate, labels))
    done = session.run([(one, rate) for one, rate, _ in wanted], f"{study.name}, {task}")
    labels = [own for *_, own in wanted for _ in session.seeds_of(task)]
    return [one.row | own for one, own in zip(done, labels, strict=True)]


def _draw_training(session: Session, study: Study, tasks: Sequence[str], suffix: str) -> None:
    """The evaluations on the validation set during the runs."""
    lines = [line for task in tasks for one in run(session, study, task) for line in one.curve]
    session.store(f"{study.name}{suffix}", {"": lines})
    session.draw(study.figure, lines, suffix)


def _draw_pictures(session: Session, study: Study, tasks: Sequence[str], suffix: str) -> None:
    """Images of the increments of the first seed's runs."""
    (task,) = tasks
    rows = [
        {"task": task, "method": (method := find_method(one.configuration.method)).name,
         "title": method.title, "layer": layer, "row": line, "values": values}
        for one in run(session, study, task)
        if one.seed == session.seeds_of(task)[0] and "patterns" in one.result
        for layer, picture in one.result["patterns"].items()
        for line, values in enumerate(picture)
    ]  # fmt: skip
    if not rows:
        msg = f"the first run of every method on {task} diverged, so there is nothing to draw"
        raise click.ClickException(msg)
    session.store(f"{study.figure}{suffix}", {"": rows})
    session.draw(study.figure, rows, suffix)


def _compare_many_tasks(session: Session, study: Study, *_: Any) -> None:
    """The second design: tasks with random data, whose verdicts ``experiments.design`` prints."""
    design = read_design(MANY_TASKS)
    if session.seeds is None and not session.quick:
        session = replace(session, seeds=design.file["seeds"]["results"])
    names = tuple(dict.fromkeys(arm.method for _, arm in design.arms()))
    tasks = design.tasks[:2] if session.quick else design.tasks
    session.say(f"preparing {len(tasks)} tasks")
    folder = session.out / "tasks"
    Parallel(session.jobs)(delayed(prepare)(one, folder, quick=session.quick) for one in tasks)
    wanted = [one for task in tasks for one in configurations(session, task, names)]
    rates = session.tune(wanted, f"{len(tasks)} tasks")
    rows = [one.row for one in session.run(rates.items(), f"{len(tasks)} tasks")]
    lines = summary(rows, ("task", "method", "r"), reference={"method": study.reference})
    session.store(study.name.replace("_", "-"), {"": rows, "summary": lines})
    click.echo(f"for the verdicts: python -m experiments.design {session.folder}")


_REPORTS: dict[str, Callable[..., None]] = {
    "sensitivity": _vary,
    "training_process": _draw_training,
    "patterns": _draw_pictures,
    "many_tasks": _compare_many_tasks,
}


if __name__ == "__main__":
    main(prog_name="python -m experiments.study")
