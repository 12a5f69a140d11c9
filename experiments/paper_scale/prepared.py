"""What a family of experiments brings to a run, and where it finds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from experiments.paper_scale.settings import Choice, Settings


@dataclass(frozen=True)
class Paths:
    """Where things are.

    Attributes:
        out: Folder of the results.
        model: A folder or an address on the hub that replaces the paper's model; None for that.
        data: A folder that replaces the hub's data; None for the hub.
        save_every: Steps from one checkpoint to the next.
        extras: What a family's own options say, which the result depends on.
        files: Settings of what is written beside the result.
    """

    out: Path
    model: str | None = None
    data: str | None = None
    save_every: int = 500
    extras: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Prepared:
    """A model and its data, ready to be adapted and trained.

    Attributes:
        model: The pretrained model.
        train: What it is trained on.
        evaluation: What it is evaluated on; None for nothing.
        collate: Makes a batch.
        metric: Name of the number that counts.
        head: Name of the new head.
        measure: Makes metrics from predictions; None for the loss alone.
        best_of_epochs: Whether the best of all epochs counts, rather than the last.
        value: Makes the number that counts from the last metrics.
        loss: Replaces the model's own loss.
        afterwards: What is done with the trained model; given it and a folder for files, returns
            further metrics.
    """

    model: nn.Module
    train: Any
    evaluation: Any
    collate: Callable[[Any], Any]
    metric: str
    head: str | None = None
    measure: Callable[[Any], dict[str, float]] | None = None
    best_of_epochs: bool = False
    value: Callable[[Mapping[str, float]], float] | None = None
    loss: Callable[[nn.Module, Any], torch.Tensor] | None = None
    afterwards: Callable[[nn.Module, Path], dict[str, float]] | None = None


Prepare = Callable[[Choice, Settings, Paths], Prepared]
