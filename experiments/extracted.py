"""Accuracy of adapters extracted from the fine-tune that ``experiments.minilm`` makes.

``python -m experiments.extracted pair`` extracts LoRA and LoCA adapters at three totals, with the
same size for every matrix and with the total split among the matrices, loads each into the base by
PEFT and measures its accuracy on the docstrings of unseen files, with the fine-tune's head. For
comparison: the base, the fine-tune, and the fine-tune's linear layers alone in the base, which is
what an adapter without any error would give. Takes about ten minutes on two cores.
"""

from __future__ import annotations

import importlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click
import pandas as pd
import torch
from safetensors.torch import load_file
from scipy import stats

from experiments.docstrings import splits
from experiments.minilm import HEAD, TESTED_FRACTION, Classifier, measured_accuracy
from loca_theory.checkpoints import Extraction, extract
from loca_theory.checkpoints.weights.sources import open_checkpoint
from loca_theory.cli.command import Command
from loca_theory.cli.output import console, plain_table, print_table
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.results import store_rows

RANKS = (1, 4, 16)
_NAME = "extracted"
_TITLES = {"lora": "LoRA", "loca": "LoCA"}
# LayerNorm and embeddings, which are no linear layers.
_REST = ("LayerNorm", "embeddings")


@dataclass(frozen=True)
class Row:
    """Accuracy of one adapter.

    Attributes:
        adapter: What is loaded into the base.
        split: ``same size`` for every matrix, ``allocated``, or "" without an adapter.
        numbers: Trainable numbers.
        retained: Fraction of the energy of the linear layers' increments.
        accuracy: Fraction of the test docstrings that are classified correctly.
        low: Lower end of its 95% interval (Wilson).
        high: Upper end.
    """

    adapter: str
    split: str
    numbers: int
    retained: float
    accuracy: float
    low: float
    high: float


@click.command(cls=Command)
@click.argument("pair", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Folder for the table.  [default: nothing is stored]")  # fmt: skip
def main(pair: Path, out: Path | None) -> None:
    """Extract adapters from PAIR, the folder that experiments.minilm wrote, and measure them.

    Example: python -m experiments.extracted pair --out pair
    """
    rows = []
    for row in _measure(pair):
        click.echo(f"{row.adapter}, {row.split or 'whole'}: {row.accuracy:.3f}", err=True)
        rows.append(row)
    _print(rows)
    if out:
        made = manifest(grid={"pair": str(pair), "ranks": list(RANKS)}, seed=None, dtype="float32")
        for path in store_rows(pd.DataFrame(map(vars, rows)), made, out, _NAME):
            click.echo(f"wrote {path}", err=True)


def _measure(pair: Path) -> Iterator[Row]:
    transformers = importlib.import_module("transformers")
    peft = importlib.import_module("peft")
    importlib.import_module("loca_theory.adapters")  # makes LoCA known to PEFT
    tokenizer = transformers.AutoTokenizer.from_pretrained(pair / "base")
    seed = json.loads((pair / "training.json").read_text(encoding="utf-8"))["seed"]
    _, test = splits(seed, (TESTED_FRACTION,))

    def measured(
        adapter: str, split: str, numbers: int, retained: float, encoder: torch.nn.Module
    ) -> Row:
        head = load_file(pair / HEAD)
        model = Classifier(encoder, head["weight"].shape[1])
        model.head.load_state_dict(head)
        accuracy = measured_accuracy(model, tokenizer, test)
        interval = stats.binomtest(round(accuracy * len(test)), len(test)).proportion_ci(
            method="wilson"
        )
        return Row(adapter, split, numbers, retained, accuracy, interval.low, interval.high)

    def loaded(folder: Path) -> Any:
        return transformers.AutoModel.from_pretrained(folder)

    yield measured("base", "", 0, 0.0, loaded(pair / "base"))
    layers: set[str] = set()
    for extraction, adapter, split in _extractions(pair):
        with tempfile.TemporaryDirectory() as folder:
            extraction.save(folder)
            encoder = peft.PeftModel.from_pretrained(
                loaded(pair / "base"), Path(folder, extraction.method)
            )
            numbers = sum(one.numbers for one in extraction.matrices)
            yield measured(adapter, split, numbers, 1 - extraction.error, encoder)
        layers |= {one.name for one in extraction.matrices}
    encoder, tuned = loaded(pair / "base"), open_checkpoint(pair / "tuned")
    own = {name: tuned.load(name) for name in sorted(layers)}
    encoder.load_state_dict(own, strict=False)
    numbers = sum(one.numel() for one in own.values())
    yield measured("the fine-tune's linear layers", "", numbers, 1.0, encoder)
    whole = loaded(pair / "tuned")
    yield measured("fine-tune", "", sum(one.numel() for one in whole.parameters()), 1.0, whole)


def _extractions(pair: Path) -> Iterator[tuple[Extraction, str, str]]:
    """Adapters at the totals of the ranks, and the names of their rows."""
    sources = pair / "base", pair / "tuned"
    methods: tuple[Literal["lora", "loca"], ...] = ("lora", "loca")
    for rank in RANKS:
        same = extract(*sources, "lora", rank=rank)
        total = sum(one.numbers for one in same.matrices)
        for method in methods:
            if method == "loca":
                same = extract(*sources, method, components=total // len(same.matrices))
            yield same, _TITLES[method], "same size"
            yield extract(*sources, method, allocate=total), _TITLES[method], "allocated"
        if rank == RANKS[0]:
            with_rest = extract(*sources, "lora", allocate=total, save_modules=_REST)
            yield with_rest, "LoRA, LayerNorm and embeddings", "allocated"


def _print(rows: list[Row]) -> None:
    table = plain_table("", "split", "numbers", "retained", "accuracy", "95% interval")
    for row in rows:
        table.add_row(
            row.adapter,
            row.split,
            f"{row.numbers:,}",
            f"{row.retained:.0%}",
            f"{row.accuracy:.3f}",
            f"{row.low:.3f} to {row.high:.3f}",
        )
    print_table(table, console())


if __name__ == "__main__":
    main(prog_name="python -m experiments.extracted")
