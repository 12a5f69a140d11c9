"""What fine-tunes still know when the changes of their linear layers are coded at equal bits.

``python -m experiments.coded pair`` takes fine-tunes that ``experiments.minilm`` made, one or more
of different seeds. It codes the increments of their linear layers in several bases, adds what is
decoded to the base, and measures the accuracy on the docstrings of unseen files, with the
fine-tune's head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch

from experiments.minilm import Pair
from loca_theory.cli.command import Command
from loca_theory.expressivity.coders.coder import Transform
from loca_theory.expressivity.coders.registry import CODERS
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.tables import store_rows

Row = dict[str, Any]

BITS = (1.0,)
CODED = ("entropy-coded", "Delta-CoMe", "BitDelta", "Delta-DCT", "positions",
         "Delta-DCT by rank")  # fmt: skip
BASES = (Transform.NONE, Transform.DCT, Transform.RANDOM)


def coded_models(
    loaded: Callable[[str], Any], bits: Sequence[float], methods: Sequence[str] = CODED
) -> Iterator[tuple[Row, Any]]:
    """The base with the fine-tune's linear layers coded: a model per coder, basis and size."""
    base, tuned = loaded("base"), loaded("tuned")
    linear = [name for name, one in base.named_modules() if isinstance(one, torch.nn.Linear)]

    def weight(model: Any, name: str) -> torch.Tensor:
        return model.get_submodule(name).weight.detach().double()

    deltas = {name: weight(tuned, name) - weight(base, name) for name in linear}
    changed = {name: one.numpy() for name, one in deltas.items() if one.any()}
    energy = sum(float((one**2).sum()) for one in changed.values())
    for coder in (CODERS[name] for name in methods):
        for transform in (one for one in BASES if one in coder.transforms):
            rng = np.random.default_rng(0)
            found = {
                name: coder.approximate(one, bits, transform.basis(coder.block(one.shape), rng))
                for name, one in changed.items()
            }
            for i, asked in enumerate(bits):
                decoded = {name: made.matrix for name, one in found.items() if (made := one[i])}
                if len(decoded) < len(found):
                    continue
                model, lost = loaded("base"), 0.0
                for name, one in decoded.items():
                    lost += float(((changed[name] - one) ** 2).sum())
                    model.get_submodule(name).weight.data += torch.from_numpy(one).float()
                known = {"method": coder.name, "transform": transform.value, "bits": asked}
                yield {**known, "retained": 1 - lost / energy}, model


def linear_layers(loaded: Callable[[str], Any]) -> Any:
    """The base with the linear layers of the fine-tune: what a coder without any error leaves."""
    model, tuned = loaded("base"), loaded("tuned")
    for name, one in model.named_modules():
        if isinstance(one, torch.nn.Linear):
            one.weight.data = tuned.get_submodule(name).weight.data
    return model


def measured(pair: Pair) -> Iterator[Row]:
    """A row per model: its accuracy, and how often it answers as the fine-tune does."""
    goal, about = pair.answers(pair.loaded("tuned")), {"seed": pair.seed, "texts": len(pair.labels)}

    def row(known: Row, found: torch.Tensor) -> Row:
        right, same = (float((found == one).double().mean()) for one in (pair.labels, goal))
        return {**about, **known, "accuracy": right, "agreement": same}

    whole = {"transform": None, "bits": None}
    yield row({"method": "fine-tune", **whole, "retained": 1.0}, goal)
    yield row({"method": "base", **whole, "retained": 0.0}, pair.answers(pair.loaded("base")))
    known = {"method": "linear layers", **whole, "retained": 1.0}
    yield row(known, pair.answers(linear_layers(pair.loaded)))
    for known, model in coded_models(pair.loaded, BITS):
        yield row(known, pair.answers(model))


@click.command(cls=Command)
@click.argument("pairs", nargs=-1, required=True, metavar="PAIR...",
                type=click.Path(exists=True, file_okay=False, path_type=Path))  # fmt: skip
@click.option("--count", type=click.IntRange(min=1), help="Texts at most.  [default: all]")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Folder for the table.  [default: nothing is stored]")  # fmt: skip
def main(pairs: tuple[Path, ...], count: int | None, out: Path | None) -> None:
    """Code the fine-tunes in the folders that experiments.minilm wrote, and measure them.

    Example: python -m experiments.coded pair --out pair
    """
    rows = []
    made = manifest(grid={"count": count, "bits": list(BITS)}, seed=0, dtype="float32")
    for row in (row for pair in pairs for row in measured(Pair(pair, count))):
        rows.append(row)
        at = "" if row["bits"] is None else f", {row['transform']}, {row['bits']} bits"
        click.echo(f"seed {row['seed']}, {row['method']}{at}: energy retained "
                   f"{row['retained']:.1%}, accuracy {row['accuracy']:.1%}, answers of the "
                   f"fine-tune {row['agreement']:.1%}")  # fmt: skip
        if out:  # as they come, because a model takes its time
            store_rows(rows, made, out, "coded")


if __name__ == "__main__":
    main(prog_name="python -m experiments.coded")
