"""Compare all methods at one budget, tuned alike, over many seeds.

``python -m experiments.comparison`` fine-tunes small pretrained transformers on six tasks; with
``--task text``, a pretrained sentence transformer. Needs
``pip install 'loca-theory[experiments]'``.
"""

from __future__ import annotations

import click

from experiments.finetuning.configurations import (
    MAIN,
    OTHERS,
    TASKS,
    configurations,
    described,
    tasks_of,
)
from experiments.finetuning.methods import find_method
from experiments.finetuning.options import session_command
from experiments.finetuning.printing import print_summary
from experiments.finetuning.session import Finished, Session
from experiments.finetuning.statistics import summary

_REFERENCE = "lora"


def compare(
    session: Session, task: str, names: tuple[str, ...] = MAIN, r: int | None = None
) -> list[Finished]:
    """Tune the learning rate of every method and run it on all seeds."""
    for name in names:
        find_method(name)
    rates = session.tune(configurations(session, task, names, r), f"comparison, {task}")
    return session.run_on_all_seeds(rates.items(), f"comparison, {task}", described(session))


@session_command
@click.option("--task", help=TASKS)
@click.option(
    "--methods", "listed", help="Names, separated by commas.  [default: the main ones, or all]"
)
@click.option(
    "--r", type=click.IntRange(min=1), help="Budget as LoRA's rank.  [default: the task's]"
)
def main(session: Session, task: str | None, listed: str | None, r: int | None) -> None:
    """Compare methods of fine-tuning at one budget.

    Example: python -m experiments.comparison --task digits --methods lora,loca,fourierft
    """
    every = MAIN + OTHERS if session.full else MAIN
    names = tuple(name.strip() for name in (listed or "").split(",") if name.strip()) or every
    for one in tasks_of(session, task):
        _report(session, one, names, r, named=names is not every)


def _report(
    session: Session, task: str, names: tuple[str, ...], r: int | None, *, named: bool
) -> None:
    """Run a comparison, store its tables and print its summary."""
    done = compare(session, task, names, r)
    rows = [one.row for one in done]
    own = r or session.settings(task)["r"]
    reference = {"method": _REFERENCE, "r": own} if _REFERENCE in names else None
    lines = summary(rows, ("task", "method", "r"), reference=reference)
    name = f"comparison-{task}" if r is None else f"comparison-{task}-r{r}"
    if named:
        name += "-" + "-".join(names)
    session.store(
        name, {"": rows, "summary": lines, "curves": [c for one in done for c in one.curve]}
    )
    print_summary(
        lines,
        title=f"{session.settings(task)['title']}, r = {own}",
        note="differences are from LoRA on the same seeds" if reference else "",
    )


if __name__ == "__main__":
    main(prog_name="python -m experiments.comparison")
