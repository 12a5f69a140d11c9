"""Paths of a run, and the model and data that a family of experiments prepares for it."""

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
    """Paths and options of a run besides its settings.

    Attributes:
        out: Folder of the results.
        model: A folder or a hub name that replaces the paper's model; None for the paper's model.
        data: A folder that replaces the hub's data; None for the hub.
        save_every: Steps from one checkpoint to the next.
        extras: Values of the family's own options, on which the result depends.
        files: Settings of the files that are written besides the result.
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
        train: The training set.
        evaluation: The evaluation set; None for no evaluation.
        collate: Collates examples to a batch.
        metric: Name of the reported metric.
        head: Name of the new head; None if there is none.
        measure: Computes metrics from predictions; None for the loss only.
        best_of_epochs: Whether the best epoch is reported rather than the last.
        value: Computes the reported metric from the last metrics; None if it is one of them.
        loss: Replaces the model's own loss; None to use that.
        afterwards: Called with the trained model and a folder for files; returns further metrics.
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
