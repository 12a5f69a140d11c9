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

from experiments.finetuning.low_rank.fine_tunes import ALL, Training, TrainingGrid, compute, point
from experiments.finetuning.low_rank.tables import (
    INDEPENDENT,
    LABELS,
    Done,
    factor_rows,
    matrix_rows,
    prediction,
    statistics_rows,
)
from experiments.finetuning.printing import number, print_table
from experiments.finetuning.session import Session, session_command
from experiments.finetuning.statistics import Row, grouped
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
    varied={"steps": (2,)},
    seeds=2,
)
TASKS = ("digits", "docstrings")
_EXPENSIVE, _NO_CLASSES = "text", "generation"
# Statistics that are printed: the heading and the number of digits.
_SHOWN = {
    "accuracy": ("accuracy", 3), "rank_50": ("r50", 2), "rank_90": ("r90", 2),
    "rank_99": ("r99", 2), "effective_rank": ("effective", 2), "relative_norm": ("norm", 3),
    "tv": ("TV", 3), "mp_distance": ("MP", 3),
}  # fmt: skip


def sweep(session: Session, task: str) -> tuple[list[Row], list[Row], list[Row]]:
    """Run every training of a task on all seeds, and controls with independent entries."""
    grid = _QUICK if session.quick else _LARGE if task == _EXPENSIVE else _SMALL
    chosen = session.settings(task)
    if chosen["module"] == _NO_CLASSES:
        msg = "only tasks with one label per example are fine-tuned here, not language models; "
        raise InvalidArgumentError(msg + "choose a task such as digits")
    cases, prepared = grid.cases(), session.prepared(task)
    trainings: list[Training | None] = [*dict.fromkeys(case.training for case in cases), None]
    wanted = [(one, seed) for one in trainings for seed in range(session.seeds or grid.seeds)]
    points = [point(prepared, chosen, *one, session.resolved_device) for one in wanted]
    title = f"full fine-tunes, {task}"
    results = session.compute(points, compute, title, is_long=not session.quick)
    runs: dict[Training | None, list[Done]] = {}
    tables: tuple[list[Row], list[Row]] = ([], [])
    for (training, seed), result in zip(wanted, results, strict=True):
        run = {"task": task, "seed": seed, **result}
        runs.setdefault(training, []).append(run)
        for rows, own in zip(tables, matrix_rows(training, run), strict=True):
            rows += own
    return factor_rows(cases, runs), *tables


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
        _print(title, shown, prediction(row for row in ranks if row["task"] == name))


def _print(title: str, statistics: Sequence[Row], found: Row) -> None:
    headings = (*LABELS[2:], *(heading for heading, _ in _SHOWN.values()))
    rows = []
    for (optimizer, *numbers), lines in grouped(statistics, LABELS[1:]).items():
        means = {row["statistic"]: row["mean"] for row in lines}
        cells = ["" if value is None else f"{value:g}" for value in numbers]
        values = [number(means.get(name), digits) for name, (_, digits) in _SHOWN.items()]
        rows.append((optimizer, *cells, *values))
    note = "means over matrices and seeds; r50, r90, r99: ranks for that percentage of the energy, "
    note += "and effective: effective rank, in units of min(p, q);\nnorm: ‖ΔW‖/‖W₀‖; TV: total "
    note += "variation of the entries from a normal law; MP: Kolmogorov distance from the "
    note += f"Marchenko–Pastur law; {INDEPENDENT}: matrices of independent normal entries"
    if found["count"]:
        note += "\nlow rank or the best cosine coefficients: the singular values alone predict in "
        note += f"{found['right']:,} of {found['count']:,} cases (matrix and rank) which retains "
        note += f"more;\nthe coefficients retain {100 * found['excess']:+.1f} points more than "
        note += f"predicted on average, {100 * found['error']:.1f} in modulus"
    print_table(title, LABELS[1:2], headings, rows, note)


if __name__ == "__main__":
    main(prog_name="python -m experiments.low_rank")
