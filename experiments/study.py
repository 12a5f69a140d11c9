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
from rich.table import Column, Table

from experiments.finetuning.configurations import (
    TASKS,
    configurations,
    described,
    ranks,
    tasks_of,
)
from experiments.finetuning.methods import find_method
from experiments.finetuning.options import session_command
from experiments.finetuning.printing import number, print_summary, print_table, scale_of
from experiments.finetuning.protocol import Configuration, Row
from experiments.finetuning.session import Finished, Session
from experiments.finetuning.settings import kind_of
from experiments.finetuning.statistics import summary
from experiments.finetuning.tasks import prepare
from experiments.finetuning.verdicts.design_file import MANY_TASKS, read_design
from experiments.paper import load

LABELS = {
    "scaling": r"scaling $\alpha$",
    "alternating": r"$\mathcal{B}_s$, fraction of all steps",
    "rate": "learning rate of coefficients",
    "location_rate": "learning rate of locations",
}


@dataclass(frozen=True)
class Study:
    """A study, as ``studies.toml`` has it.

    Attributes:
        name: Its name, with which the names of its tables begin.
        about: What it does.
        methods: The methods, at the budget of the task.
        more: Methods that are added with ``--full``.
        at_every_budget: Methods that are run at every budget.
        reference: The method that the others are compared with; empty for none.
        note: Note below the printed table.
        figure: Label of the figure that it draws; empty for none.
        task: The task that it is run on by default; empty for all small ones.
        curves: Whether the evaluations during the runs are stored too.
        each_task_alone: Whether each task has tables of its own.
        varied: Settings that are varied one at a time, with their values.
    """

    name: str
    about: str
    methods: tuple[str, ...]
    more: tuple[str, ...] = ()
    at_every_budget: tuple[str, ...] = ()
    reference: str = ""
    note: str = ""
    figure: str = ""
    task: str = ""
    curves: bool = False
    each_task_alone: bool = False
    varied: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@cache
def studies() -> dict[str, Study]:
    """The studies by name."""
    text = Path(__file__).with_name("studies.toml").read_text(encoding="utf-8")
    return {name: Study(name, **entry) for name, entry in tomllib.loads(text).items()}


def run(
    session: Session, study: Study, task: str, methods: Sequence[str] = (), r: int | None = None
) -> list[Finished]:
    """Tune the methods of a study, or others, on a task and run them on all seeds."""
    names, title = tuple(methods or study.methods), f"{study.name.replace('_', ' ')}, {task}"
    wanted = configurations(session, task, names, r)
    for rank in ranks(session) if study.at_every_budget else ():
        wanted += configurations(session, task, study.at_every_budget, rank)
    rates = session.tune(wanted, title)
    return session.run_on_all_seeds(rates.items(), title, described(session))


@session_command
@click.argument("name", type=click.Choice(list(studies())), metavar="NAME")
@click.option("--task", help=TASKS)
@click.option(
    "--methods", "listed", help="Names, separated by commas.  [default: those of the study]"
)
@click.option(
    "--r", type=click.IntRange(min=1), help="Budget as LoRA's rank.  [default: the task's]"
)
def main(session: Session, name: str, task: str | None, listed: str | None, r: int | None) -> None:
    """Run a study of fine-tuning.

    NAME is comparison, ablation, budgets, sensitivity, training_process, patterns or many_tasks.

    Example: python -m experiments.study comparison --task digits --methods lora,loca,fourierft
    """
    study = studies()[name]
    given = tuple(one.strip() for one in (listed or "").split(",") if one.strip())
    if study.more and session.full:
        study = replace(study, methods=(*study.methods, *study.more))
    for one in given:
        find_method(one)
    if (given or r) and not study.each_task_alone:
        msg = f"{name} has methods and budgets of its own; leave out --methods and --r"
        raise click.UsageError(msg)
    if task and name == "many_tasks":
        msg = f"{name} has tasks of its own; leave out --task"
        raise click.UsageError(msg)
    _REPORTS.get(name, _report)(session, study, task, given, r)


