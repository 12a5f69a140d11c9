"""What ``loca-theory unmerge`` finds of LoRAs that PEFT trained and merged, and of what is none.

``python -m experiments.unmerged --data FOLDER`` trains LoRAs of four ranks at three learning rates
on a pretrained MiniLM (docstrings, classified by package), merges each into bfloat16 and float16 in
three ways, and unmerges it: ``unmerged-adapters`` has a row for each layer. ``unmerged-negatives``
has one for each matrix of trainings in bfloat16, DoRA and SHiRA and, with ``--data``,
``unmerged-published`` of published fine-tunes; the folder holds the wheels of
:mod:`experiments.published`.
"""

from __future__ import annotations

from pathlib import Path

import click
import peft
import torch

from experiments.extracted import Row
from experiments.unmerged.merges import lora_rows
from experiments.unmerged.negatives import published, trained
from experiments.unmerged.training import TARGETS, train
from loca_theory.cli.command import Command
from loca_theory.cli.options import Folder
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.tables import store_rows

RANKS, RATES = (4, 8, 16, 32), (1e-4, 3e-4, 1e-3)
STEPS = 60
_ALPHA = 16


def adapters(steps: int, *, quick: bool) -> list[Row]:
    """The rows of all trained LoRAs."""
    rows = list[Row]()
    for rank in RANKS[: 1 if quick else None]:
        for rate in RATES[2:] if quick else RATES:
            config = peft.LoraConfig(r=rank, lora_alpha=_ALPHA, target_modules=TARGETS)
            model = train(
                lambda base, config=config: peft.get_peft_model(base, config),
                rate=rate, steps=steps, seed=rank,
            )  # fmt: skip
            factors = peft.get_peft_model_state_dict(model)
            trained_rows = list(lora_rows(config, factors))
            rows += [{"rank": rank, "rate": rate, **row} for row in trained_rows]
            right = sum(row["found_rank"] == rank for row in trained_rows)
            click.echo(f"rank {rank}, rate {rate:g}: {right} of {len(trained_rows)} right")
    return rows


@click.command(cls=Command)
@click.option("--data", type=Folder(exists=True, file_okay=False), help="Folder with the wheels.")
@click.option("--out", type=Folder(file_okay=False), default="figures/unmerged", show_default=True)
@click.option("--steps", type=click.IntRange(min=1), default=STEPS, show_default=True)
@click.option("--quick", is_flag=True, help="One training of each kind.")
@click.option("--skip", multiple=True, type=click.Choice(("adapters", "negatives", "published")))
def main(data: Path | None, out: Path, steps: int, *, quick: bool, skip: tuple[str, ...]) -> None:
    """Train, merge and unmerge adapters, and store a table for each question.

    Example: python -m experiments.unmerged --data wheels
    """
    torch.set_num_threads(1)
    tables = {
        "adapters": lambda: adapters(steps, quick=quick),
        "negatives": lambda: list(trained(steps, quick=quick)),
        "published": lambda: list(published(data)) if data else [],
    }
    made = manifest(grid={"ranks": RANKS, "rates": RATES, "steps": steps, "quick": quick}, seed=0)
    for name, measure in tables.items():
        if name not in skip and (rows := measure()):
            store_rows(rows, made, out, f"unmerged-{name}")
            claimed = sum(row.get("found_rank") is not None for row in rows)
            click.echo(f"{name}: {len(rows)} rows, a rank claimed in {claimed}")


if __name__ == "__main__":
    main(prog_name="python -m experiments.unmerged")
