"""Pretrained models of tasks, stored or trained.

Training is chaotic: rounding differs between processors, and so do the models. Therefore the models
that stored results were computed with are kept next to this file, named by a hash of training data,
tensor shapes and training settings.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from experiments.finetuning.tasks import Split
from loca_theory.sweeps.threads import one_thread

MODELS = Path(__file__).parent / "models"


def pretrain(
    module: ModuleType, chosen: dict[str, Any], examples: Split
) -> dict[str, torch.Tensor]:
    """State dict of a task's pretrained model: the stored one if there is one.

    Otherwise it is trained from scratch by AdamW with linear decay. Nothing is written.
    """
    how = (chosen["pretraining_steps"], module.BATCH, chosen["pretraining_rate"])
    # The hash of the training set, the sizes of the model and the settings of the training.
    with torch.device("meta"):
        state = module.model(chosen).state_dict()
    sizes = {name: list(tensor.shape) for name, tensor in state.items()}
    digest = hashlib.sha256(repr((sizes, *how)).encode())
    for name, values in sorted(examples.items()):
        digest.update(name.encode() + values.numpy().tobytes())
    path = MODELS / f"{digest.hexdigest()[:16]}.safetensors"
    if path.exists():
        return load_file(path)
    # Sums depend on the number of threads in their last bits. Modules initialise from the global
    # generator and take no other.
    with one_thread(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model = module.model(chosen)
        _train(model, examples, *how)
    return model.state_dict()


def _train(model: nn.Module, examples: Split, steps: int, batch: int, rate: float) -> None:
    source = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    total = len(next(iter(examples.values())))
    model.train()
    for _ in range(steps):
        rows = torch.randint(total, (batch,), generator=source)
        loss = model(**{name: values[rows] for name, values in examples.items()}).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
