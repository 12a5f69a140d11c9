"""Overhead of the sweep engine, and speed-up by a second worker.

Run from the checkout: ``python -m benchmarks.sweeps [--out FILE.json]``.

- *overhead*: cells of about 50 ms in the engine, each stored in a file, compared with a plain loop
  over the same calls, both in this process on one thread.
- *workers*: a study of one structure of the appendix at 9 values, with its search for crossings,
  by one and by two workers with one BLAS thread each. The workers are started before the
  measurement, which takes about 2 s.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks._measure import Rival, timed
from benchmarks._record import OUT, Record
from loca_theory.dependence.study import correlate
from loca_theory.sweeps import Cell, ResultStore, Runner

PACKAGES = ("numpy", "scipy", "torch", "joblib")
_CELLS = 60


@dataclass(frozen=True)
class WorkCell(Cell):
    """Work of about 50 ms."""

    experiment = "benchmark"

    seed: int


def work(cell: WorkCell) -> dict[str, Any]:
    """Compute eigenvalues for about 50 ms."""
    matrix = np.random.default_rng(cell.seed).standard_normal((260, 260))
    largest = [float(np.linalg.eigvalsh(matrix @ matrix.T + i)[-1]) for i in range(18)]
    return {"largest": largest}


def measure_overhead() -> list[dict[str, Any]]:
    """Compare the engine with a store and a bare loop."""
    cells = [WorkCell(seed) for seed in range(_CELLS)]

    def engine() -> None:
        with tempfile.TemporaryDirectory() as folder:
            Runner(ResultStore(folder), jobs=1).run(cells, work)

    def loop() -> None:
        torch.set_num_threads(1)
        with threadpool_limits(1):
            for cell in cells:
                work(cell)

    rivals = {"bare loop": Rival(loop), "engine": Rival(engine)}
    return timed(rivals, "bare loop", "ratio_to_loop", block_seconds=0)


def measure_workers(rounds: int) -> list[dict[str, Any]]:
    """Measure a whole structure of the appendix with one and with two workers."""
    study = partial(
        correlate,
        300,
        ranks=(8, 16, 24, 32),
        structures="equicorrelated",
        rho=tuple(i / 20 for i in range(9)),
        null_draws=500,
    )
    rivals = {
        name: Rival(partial(study, runner=Runner(jobs=jobs)))
        for jobs, name in enumerate(("one worker", "two workers"), start=1)
    }
    return timed(rivals, "one worker", "ratio_to_one_worker", rounds=rounds, block_seconds=0)


@click.command()
@OUT
@click.option("--rounds", default=3, show_default=True, help="Rounds of the long measurement.")
def main(out: Path | None, rounds: int) -> None:
    """Measure overhead and speed-up, and print the results."""
    record = Record(out, PACKAGES)
    record.add("overhead", "", measure_overhead)
    record.add("workers", "", lambda: measure_workers(rounds))


if __name__ == "__main__":
    main()
