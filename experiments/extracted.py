"""The fine-tune that ``experiments.minilm`` makes, reduced to adapters or to few bits.

``python -m experiments.extracted pair`` extracts LoRA and LoCA adapters at three totals, loads each
into the base by PEFT, and measures its accuracy on the docstrings of unseen files, with the
fine-tune's head. With ``--bits`` it codes the increments of the linear layers at equal bits
instead, in several bases. For comparison: the base, the fine-tune, and its linear layers alone in
the base, which is what an adapter without any error would give. Takes about fifteen minutes on two
cores.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from scipy import stats

from experiments.minilm import Pair
from experiments.tables import Row, in_words
from loca_theory.checkpoints import Extraction, extract
from loca_theory.cli.command import Command
from loca_theory.cli.options import Folder
from loca_theory.expressivity.coders.coder import Transform
from loca_theory.expressivity.coders.registry import CODERS
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.tables import store_rows

RANKS = (1, 4, 16)
_LARGE = 64
# LayerNorm and embeddings, which are not linear layers.
_REST = ("LayerNorm", "embeddings")

BITS = (1.0,)
CODED = ("entropy-coded", "Delta-CoMe", "BitDelta", "Delta-DCT", "positions", "Delta-DCT by rank")
BASES = (Transform.NONE, Transform.DCT, Transform.RANDOM)


@click.command(cls=Command)
@click.argument("folder", metavar="PAIR", type=Folder(exists=True, file_okay=False))
@click.option("--bits", is_flag=True, help="Code the layers instead of extracting adapters.")
@click.option("--count", type=click.IntRange(min=1), help="Texts at most.  [default: all]")
@click.option(
    "--out",
    type=Folder(file_okay=False),
    metavar="DIR",
    help="Folder for the table.  [default: nothing is stored]",
)
def main(folder: Path, count: int | None, out: Path | None, *, bits: bool) -> None:
    """Measure what is left of the fine-tune in PAIR, the folder that experiments.minilm wrote.

    Example: python -m experiments.extracted pair --out pair
    """
    pair, rows = Pair(folder, count), []
    goal = pair.answers(pair.loaded("tuned"))
    grid = {"pair": str(folder), "count": count, "ranks": list(RANKS), "bits": list(BITS)}
    about = manifest(grid=grid, seed=0, dtype="float32")
    for fields, encoder in _models(folder, pair.loaded, bits=bits):
        predicted = pair.answers(encoder)
        right, same = (int((predicted == expected).sum()) for expected in (pair.labels, goal))
        ends = stats.binomtest(right, len(goal)).proportion_ci(method="wilson")  # of 95%
        accuracy = {"accuracy": right / len(goal), "low": ends.low, "high": ends.high}
        row = {"seed": pair.seed, "texts": len(goal), **fields, **accuracy}
        rows.append({**row, "agreement": same / len(goal)})
        click.echo(in_words(rows[-1]))
        if out:  # as they come, because a model takes its time
            store_rows(rows, about, out, "coded" if bits else "extracted")


def _models(folder: Path, loaded: Callable[[str], Any], *, bits: bool) -> Iterator[tuple[Row, Any]]:
    """The models to measure, each with what is known of it."""

    def known(name: str, numbers: int, retained: float) -> Row:
        if bits:
            return {"method": name, "transform": None, "bits": None, "retained": retained}
        return {"adapter": name, "split": "", "numbers": numbers, "retained": retained}

    layers, tuned = linear_layers(loaded), loaded("tuned")
    numbers = sum(change.size for change in increments(loaded).values())
    yield known("base", 0, 0.0), loaded("base")
    yield from coded_models(loaded, BITS) if bits else _adapted(folder, loaded)
    yield known("linear layers", numbers, 1.0), layers
    yield known("fine-tune", sum(parameter.numel() for parameter in tuned.parameters()), 1.0), tuned


# --- adapters -------------------------------------------------------------------------------


def with_adapter(base: Any, extraction: Extraction) -> Any:
    """A model with an extracted adapter, which PEFT reads from its files."""
    importlib.import_module("loca_theory.adapters")  # makes LoCA known to PEFT
    with tempfile.TemporaryDirectory() as folder:
        extraction.save(folder)
        saved = Path(folder, extraction.method)
        return importlib.import_module("peft").PeftModel.from_pretrained(base, saved)


def _adapted(pair: Path, loaded: Callable[[str], Any]) -> Iterator[tuple[Row, Any]]:
    """The base with adapters at the totals of the ranks."""
    with tempfile.TemporaryDirectory() as folder:
        of = partial(extract, pair / "base", pair / "tuned")
        large = of("lora", rank=_LARGE)
        large.save(folder)
        for rank in RANKS:
            same = of("lora", rank=rank)
            total = sum(row.numbers for row in same.matrices)
            resized = extract(pair / "base", Path(folder, "lora"), "lora", allocate=total)
            variants = [
                ("LoRA", "same size", same),
                ("LoRA", "allocated", of("lora", allocate=total)),
                ("LoCA", "same size", of("loca", components=total // len(same.matrices))),
                ("LoCA", "allocated", of("loca", allocate=total)),
                ("entries (SHiRA)", "same size", of("entries", rank=rank)),
                (f"LoRA of rank {_LARGE}, resized", "allocated", resized),
            ]
            if rank == RANKS[0]:
                with_others = of("lora", allocate=total, save_modules=_REST)
                variants.append(("LoRA, LayerNorm and embeddings", "allocated", with_others))
            for name, split, extraction in variants:
                numbers = sum(row.numbers for row in extraction.matrices) + extraction.saved_numbers
                # Both are projections on singular vectors of the fine-tune, one inside the other.
                before = 1 - large.error if extraction is resized else 1.0
                fields = {"adapter": name, "split": split, "numbers": numbers}
                fields["retained"] = before * (1 - extraction.error)
                yield fields, with_adapter(loaded("base"), extraction)


# --- few bits -------------------------------------------------------------------------------


def increments(loaded: Callable[[str], Any]) -> dict[str, np.ndarray]:
    """What fine-tuning changed in the linear layers."""
    base, tuned = loaded("base"), loaded("tuned")
    changes = {}
    for name, module in base.named_modules():
        if isinstance(module, torch.nn.Linear):
            before, after = (m.get_submodule(name).weight.detach() for m in (base, tuned))
            changes[name] = (after.double() - before.double()).numpy()
    return {name: change for name, change in changes.items() if change.any()}


def coded_models(
    loaded: Callable[[str], Any], bits: Sequence[float], methods: Sequence[str] = CODED
) -> Iterator[tuple[Row, Any]]:
    """The base with the fine-tune's linear layers coded: a model per coder, basis and size."""
    changed = increments(loaded)
    energy = sum(float((change**2).sum()) for change in changed.values())
    for coder in (CODERS[name] for name in methods):
        for transform in (basis for basis in BASES if basis in coder.transforms):
            rng = np.random.default_rng(0)
            coded = {
                name: coder.approximate(
                    change, bits, transform.basis(coder.block(change.shape), rng)
                )
                for name, change in changed.items()
            }
            for i, size in enumerate(bits):
                decoded = {name: code.matrix for name, codes in coded.items() if (code := codes[i])}
                if len(decoded) < len(coded):
                    continue
                model, lost = loaded("base"), 0.0
                for name, change in decoded.items():
                    lost += float(((changed[name] - change) ** 2).sum())
                    model.get_submodule(name).weight.data += torch.from_numpy(change).float()
                fields = {"method": coder.name, "transform": transform.value, "bits": size}
                yield {**fields, "retained": 1 - lost / energy}, model


def linear_layers(loaded: Callable[[str], Any]) -> Any:
    """The base with the linear layers of the fine-tune: what a coder without any error leaves."""
    model, tuned = loaded("base"), loaded("tuned")
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.weight.data = tuned.get_submodule(name).weight.data
    return model


if __name__ == "__main__":
    main(prog_name="python -m experiments.extracted")
