"""A plain training loop, for pretrained models that no installed package contains."""

from __future__ import annotations

import torch
from torch import nn

from experiments.finetuning.tasks.prepared import Split

# Fixed on all machines, because sums depend on the number of threads in their last bits.
_THREADS = 2


def pretrain(model: nn.Module, examples: Split, *, steps: int, batch: int, rate: float) -> None:
    """Train a model on random batches with AdamW and a linear schedule.

    Args:
        model: A model that returns its loss for the arguments in ``examples``.
        examples: The training set.
        steps: Number of steps.
        batch: Examples per step.
        rate: Initial learning rate.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(_THREADS)
    try:
        _train(model, examples, steps, batch, rate)
    finally:
        torch.set_num_threads(before)


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
