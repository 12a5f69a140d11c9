"""A plain training loop, for pretrained models that no installed package contains.

Training is chaotic: rounding differs between processors, and so do the models. Therefore the models
that stored results were computed with are kept next to this file, by the hash of what they were
trained on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from experiments.finetuning.tasks.prepared import Split

MODELS = Path(__file__).parent / "models"

# Fixed on all machines, because sums depend on the number of threads in their last bits. Models of
# this size gain nothing from more.
_THREADS = 1


def pretrain(
    build: Callable[[], nn.Module], examples: Split, chosen: dict[str, Any], batch: int
) -> Split:
    """Train a model from scratch on random batches with AdamW and a linear schedule."""
    how = (chosen["pretraining_steps"], batch, chosen["pretraining_rate"])
    kept = MODELS / f"{_name(build, examples, *how)}.safetensors"
    if kept.exists():
        return load_file(kept)
    before = torch.get_num_threads()
    torch.set_num_threads(_THREADS)
    try:
        with torch.random.fork_rng(devices=[]):
            # Modules initialise from the global generator and take no other; it is restored
            # afterwards.
            torch.default_generator.manual_seed(0)
            model = build()
            _train(model, examples, *how)
    finally:
        torch.set_num_threads(before)
    return model.state_dict()


def _name(
    build: Callable[[], nn.Module], examples: Split, steps: int, batch: int, rate: float
) -> str:
    """Hash of the training set, the sizes of the model and the settings of the training."""
    with torch.device("meta"):
        sizes = {name: list(tensor.shape) for name, tensor in build().state_dict().items()}
    digest = hashlib.sha256(repr((sizes, steps, batch, rate)).encode())
    for name, values in sorted(examples.items()):
        digest.update(name.encode() + values.numpy().tobytes())
    return digest.hexdigest()[:16]


def _train(model: nn.Module, examples: Split, steps: int, batch: int, rate: float) -> None:
    source = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    total = len(next(iter(examples.values())))
    model.train()
    for _ in range(steps):
        which = torch.randint(total, (batch,), generator=source)
        loss = model(**{name: values[which] for name, values in examples.items()}).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
