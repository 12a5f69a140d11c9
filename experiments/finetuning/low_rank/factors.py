"""Full fine-tunes in which one factor varies at a time.

For every optimiser, the learning rate, the number of steps, the batch and the size of the training
set vary around a default, one at a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from experiments.finetuning.low_rank.full import OPTIMIZERS, Training, evaluate, train
from experiments.finetuning.low_rank.spectra import increments_of, independent_increments, measure
from experiments.finetuning.tasks import Prepared, base_model, opened
from loca_theory.sweeps import generator
from loca_theory.sweeps.store import Point

# The packages and modules whose code trains and measures.
PACKAGES = (
    "experiments.finetuning.low_rank",
    "experiments.finetuning.settings",
    "experiments.finetuning.tasks",
    "loca_theory.adapters",
    "loca_theory.checkpoints",
    "loca_theory.expressivity",
    "loca_theory.increments",
    "loca_theory.locations",
    "loca_theory.sweeps.random",
    "loca_theory.transforms",
)
ALL = "all"
"""The whole pool of examples, or all kinds of layers."""

_SETTINGS = ("warmup", "most_gradient")


@dataclass(frozen=True)
class TrainingGrid:
    """The trainings of a task."""

    rates: Mapping[str, float]  # default learning rate of each optimiser
    # ``steps``, ``batch`` and ``examples`` of a default training, the whole pool without the last.
    default: Mapping[str, Any]
    multiples: Sequence[float] = ()  # learning rates that are tried, in units of the default
    varied: Mapping[str, Sequence[int | None]] = field(default_factory=dict)
    seeds: int = 4

    def cases(self) -> list[Case]:
        """All trainings by factor; the default ones take part in every factor."""
        found = []
        for optimizer in OPTIMIZERS:
            rate = self.rates[optimizer]
            default = Training(optimizer, rate, **self.default)
            found.append(Case("optimizer", optimizer, None, default))
            for multiple in sorted({1.0, *self.multiples}) if self.multiples else ():
                own = replace(default, rate=float(f"{multiple * rate:.6g}"))
                found.append(Case("rate", f"{multiple:g}", multiple, own))
            for name, others in self.varied.items():
                values = {getattr(default, name), *others}
                for value in sorted(values, key=lambda one: (one is None, one or 0)):
                    label = ALL if value is None else str(value)
                    found.append(Case(name, label, value, replace(default, **{name: value})))
        return found


@dataclass(frozen=True)
class Case:
    """A training as one value of a factor, which is None for an optimiser or for the whole pool."""

    factor: str  # ``optimizer``, ``rate``, ``steps``, ``batch`` or ``examples``
    label: str
    value: float | None  # a rate is in units of the default
    training: Training


def point(
    prepared: Prepared,
    chosen: Mapping[str, Any],
    training: Training | None,
    seed: int,
    device: str,
) -> Point:
    """Define one run by all that it depends on; no training is a control of independent entries."""
    parameters = {
        "task": prepared.task,
        "folder": prepared.folder.name,
        "digest": prepared.digest,
        "settings": {**prepared.settings, **{name: chosen[name] for name in _SETTINGS}},
        "training": training and asdict(training),
        "seed": seed,
        "device": device,
    }
    return Point("low-rank", parameters, PACKAGES)


def compute(point: Point, folder: Path) -> dict[str, Any]:
    """Fine-tune a model in full once, and measure its increments.

    Loss and accuracy on the test set are None for a control, and if the loss did not stay finite.
    """
    p = point.parameters
    settings = p["settings"]

    def source(purpose: str) -> Any:
        return generator(p["seed"], f"low-rank.{purpose}")

    with opened(p, folder) as (prepared, splits, device):
        torch.manual_seed(int(source("model").integers(2**62)))
        model = base_model(prepared, settings).to(device)
        before = {name: value.detach().clone() for name, value in model.state_dict().items()}
        if p["training"] is None:
            found = {"loss": None, "accuracy": None, "diverged": False, "examples": None}
            drawn = independent_increments(before, source("independent"))
            return found | {"matrices": measure(drawn)}
        training = Training(**p["training"])
        # Dropout draws from the global generator too.
        torch.manual_seed(int(source("training").integers(2**62)))
        options = {name: settings[name] for name in _SETTINGS}
        finite = train(model, splits["train"], training, source("batches"), **options)
        loss, accuracy = evaluate(model, splits["test"]) if finite else (math.nan, None)
        finite = math.isfinite(loss)
        matrices = measure(increments_of(before, model.state_dict()), before) if finite else []
    pool = len(splits["train"]["labels"])
    return {
        "loss": loss if finite else None,
        "accuracy": accuracy if finite else None,
        "diverged": not finite,
        "examples": min(training.examples or pool, pool),
        "matrices": matrices,
    }
