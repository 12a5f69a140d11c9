"""Overhead of the sweep engine, and speed-up by a second worker.

Run from the checkout: ``python -m benchmarks.sweeps [--out FILE.json]``.

- *overhead*: cells of about 50 ms in the engine, each stored in a file, compared with a plain loop
  over the same calls, both in this process on one thread.
- *workers*: the appendix's draws of one structure at 9 values with one and with two workers, each
  on one BLAS thread so that they use at most two cores; a loop over the same blocks with BLAS on
  all cores, as one would write it without an engine; and the whole study with its search for
  crossings. The workers are started before the measurement, which takes about 2 s.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from rich.console import Console
from threadpoolctl import threadpool_limits

from benchmarks._measure import Rival, environment, interleaved, print_rows
from benchmarks._records import write_json
from loca_theory.dependence.draws import DrawCell, evaluate
from loca_theory.dependence.structures import STRUCTURES
from loca_theory.dependence.study import Study
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

    timings = interleaved({"bare loop": Rival(loop), "engine": Rival(engine)}, block_seconds=0)
    bare = timings["bare loop"]
    return [
        {"what": name, **timing.as_record(), "ratio_to_loop": timing.ratio_to(bare)}
        for name, timing in timings.items()
    ]


def measure_workers(rounds: int) -> list[dict[str, Any]]:
    """Measure a whole structure of the appendix with one and with two workers."""
    grid = tuple(i / 20 for i in range(9))
    study = Study(
        300,
        300,
        (8, 16, 24, 32),
        structures=("equicorrelated",),
        rho=grid,
        null_draws=500,
    )
    blocks = [
        DrawCell(STRUCTURES["equicorrelated"], value, 300, 300, study.ranks, 0, (start, start + 25))
        for value in grid
        for start in range(0, 100, 25)
    ]

    one, two = Runner(jobs=1), Runner(jobs=2)

    def all_threads() -> None:
        for block in blocks:
            evaluate(block)

    timings = interleaved(
        {
            "draws, one worker": Rival(lambda: one.run(blocks, evaluate)),
            "draws, two workers": Rival(lambda: two.run(blocks, evaluate)),
            "draws, a loop, BLAS on all cores": Rival(all_threads),
            "study, one worker": Rival(lambda: study.run(one)),
            "study, two workers": Rival(lambda: study.run(two)),
        },
        rounds=rounds,
        block_seconds=0,
    )
    return [
        {
            "what": name,
            **timing.as_record(),
            "ratio_to_one_worker": timing.ratio_to(timings[f"{name.split(',')[0]}, one worker"]),
        }
        for name, timing in timings.items()
    ]


@click.command()
@click.option("--out", type=click.Path(path_type=Path), help="File for the results as JSON.")
@click.option("--rounds", default=3, show_default=True, help="Rounds of the long measurement.")
def main(out: Path | None, rounds: int) -> None:
    """Measure overhead and speed-up, and print the results."""
    record: dict[str, Any] = {"environment": environment(PACKAGES)}
    console = Console()
    record["overhead"] = measure_overhead()
    print_rows(console, "overhead", record["overhead"])
    record["workers"] = measure_workers(rounds)
    print_rows(console, "workers", record["workers"])
    if out is not None:
        write_json(out, record)


if __name__ == "__main__":
    main()
