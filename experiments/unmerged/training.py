"""Train adapters of PEFT, or all weights in bfloat16, on docstrings classified by package."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from experiments.docstrings import PACKAGES, Example, model_folder, splits
from experiments.finetuning.tasks.published import MeanPooledClassifier
from experiments.minilm import training_losses

TARGETS = ["query", "value"]
BATCH, LENGTH, HEAD_RATE = 16, 48, 1e-3
_MOST_FILES = 60

Factors = dict[str, torch.Tensor]
"""The tensors of an adapter, by the names that PEFT gives them."""


def encoder(dtype: torch.dtype = torch.float32) -> Any:
    """The pretrained sentence transformer."""
    from transformers import AutoModel

    return AutoModel.from_pretrained(model_folder(), add_pooling_layer=False, dtype=dtype)


@cache
def _texts() -> tuple[list[Example], Any]:
    from transformers import AutoTokenizer

    train, _ = splits(0, (0.2,), _MOST_FILES)
    short = [(" ".join(text.split()[:LENGTH]), label) for text, label in train]
    return short, AutoTokenizer.from_pretrained(model_folder())


def train(
    adapted: Callable[[Any], Any],
    *,
    rate: float,
    steps: int,
    seed: int,
    dtype: torch.dtype = torch.float32,
) -> Any:
    """Train what of an encoder is made trainable, and a head; the encoder after the last step.

    Args:
        adapted: Makes a model of PEFT of the encoder, or returns it for a training of all weights.
        rate: Learning rate of AdamW.
        steps: Steps of 16 texts.
        seed: Of the adapter, the head, the order of the texts and dropout.
        dtype: Type of the weights.
    """
    texts, tokenizer = _texts()
    choice = random.Random(seed)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        tuned = adapted(encoder(dtype))
        model = MeanPooledClassifier(tuned, 384, len(PACKAGES)).to(dtype)
        rates = [
            {"params": model.head.parameters(), "lr": HEAD_RATE},
            {"params": [p for p in tuned.parameters() if p.requires_grad], "lr": rate},
        ]
        optimizer = torch.optim.AdamW(rates)
        losses = training_losses(model, optimizer, tokenizer, texts, BATCH, choice)
        for _ in zip(range(steps), losses, strict=False):
            pass
    return tuned.eval()
