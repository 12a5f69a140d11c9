"""Analyse fine-tunes of language models on the hub, beside what was published of them.

``python -m experiments.published.hub`` lists them; a name downloads and analyses that pair, matrix
by matrix, so that a killed run continues.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np

from experiments.published.files import FILE
from experiments.tables import Row, in_words
from loca_theory._lookup import find
from loca_theory.checkpoints import Analysis, analyze
from loca_theory.cli.command import Command
from loca_theory.cli.options import Folder
from loca_theory.sweeps import ResultStore, Runner

PAIRS = Path(__file__).with_name("hub.toml")
LEADING = 10  # singular vectors that may be intruders


def measured(result: Analysis) -> Iterator[Row]:
    """By fine-tune: what the published statements are about."""
    for label in result.tuned:
        matrices = [matrix for matrix in result.matrices if matrix.tuned == label]
        sizes = [math.prod(matrix.shape) for matrix in matrices]
        changed = [1 - matrix.zero_fraction for matrix in matrices]
        yield {
            "fine-tune": label,
            "matrices": len(matrices),
            "entries changed in them": float(np.average(changed, weights=sizes)),
            "norm of ΔW": math.sqrt(sum(matrix.energy or 0.0 for matrix in matrices)),
            "mean effective rank": float(np.mean([matrix.effective_rank for matrix in matrices])),
            "median rank of 90 %": float(np.median([matrix.rank_90 for matrix in matrices])),
            # Those like none of the 40 leading vectors of the base's matrix: an upper bound.
            "intruders at most": sum(matrix.intruders or 0 for matrix in matrices),
        }


@click.command(cls=Command)
@click.argument("name", required=False)
@click.option(
    "--out",
    type=Folder(file_okay=False),
    default="hub",
    show_default=True,
    help="Folder for the tables, and for finished matrices.",
)
@click.option("--device", default="auto", show_default=True)
@click.option("--pairs", type=FILE, default=PAIRS, help="Another list, in the form of hub.toml.")
def main(name: str | None, out: Path, device: str, pairs: Path) -> None:
    """List the pairs, or analyse the one with this NAME.

    Example: python -m experiments.published.hub qwen2.5-0.5b --out qwen
    """
    listed = tomllib.loads(pairs.read_text(encoding="utf-8"))
    if name is None:
        for key, entry in listed.items():
            click.echo(f"{key} ({entry['gigabytes']} GB): {', '.join(entry['tuned'])}")
        return
    pair = find("pair", name, listed)
    runner = Runner(store=ResultStore(out / "points"))
    result = analyze(
        pair["base"], *pair["tuned"], ranks=[8, 64], subspaces=LEADING, device=device, runner=runner
    )
    result.save(out)
    click.echo(f"published: {pair['published']}")
    for row in measured(result):
        click.echo(in_words(row))
    click.echo(result.verdict)


if __name__ == "__main__":
    main(prog_name="python -m experiments.published.hub")
