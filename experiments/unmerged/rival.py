"""Count the entries that the adapter of another tool gives back, beside that of ``unmerge``.

``python -m experiments.unmerged.rival MODELS`` trains a LoRA of rank 8 on a pretrained MiniLM and
writes ``MODELS/base`` and ``MODELS/merged`` in bfloat16. Make an adapter of them with another tool,
for example in another environment with mergekit 0.1.5::

    mergekit-extract-lora --base-model MODELS/base --model MODELS/merged --out-path MODELS/adapter
        --max-rank 8 --distribute-scale -i "query|value"

Run it again with ``--adapter MODELS/adapter`` to count.
"""

from __future__ import annotations

from pathlib import Path

import click
import peft
import torch
from safetensors.torch import load_file

import loca_theory as loca
from experiments.unmerged.merges import increments, merged
from experiments.unmerged.training import TARGETS, encoder, train
from loca_theory.cli.command import Command
from loca_theory.cli.options import Folder
from loca_theory.rounding import find_format, identical_entries

_RANK, _ALPHA, _RATE, _STEPS = 8, 16, 1e-3, 30
_WEIGHTS = "model.safetensors"


def write(folder: Path) -> None:
    """Train and merge a LoRA, and write both models."""
    config = peft.LoraConfig(r=_RANK, lora_alpha=_ALPHA, target_modules=TARGETS)
    model = train(lambda base: peft.get_peft_model(base, config), rate=_RATE, steps=_STEPS, seed=1)
    factors = peft.get_peft_model_state_dict(model)
    start = encoder(torch.bfloat16)
    start.save_pretrained(folder / "base")
    merged(start, config, factors, is_half=False, is_safe=False).save_pretrained(folder / "merged")


def same(folder: Path, changes: dict[str, torch.Tensor]) -> float:
    """Fraction of the entries of some weights that a merge of their changes gives back."""
    base, tuned = (load_file(folder / side / _WEIGHTS) for side in ("base", "merged"))
    form = find_format("bfloat16")
    counts = [
        identical_entries(base[name], tuned[name], change, form) for name, change in changes.items()
    ]
    return sum(counts) / len(counts)


@click.command(cls=Command)
@click.argument("folder", type=Folder())
@click.option("--adapter", type=Folder(exists=True, file_okay=False), help="Of the other tool.")
def main(folder: Path, adapter: Path | None) -> None:
    """Write a merged model, or count what adapters give back of it.

    Example: python -m experiments.unmerged.rival models
    """
    if adapter is None:
        write(folder)
        return
    result = loca.unmerge(folder / "base", folder / "merged", runner=loca.Runner(jobs=1))
    click.echo(result.verdict)
    theirs = increments(load_file(adapter / "adapter_model.safetensors"), 1.0)
    click.echo(f"{adapter}: {same(folder, theirs):.2%} of the entries are the same to the bit")


if __name__ == "__main__":
    main(prog_name="python -m experiments.unmerged.rival")
