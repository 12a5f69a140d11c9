r"""When is ΔW of low rank, and when like independent entries?

Full fine-tunes over optimiser, learning rate, steps, batch, size of the training set and kind of
layer. The energy fraction of the r largest singular values is, for independent entries, that of the
Marchenko–Pastur law, and low rank retains more than the best cosine coefficients of the same budget
where it exceeds f + 2zφ(z) (see :func:`~loca_theory.expressivity.compare_with_low_rank`). Why the
optimiser should matter most is in docs/theory/low-rank-increments.md.

Needs ``pip install 'loca-theory[experiments]'``.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from experiments.finetuning.low_rank.fine_tunes import ALL, TrainingGrid, compute, point
from experiments.finetuning.low_rank.tables import (
    INDEPENDENT,
    LABELS,
    STATISTICS,
    factor_rows,
    matrix_rows,
    statistics_rows,
)
from experiments.finetuning.printing import print_table
from experiments.finetuning.session import Session, session_command
from experiments.finetuning.statistics import Row, grouped
from experiments.finetuning.tasks.prepared import load
from loca_theory.errors import InvalidArgumentError

_SMALL = TrainingGrid(
    rates={"SGD": 3e-2, "Adam": 1e-3, "AdamW": 1e-3},
    default={"steps": 200, "batch": 32, "examples": 300},
    multiples=(0.1, 0.3, 1, 3),
    varied={"steps": (50, 200, 800), "batch": (8, 32, 128), "examples": (50, 300, None)},
)
_LARGE = TrainingGrid(
    rates={"SGD": 3e-2, "Adam": 1e-4, "AdamW": 1e-4},
    default={"steps": 100, "batch": 16},
    seeds=2,
)
_QUICK = TrainingGrid(
    rates=_SMALL.rates,
    default={"steps": 4, "batch": 8, "examples": 20},
    multiples=(0.3, 1),
    varied={"steps": (2, 4)},
    seeds=2,
)
TASKS = ("digits", "docstrings")
_EXPENSIVE, _NO_CLASSES = "text", "generation"


def sweep(session: Session, task: str) -> tuple[list[Row], list[Row], list[Row]]:
    """Run every training of a task on all seeds, and controls with independent entries."""
    grid = _QUICK if session.quick else _LARGE if task == _EXPENSIVE else _SMALL
    chosen = session.settings(task)
    if chosen["module"] == _NO_CLASSES:
        msg = "only tasks with one label per example are fine-tuned here, not language models; "
        raise InvalidArgumentError(msg + "choose a task such as digits")
    prepared, seeds = session.prepared(task), session.seeds or grid.seeds
    cases = grid.cases(len(load(*prepared)[0]["train"]["labels"]))
    trainings = [*dict.fromkeys(case.training for case in cases), None]
    wanted = [(training, seed) for training in trainings for seed in range(seeds)]
    device = session.resolved_device
    points = [point(task, prepared, chosen, *one, device) for one in wanted]
    title = f"full fine-tunes, {task}"
    results = session.compute(points, compute, title, is_long=not session.quick)
    matrices: list[Row] = []
    ranks: list[Row] = []
    for one, result in zip(wanted, results, strict=True):
        found = matrix_rows(task, *one, result)
        matrices += found[0]
        ranks += found[1]
    return factor_rows(task, cases, matrices, ranks, seeds), matrices, ranks


@session_command
@click.option(
    "--task", help="Any but generation.  [default: digits and docstrings; with --full also text]"
)
def main(session: Session, task: str | None = None) -> None:
    """Measure the increments of full fine-tunes over optimiser, rate, steps, batch and data.

    Example: python -m experiments.low_rank --task digits
    """
    full = (*TASKS, _EXPENSIVE) if session.full else TASKS[:1] if session.quick else TASKS
    found = [sweep(session, name) for name in ([task] if task else full)]
    lines, matrices, ranks = (
        [row for rows in one for row in rows] for one in zip(*found, strict=True)
    )
    statistics = statistics_rows(matrices)
    suffix = f"-{task}" if task else ""
    tables = {"": lines, "statistics": statistics, "matrices": matrices, "ranks": ranks}
    session.store(f"low_rank{suffix}", tables)
    session.draw("low_rank", lines, suffix)
    for name in dict.fromkeys(line["task"] for line in lines):
        title = f"{session.settings(name)['title']}: increments of full fine-tunes"
        shown = [row for row in statistics if row["task"] == name and row["kind"] == ALL]
        _print(title, shown)


def _print(title: str, statistics: Sequence[Row]) -> None:
    rows = []
    for key, lines in grouped(statistics, LABELS[1:]).items():
        means = {row["statistic"]: row["mean"] for row in lines}
        rows.append((*key, *map(means.get, STATISTICS)))
    note = "means over matrices and seeds; rank_50, rank_90, rank_99: ranks for that percentage of "
    note += "the energy, and effective_rank, in units of min(p, q);\nrelative_norm: ‖ΔW‖/‖W₀‖; tv: "
    note += "total variation of the entries from a normal law; mp_distance: Kolmogorov distance "
    note += f"from the Marchenko–Pastur law;\n{INDEPENDENT}: matrices of independent normal entries"
    print_table(title, LABELS[1:2], (*LABELS[2:], *STATISTICS), rows, note)


if __name__ == "__main__":
    main(prog_name="python -m experiments.low_rank")
