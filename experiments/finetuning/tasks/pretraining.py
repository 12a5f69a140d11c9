"""A plain training loop, for pretrained models that no installed package contains."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from experiments.finetuning.tasks.prepared import Split

# Fixed on all machines, because sums depend on the number of threads in their last bits. Models of
# this size gain nothing from more.
_THREADS = 1


def pretrain(
    build: Callable[[], nn.Module], examples: Split, *, steps: int, batch: int, rate: float
) -> Split:
    """Train a model from scratch on random batches with AdamW and a linear schedule.

    Args:
        build: Function that makes a model, which returns its loss for the arguments in
            ``examples``.
        examples: The training set.
        steps: Number of steps.
        batch: Examples per step.
        rate: Initial learning rate.

    Returns:
        The state of the trained model.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(_THREADS)
    try:
        with torch.random.fork_rng(devices=[]):
            # Modules initialise from the global generator and take no other; it is restored
            # afterwards.
            torch.default_generator.manual_seed(0)
            model = build()
            _train(model, examples, steps, batch, rate)
    finally:
        torch.set_num_threads(before)
    return model.state_dict()


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


def load_body(model: nn.Module, weights: Split) -> nn.Module:
    """Load the pretrained weights into all of a model but its head, which keeps its own."""
    body = {name: tensor for name, tensor in weights.items() if not name.startswith("head.")}
    model.load_state_dict(body, strict=False)
    return model
