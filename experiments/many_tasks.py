"""Run the second design: LoCA with and without its search, LoRA, FourierFT on many random tasks.

``experiments/many-tasks.toml`` names the methods, the tasks and the seeds. The tasks are variants
of the small ones with random data; ``python -m experiments.design`` prints the verdicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from joblib import Parallel, delayed
from rich.table import Column, Table

from experiments.finetuning.configurations import configurations
from experiments.finetuning.options import session_command
from experiments.finetuning.printing import number, print_table
from experiments.finetuning.protocol import Row
from experiments.finetuning.session import Session
from experiments.finetuning.statistics import summary
from experiments.finetuning.tasks import prepare
from experiments.finetuning.verdicts.design_file import MANY_TASKS, read_design


@session_command
def main(session: Session) -> None:
    """Compare methods on many random tasks.

    Example: python -m experiments.many_tasks --jobs 2
    """
    design = read_design(MANY_TASKS)
    if session.seeds is None and not session.quick:
        session = replace(session, seeds=design.seeds[""])
    names = tuple(dict.fromkeys(arm.method for _, arm in design.arms()))
    tasks = design.tasks[:2] if session.quick else design.tasks
    session.say(f"preparing {len(tasks)} tasks")
    prepared = (
        delayed(prepare)(task, session.out / "tasks", quick=session.quick) for task in tasks
    )
    Parallel(session.jobs)(prepared)
    wanted = [one for task in tasks for one in configurations(session, task, names)]
    rates = session.tune(wanted, f"{len(tasks)} tasks")
    rows = [one.row for one in session.run_on_all_seeds(rates.items(), f"{len(tasks)} tasks")]
    lines = summary(rows, ("task", "method", "r"), reference={"method": "loca-v1"})
    session.store("many-tasks", {"": rows, "summary": lines})
    kinds = dict.fromkeys(_kind(task) for task in tasks)
    columns = [Column(kind, justify="right") for kind in (*kinds, "all")]
    table = Table("method", *columns, box=None, pad_edge=False)
    for name in names:
        mine = [line for line in lines if line["method"] == name]
        table.add_row(name, *(_mean(mine, kind) for kind in kinds), _mean(mine))
    note = f"for the verdicts: python -m experiments.design {session.folder}"
    print_table(table, f"mean accuracy over {len(tasks)} random tasks, %", note)


def _kind(task: str) -> str:
    """The task that a variant is drawn from."""
    return task.rpartition("-")[0]


def _mean(lines: Sequence[Row], kind: str | None = None) -> str:
    """Mean over the tasks of a kind, or over all."""
    means = [line["mean"] for line in lines if kind in (None, _kind(line["task"]))]
    known = [mean for mean in means if mean is not None]
    return number(100 * sum(known) / len(known), 1) if len(known) == len(means) else "–"


if __name__ == "__main__":
    main(prog_name="python -m experiments.many_tasks")