def _report(
    session: Session, study: Study, task: str | None, given: tuple[str, ...], r: int | None
) -> None:
    """Runs of several methods, compared with the reference on the same seeds."""
    chosen = tasks_of(session, task or study.task)
    for group in [[one] for one in chosen] if study.each_task_alone else [chosen]:
        rows: list[Row] = []
        lines: list[Row] = []
        curves: list[Row] = []
        for one in group:
            done = run(session, study, one, given, r)
            mine = [finished.row for finished in done]
            reference = _reference(session, study, one, mine, r)
            rows += mine
            lines += summary(mine, ("task", "method", "r"), reference=reference)
            curves += [line for finished in done for line in finished.curve]
        suffix = f"-{task}" if task else ""
        if study.each_task_alone:
            suffix = "-".join((f"-{group[0]}", *([f"r{r}"] if r else []), *given))
        tables = {"": rows, "summary": lines, **({"curves": curves} if study.curves else {})}
        session.store(study.name + suffix, tables)
        if study.figure:
            session.draw(study.figure, lines, suffix)
        for one in group:
            _print(session, study, [line for line in lines if line["task"] == one], r)
        if study.name == "ablation":
            _print_with_paper(lines, group)


def _reference(
    session: Session, study: Study, task: str, rows: Sequence[Row], r: int | None
) -> dict[str, Any] | None:
    """What identifies the runs of the reference; None if it was not run."""
    if not any(row["method"] == study.reference for row in rows):
        return None
    own = {"r": r or session.settings(task)["r"]} if study.each_task_alone else {}
    return {"method": study.reference, **own}


def _print(session: Session, study: Study, lines: Sequence[Row], r: int | None) -> None:
    title = session.settings(lines[0]["task"])["title"]
    if study.each_task_alone:
        title += f", r = {r or session.settings(lines[0]['task'])['r']}"
    else:
        title += ", by budget" if study.at_every_budget else ": accuracy"
    columns = ("method", "r") if study.at_every_budget else ("method",)
    is_compared = any(line["method"] == study.reference for line in lines)
    print_summary(lines, title=title, columns=columns, note=study.note if is_compared else "")


def _print_with_paper(lines: list[Row], chosen: list[str]) -> None:
    """Print the paper's table next to these results."""
    paper = load("ablation")
    printed = Table(box=None, pad_edge=False)
    printed.add_column("variant")
    for name in (*paper.fields, *chosen):
        printed.add_column(name + (" (here)" if name in chosen else ""), justify="right")
    names = {"LoCA": "loca", **{f"V{n}": f"loca-v{n}" for n in range(1, 6)}}
    of = {(line["task"], line["method"]): line for line in lines}
    for row in paper.rows:
        ours = [of[task, names[row.method]] for task in chosen]
        means = [(scale_of(line["measure"])[0], line["mean"]) for line in ours]
        shown = [number(mean and factor * mean) for factor, mean in means]
        cells = [str(row.values[name]) for name in paper.fields]
        printed.add_row(find_method(names[row.method]).title, *cells, *shown)
    print_table(printed, "the paper's table and these results")


def _vary(session: Session, study: Study, task: str | None, *_: Any) -> None:
    """One setting of LoCA after the other; each row has the name and the value of the setting."""
    rows = [row for one in tasks_of(session, task) for row in sweep(session, study, one)]
    lines = summary(rows, ("task", "setting", "label", "value", "method"))
    own = f"-{task}" if task else ""
    session.store(f"{study.name}{own}", {"": rows, "summary": lines})
    session.draw(study.figure, lines, own)
    for one, setting in dict.fromkeys((line["task"], line["setting"]) for line in lines):
        print_summary(
            [line for line in lines if (line["task"], line["setting"]) == (one, setting)],
            title=f"{session.settings(one)['title']}: {setting}",
            columns=("value", "method"),
        )


def sweep(session: Session, study: Study, task: str) -> list[Row]:
    """Vary one setting at a time on a task."""
    chosen = session.settings(task)
    plain = {name: Configuration(task, name, chosen["r"]) for name in study.methods}
    rates = session.tune(list(plain.values()), f"{study.name}, {task}")
    loca, wanted = plain["loca"], []
    for setting, listed in study.varied.items():
        values = listed or find_method("loca").rates(chosen["grid"], beyond=1)
        for name in study.methods if setting == "alternating" else ("loca",):
            for value in values[1:3] if session.quick else values:
                one, rate = plain[name], rates[plain[name]]
                if setting == "rate":
                    rate = value
                elif setting == "location_rate":
                    one = replace(loca, location_rate=value)
                elif setting == "alternating" or value != 1:  # 1 is the usual scaling
                    one = replace(one, loca={setting: value})
                if name == "loca" or _lasts(chosen, value):
                    wanted.append((setting, value, one, rate))
    done = session.run_on_all_seeds(
        [(one, rate) for *_, one, rate in wanted], f"{study.name}, {task}", described(session)
    )
    labels = [entry[:2] for entry in wanted for _ in session.seeds_of(task)]
    return [
        {**one.row, "setting": setting, "label": LABELS[setting], "value": value}
        for (setting, value), one in zip(labels, done, strict=True)
    ]


