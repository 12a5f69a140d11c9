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

from experiments.finetuning.commands import TASKS, session_command
from experiments.finetuning.comparisons.design import MANY_TASKS, read_design
from experiments.finetuning.methods import find_method
from experiments.finetuning.protocol import Configuration, Finished
from experiments.finetuning.session import Session, configurations, tasks_of
from experiments.finetuning.statistics import group_by, print_summary, summary
from experiments.finetuning.tasks.prepared import prepare
from experiments.tables import Row

_RANKS = (1, 2, 4, 8)  # budgets that are compared


@dataclass(frozen=True)
class Study:
    """A study, as ``studies.toml`` has it."""

    name: str
    methods: Sequence[str]  # at the budget of the task
    added_by_full: Sequence[str] = ()  # methods that ``--full`` adds
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
    cases = configurations(session, task, study.methods, study.r)
    budgets = _RANKS[:2] if session.quick else _RANKS
    for rank in budgets if study.at_every_budget else ():
        cases += configurations(session, task, study.at_every_budget, rank)
    return session.run(session.tune(cases, title).items(), title)


@session_command
@click.argument("name", type=click.Choice(list(studies())), metavar="NAME")
@click.option("--task", help=TASKS)
@click.option("--methods", help="Names, separated by commas.  [default: those of the study]")
@click.option(
    "--r", type=click.IntRange(min=1), help="Budget as LoRA's rank.  [default: the task's]"
)
def main(session: Session, name: str, **options: Any) -> None:
    """Run a study of fine-tuning.

    NAME is comparison, ablation, budgets, sensitivity, training_process, patterns or many_tasks.

    Example: python -m experiments.study comparison --task digits --methods lora,loca,fourierft
    """
    run_in(session, name, **options)


def run_in(
    session: Session,
    name: str,
    task: str | None = None,
    methods: str | None = None,
    r: int | None = None,
) -> None:
    """Run a study in a session."""
    study = replace(studies()[name], r=r)
    named_methods = tuple(name.strip() for name in (methods or "").split(",") if name.strip())
    if (named_methods or r) and not study.each_task_alone:
        raise click.UsageError(
            f"{name} has methods and budgets of its own; leave out --methods and --r"
        )
    if task and name == "many_tasks":
        raise click.UsageError(f"{name} has tasks of its own; leave out --task")
    if named_methods or session.full:
        study = replace(study, methods=named_methods or (*study.methods, *study.added_by_full))
    tasks = tasks_of(session, task or study.task)
    for group in [[name] for name in tasks] if study.each_task_alone else [tasks]:
        is_named = study.each_task_alone or (task and task != study.task)
        named = (*(group if is_named else ()), *([f"r{r}"] if r else ()), *named_methods)
        suffix = "".join(f"-{part}" for part in named)
        _REPORTS.get(name, _compare)(session, study, group, suffix)


def _compare(session: Session, study: Study, tasks: Sequence[str], suffix: str) -> None:
    """Runs of several methods, compared with the reference on the same seeds."""
    rows: list[Row] = []
    lines: list[Row] = []
    curves: list[Row] = []
    for task in tasks:
        done = run(session, study, task)
        task_rows = [finished.row for finished in done]
        own_r = study.r or session.settings(task)["r"]
        # Methods without a budget are compared with the reference at that of the task.
        reference = {"method": study.reference} | ({} if study.at_every_budget else {"r": own_r})
        is_compared = any(row["method"] == study.reference for row in task_rows)
        compared_to = reference if is_compared else None
        task_lines = summary(task_rows, ("task", "method", "r"), reference=compared_to)
        rows += task_rows
        lines += task_lines
        curves += [line for finished in done for line in finished.curve]
        title, note = session.settings(task)["title"], study.note if is_compared else ""
        print_summary(task_lines, title=title, columns=("method", "r"), note=note)
    tables = {"": rows, "summary": lines, **({"curves": curves} if study.curves else {})}
    session.store(study.name + suffix, tables)
    if study.figure:
        session.draw(study.figure, lines, suffix)


def _vary(session: Session, study: Study, tasks: Sequence[str], suffix: str) -> None:
    """One setting of LoCA after the other; each row has the name and the value of the setting."""
    rows = [row for task in tasks for row in _sweep(session, study, task)]
    lines = summary(rows, ("task", "setting", "label", "value", "method"))
    session.store(f"{study.name}{suffix}", {"": rows, "summary": lines})
    session.draw(study.figure, lines, suffix)
    for (task, setting), members in group_by(lines, ("task", "setting")).items():
        title = f"{session.settings(task)['title']}: {setting}"
        print_summary(members, title=title, columns=("value", "method"))


def _sweep(session: Session, study: Study, task: str) -> list[Row]:
    """Vary one setting at a time on a task."""
    chosen = session.settings(task)
    plain = {name: Configuration(task, name, chosen["r"]) for name in study.methods}
    rates = session.tune(list(plain.values()), f"{study.name}, {task}")
    # In as many steps components are pruned and regrown at least once.
    period = chosen["coefficient_steps"] + chosen["location_steps"]
    cases = []
    for setting, listed in study.varied.items():
        values = listed or find_method("loca").rates(chosen["grid"], beyond=1)
        for name in study.methods if setting == "alternating" else ("loca",):
            for value in values[1:3] if session.quick else values:
                case, rate = plain[name], rates[plain[name]]
                if setting == "rate":
                    rate = value
                elif setting == "location_rate":
                    case = replace(case, location_rate=value)
                elif setting == "alternating" or value != 1:  # 1 is the usual scaling
                    case = replace(case, loca={setting: value})
                if name == "loca" or value == 0 or round(value * chosen["steps"]) >= period:
                    labels = {"setting": setting, "label": study.labels[setting], "value": value}
                    cases.append((case, rate, labels))
    done = session.run([(case, rate) for case, rate, _ in cases], f"{study.name}, {task}")
    labels = [of_case for *_, of_case in cases for _ in session.seeds_of(task)]
    return [finished.row | of_run for finished, of_run in zip(done, labels, strict=True)]


def _draw_training(session: Session, study: Study, tasks: Sequence[str], suffix: str) -> None:
    """The evaluations on the validation set during the runs."""
    finished = (run_done for task in tasks for run_done in run(session, study, task))
    lines = [line for run_done in finished for line in run_done.curve]
    session.store(f"{study.name}{suffix}", {"": lines})
    session.draw(study.figure, lines, suffix)


def _draw_pictures(session: Session, study: Study, tasks: Sequence[str], suffix: str) -> None:
    """Images of the increments of the first seed's runs."""
    (task,) = tasks
    rows: list[Row] = []
    for finished in run(session, study, task):
        method = find_method(finished.configuration.method)
        if finished.seed == session.seeds_of(task)[0]:
            for layer, picture in finished.result.get("patterns", {}).items():
                about = {"task": task, "method": method.name, "title": method.title, "layer": layer}
                rows += [{**about, "row": i, "values": values} for i, values in enumerate(picture)]
    if not rows:
        raise click.ClickException(
            f"the first run of every method on {task} diverged, so there is nothing to draw"
        )
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
    Parallel(session.jobs)(delayed(prepare)(task, folder, quick=session.quick) for task in tasks)
    cases = [case for task in tasks for case in configurations(session, task, names)]
    rates = session.tune(cases, f"{len(tasks)} tasks")
    rows = [finished.row for finished in session.run(rates.items(), f"{len(tasks)} tasks")]
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
