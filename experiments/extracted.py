"""Accuracy of adapters extracted from the fine-tune that ``experiments.minilm`` makes.

``python -m experiments.extracted pair`` extracts LoRA and LoCA adapters at three totals, loads each
into the base by PEFT, and measures its accuracy on the docstrings of unseen files. For comparison:
the base, the fine-tune, and its linear layers alone in the base, which is what an adapter without
any error would give. Takes about fifteen minutes on two cores.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import click
from scipy import stats

from experiments.minilm import Pair
from loca_theory.checkpoints import Extraction, extract
from loca_theory.checkpoints.weights.sources import open_checkpoint
from loca_theory.cli.command import Command
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.tables import store_rows

RANKS = (1, 4, 16)
_LARGE = 64
_TITLES = {"lora": "LoRA", "loca": "LoCA"}
# LayerNorm and embeddings, which are no linear layers.
_REST = ("LayerNorm", "embeddings")


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
        shown = f"{row['numbers']:,} numbers, energy retained {row['retained']:.0%}, accuracy "
        shown += f"{row['accuracy']:.3f} ({row['low']:.3f} to {row['high']:.3f})"
        click.echo(f"{row['adapter']}, {row['split'] or 'whole'}: {shown}")
        rows.append(row)
    if out:
        made = manifest(grid={"pair": str(pair), "ranks": list(RANKS)}, seed=None, dtype="float32")
        for path in store_rows(rows, made, out, "extracted"):
            click.echo(f"wrote {path}", err=True)


def _measure(pair: Path) -> Iterator[dict[str, Any]]:
    """A row per adapter, with the 95% interval of its accuracy (Wilson)."""
    made = Pair(pair)

    def row(
        adapter: str, split: str, numbers: int, retained: float, encoder: Any
    ) -> dict[str, Any]:
        right, count = int((made.answers(encoder) == made.labels).sum()), len(made.labels)
        ends = stats.binomtest(right, count).proportion_ci(method="wilson")
        return {
            "adapter": adapter, "split": split, "numbers": numbers, "retained": retained,
            "accuracy": right / count, "low": ends.low, "high": ends.high,
        }  # fmt: skip

    yield row("base", "", 0, 0.0, made.loaded("base"))
    layers: set[str] = set()
    for extraction, adapter, split, retained in _extractions(pair):
        encoder = with_adapter(made.loaded("base"), extraction)
        numbers = sum(one.numbers for one in extraction.matrices) + extraction.saved_numbers
        yield row(adapter, split, numbers, retained, encoder)
        layers |= {one.name for one in extraction.matrices}
    encoder, tuned = made.loaded("base"), open_checkpoint(pair / "tuned")
    own = {name: tuned.load(name) for name in sorted(layers)}
    encoder.load_state_dict(own, strict=False)
    numbers = sum(one.numel() for one in own.values())
    yield row("the fine-tune's linear layers", "", numbers, 1.0, encoder)
    whole = made.loaded("tuned")
    yield row("fine-tune", "", sum(one.numel() for one in whole.parameters()), 1.0, whole)


def with_adapter(base: Any, extraction: Extraction) -> Any:
    """A model with an extracted adapter, which PEFT reads from its files."""
    importlib.import_module("loca_theory.adapters")  # makes LoCA known to PEFT
    with tempfile.TemporaryDirectory() as folder:
        extraction.save(folder)
        there = Path(folder, extraction.method)
        return importlib.import_module("peft").PeftModel.from_pretrained(base, there)


def _extractions(pair: Path) -> Iterator[tuple[Extraction, str, str, float]]:
    """Adapters at the totals of the ranks, the names of their rows, and the energy retained."""
    base, tuned = pair / "base", pair / "tuned"
    methods: tuple[Literal["lora", "loca"], ...] = ("lora", "loca")
    with tempfile.TemporaryDirectory() as folder:
        large = extract(base, tuned, "lora", rank=_LARGE)
        large.save(folder)
        for rank in RANKS:
            same = extract(base, tuned, "lora", rank=rank)
            total = sum(one.numbers for one in same.matrices)
            for method in methods:
                if method == "loca":
                    components = total // len(same.matrices)
                    same = extract(base, tuned, method, components=components)
                yield same, _TITLES[method], "same size", 1 - same.error
                split = extract(base, tuned, method, allocate=total)
                yield split, _TITLES[method], "allocated", 1 - split.error
            entries = extract(base, tuned, "entries", rank=rank)
            yield entries, "entries (SHiRA)", "same size", 1 - entries.error
            resized = extract(base, Path(folder, "lora"), "lora", allocate=total)
            # Both are projections on singular vectors of the fine-tune, one inside the other.
            retained = (1 - large.error) * (1 - resized.error)
            yield resized, f"LoRA of rank {_LARGE}, resized", "allocated", retained
            if rank == RANKS[0]:
                rest = extract(base, tuned, "lora", allocate=total, save_modules=_REST)
                yield rest, "LoRA, LayerNorm and embeddings", "allocated", 1 - rest.error


if __name__ == "__main__":
    main(prog_name="python -m experiments.extracted")