def _lasts(chosen: Mapping[str, Any], fraction: float) -> bool:
    """Whether components are pruned and regrown at least once in this fraction of the steps."""
    period = chosen["coefficient_steps"] + chosen["location_steps"]
    return fraction == 0 or round(fraction * chosen["steps"]) >= period


def _draw_training(session: Session, study: Study, task: str | None, *_: Any) -> None:
    """The evaluations on the validation set during the runs."""
    chosen = tasks_of(session, task)
    lines = [line for one in chosen for each in run(session, study, one) for line in each.curve]
    own = f"-{task}" if task else ""
    session.store(f"{study.name}{own}", {"": lines})
    session.draw(study.figure, lines, own)


def _draw_pictures(session: Session, study: Study, task: str | None, *_: Any) -> None:
    """Images of the increments of the first seed's runs."""
    task = task or study.task
    first = session.seeds_of(task)[0]
    found = {
        one.configuration.method: one.result["increments"]["patterns"]
        for one in run(session, study, task)
        if one.seed == first and "increments" in one.result
    }
    if not found:
        msg = f"the first run of every method on {task} diverged, so there is nothing to draw"
        raise click.ClickException(msg)
    rows = [
        {"task": task, "method": method, "title": find_method(method).title, "layer": layer,
         "row": number, "values": values}
        for method, pictures in found.items()
        for layer, picture in pictures.items()
        for number, values in enumerate(picture)
    ]  # fmt: skip
    own = "" if task == study.task else f"-{task}"
    session.store(f"{study.figure}{own}", {"": rows})
    session.draw(study.figure, rows, own)


def _compare_many_tasks(session: Session, study: Study, *_: Any) -> None:
    """The second design: tasks with random data, whose verdicts ``experiments.design`` prints."""
    design = read_design(MANY_TASKS)
    if session.seeds is None and not session.quick:
        session = replace(session, seeds=design.seeds[""])
    names = tuple(dict.fromkeys(arm.method for _, arm in design.arms()))
    tasks = design.tasks[:2] if session.quick else design.tasks
    session.say(f"preparing {len(tasks)} tasks")
    folder = session.out / "tasks"
    Parallel(session.jobs)(delayed(prepare)(one, folder, quick=session.quick) for one in tasks)
    wanted = [one for task in tasks for one in configurations(session, task, names)]
    rates = session.tune(wanted, f"{len(tasks)} tasks")
    rows = [one.row for one in session.run_on_all_seeds(rates.items(), f"{len(tasks)} tasks")]
    lines = summary(rows, ("task", "method", "r"), reference={"method": study.reference})
    session.store(study.name.replace("_", "-"), {"": rows, "summary": lines})
    kinds = dict.fromkeys(kind_of(task) for task in tasks)
    columns = [Column(kind, justify="right") for kind in (*kinds, "all")]
    table = Table("method", *columns, box=None, pad_edge=False)
    for name in names:
        mine = [line for line in lines if line["method"] == name]
        of_kind = ([line for line in mine if kind_of(line["task"]) == kind] for kind in kinds)
        table.add_row(name, *map(_mean, of_kind), _mean(mine))
    note = f"for the verdicts: python -m experiments.design {session.folder}"
    print_table(table, f"mean accuracy over {len(tasks)} random tasks, %", note)


def _mean(lines: Sequence[Row]) -> str:
    """Mean over the tasks, in percent; a dash if every run on one diverged."""
    means = [line["mean"] for line in lines]
    return number(None if None in means else 100 * sum(means) / len(means), 1)


_REPORTS: dict[str, Callable[..., None]] = {
    "sensitivity": _vary,
    "training_process": _draw_training,
    "patterns": _draw_pictures,
    "many_tasks": _compare_many_tasks,
}


if __name__ == "__main__":
    main(prog_name="python -m experiments.study")
