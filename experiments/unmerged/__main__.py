"""What ``loca-theory unmerge`` finds of LoRAs that PEFT trained and merged, and of what is none.

``python -m experiments.unmerged --data FOLDER`` trains LoRAs of four ranks at three learning rates
on a pretrained MiniLM (docstrings, classified by package), merges each into bfloat16 and float16 in
three ways, and unmerges it: ``unmerged-adapters`` has a row for each layer. ``unmerged-negatives``
has one for each matrix of trainings in bfloat16, DoRA and SHiRA and, with ``--data``,
``unmerged-published`` of published fine-tunes; the folder holds the wheels of
:mod:`experiments.published`. With ``--points FOLDER`` a killed run continues.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import click
import peft
import torch

from experiments.tables import Row
from experiments.unmerged.merges import lora_rows
from experiments.unmerged.negatives import (
    HALF_RATES,
    OTHERS,
    PUBLISHED,
    of_adapter,
    of_all_weights,
    of_published,
)
from experiments.unmerged.training import TARGETS, train
from loca_theory.cli.command import Command
from loca_theory.cli.options import Folder
from loca_theory.sweeps import Runner
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.store import Point
from loca_theory.sweeps.tables import store_rows

RANKS, RATES = (4, 8, 16, 32), (1e-4, 3e-4, 1e-3)
STEPS = 60
_ALPHA = 16
_PACKAGES = ("experiments.unmerged", "loca_theory.checkpoints", "loca_theory.rounding")


Parts = list[tuple[dict[str, Any], Callable[[], Iterable[Row]]]]
"""The tables to compute, as plain data, and their functions."""


def adapters(rank: int, rate: float, steps: int) -> list[Row]:
    """The rows of a trained LoRA."""
    config = peft.LoraConfig(r=rank, lora_alpha=_ALPHA, target_modules=TARGETS)
    model = train(lambda base: peft.get_peft_model(base, config), rate=rate, steps=steps, seed=rank)
    factors = peft.get_peft_model_state_dict(model)
    rows = [{"rank": rank, "rate": rate, **row} for row in lora_rows(config, factors)]
    right = sum(row["found_rank"] == rank for row in rows)
    click.echo(f"rank {rank}, rate {rate:g}: {right} of {len(rows)} right")
    return rows


def parts(data: Path | None) -> dict[str, Parts]:
    """The parts of each table."""
    trainings = [({"rate": rate}, partial(of_all_weights, rate, STEPS)) for rate in HALF_RATES]
    of_other_types = [
        ({"kind": kind, "seed": seed}, partial(of_adapter, kind, seed, STEPS))
        for kind, seed in itertools.product(OTHERS, range(2))
    ]
    return {
        "adapters": [
            ({"rank": rank, "rate": rate}, partial(adapters, rank, rate, STEPS))
            for rank, rate in itertools.product(RANKS, RATES)
        ],
        "negatives": [*trainings, *of_other_types],
        "published": [
            ({"study": study}, partial(of_published, data, study)) for study in PUBLISHED if data
        ],
    }


def computed(name: str, table: Parts, runner: Runner) -> list[Row]:
    """The rows of a table; parts that the runner has stored are not computed again."""
    rows = list[Row]()
    for parameters, measure in table:
        point = Point(f"unmerged.{name}", parameters, _PACKAGES)
        (result,) = runner.run([point], lambda _, measure=measure: {"rows": list(measure())})
        rows += result["rows"]
    return rows


@click.command(cls=Command)
@click.option("--data", type=Folder(exists=True, file_okay=False), help="Folder with the wheels.")
@click.option("--out", type=Folder(file_okay=False), default="figures/unmerged", show_default=True)
@click.option("--points", type=Folder(file_okay=False), help="Where finished parts are stored.")
def main(data: Path | None, out: Path, points: Path | None) -> None:
    """Train, merge and unmerge adapters, and store a table for each question.

    Example: python -m experiments.unmerged --data wheels
    """
    torch.set_num_threads(1)
    about = manifest(grid={"ranks": RANKS, "rates": RATES, "steps": STEPS}, seed=0)
    runner = Runner(points, jobs=1, progress=False)
    for name, table in parts(data).items():
        if rows := computed(name, table, runner):
            store_rows(rows, about, out, f"unmerged-{name}")
            claimed = sum(row.get("found_rank") is not None for row in rows)
            click.echo(f"{name}: {len(rows)} rows, a rank claimed in {claimed}")


if __name__ == "__main__":
    main(prog_name="python -m experiments.unmerged")
