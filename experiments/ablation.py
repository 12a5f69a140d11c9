"""The paper's table ``ablation``: its variants of the location search, and better searches.

Needs ``pip install 'loca-theory[experiments]'``.
"""

from __future__ import annotations

import click
from rich.table import Table

from experiments.finetuning.configurations import (
    SEARCHES,
    TASKS,
    VARIANTS,
    configurations,
    described,
    tasks_of,
)
from experiments.finetuning.methods import find_method
from experiments.finetuning.options import session_command
from experiments.finetuning.printing import number, print_summary, print_table, scale_of
from experiments.finetuning.protocol import Row
from experiments.finetuning.session import Finished, Session
from experiments.finetuning.statistics import summary
from experiments.paper.tables import load


def sweep(session: Session, task: str) -> list[Finished]:
    """Run every variant and search at the task's budget."""
    rates = session.tune(configurations(session, task, VARIANTS + SEARCHES), f"ablation, {task}")
    return session.run_on_all_seeds(rates.items(), f"ablation, {task}", described(session))


@session_command
@click.option("--task", help=TASKS)
def main(session: Session, task: str | None) -> None:
    """Compare ways of learning the locations.

    Example: python -m experiments.ablation --seeds 10
    """
    chosen = tasks_of(session, task)
    done = {name: sweep(session, name) for name in chosen}
    rows = [one.row for found in done.values() for one in found]
    lines = []
    for found in done.values():
        mine = [one.row for one in found]
        lines += summary(mine, ("task", "method", "r"), reference={"method": "loca-v1"})
    curves = [line for found in done.values() for one in found for line in one.curve]
    own = f"-{task}" if task else ""
    session.store("ablation" + own, {"": rows, "summary": lines, "curves": curves})
    for name in chosen:
        print_summary(
            [line for line in lines if line["task"] == name],
            title=f"{session.settings(name)['title']}: accuracy",
            note="differences are from V1, random locations, on the same seeds",
        )
    _print_with_paper(lines, chosen)


def _print_with_paper(lines: list[Row], chosen: list[str]) -> None:
    """Print the paper's table next to these results."""
    paper = load("ablation")
    printed = Table(box=None, pad_edge=False)
    printed.add_column("variant")
    for name in (*paper.fields, *chosen):
        printed.add_column(name + (" (here)" if name in chosen else ""), justify="right")
    names = {"LoCA": "loca", **{f"V{n}": f"loca-v{n}" for n in range(1, 6)}}
    for row in paper.rows:
        ours = [
            next(
                line
                for line in lines
                if (line["task"], line["method"]) == (task, names[row.method])
            )
            for task in chosen
        ]
        factors = [scale_of(line["measure"])[0] for line in ours]
        means = [line["mean"] for line in ours]
        shown = [number(m and f * m) for f, m in zip(factors, means, strict=True)]
        cells = [str(row.values[name]) for name in paper.fields]
        printed.add_row(find_method(names[row.method]).title, *cells, *shown)
    print_table(printed, "the paper's table and these results")


if __name__ == "__main__":
    main(prog_name="python -m experiments.ablation")
