"""The paper's figure ``budget``: accuracy against budget, every method tuned at every budget.

Needs ``pip install 'loca-theory[experiments]'``.
"""

from __future__ import annotations

import click

from experiments.finetuning.configurations import (
    BUDGETED,
    TASKS,
    configurations,
    described,
    ranks,
    tasks_of,
)
from experiments.finetuning.options import session_command
from experiments.finetuning.printing import print_summary
from experiments.finetuning.session import Finished, Session
from experiments.finetuning.statistics import summary

# Methods without a budget, which bound the results of the others.
_FRAME = ("linear-probing", "full")


def sweep(session: Session, task: str) -> list[Finished]:
    """Run every method at every budget, and the two methods without a budget."""
    wanted = configurations(session, task, _FRAME)
    for r in ranks(session):
        wanted += configurations(session, task, BUDGETED, r)
    rates = session.tune(wanted, f"budgets, {task}")
    return session.run_on_all_seeds(rates.items(), f"budgets, {task}", described(session))


@session_command
@click.option("--task", help=TASKS)
def main(session: Session, task: str | None) -> None:
    """Compare LoRA, FourierFT and LoCA at several budgets.

    Example: python -m experiments.budgets --seeds 10
    """
    chosen = tasks_of(session, task)
    rows, lines = [], []
    for name in chosen:
        found = [one.row for one in sweep(session, name)]
        rows += found
        lines += summary(found, ("task", "method", "r"), reference={"method": "lora"})
    own = f"-{task}" if task else ""
    session.store("budgets" + own, {"": rows, "summary": lines})
    session.draw("budget", lines, own)
    for name in chosen:
        print_summary(
            [line for line in lines if line["task"] == name],
            title=f"{session.settings(name)['title']}, by budget",
            columns=("method", "r"),
            note="differences are from LoRA of the same r on the same seeds",
        )


if __name__ == "__main__":
    main(prog_name="python -m experiments.budgets")
