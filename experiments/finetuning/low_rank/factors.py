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
from experiments.finetuning.messages import quiet
from experiments.finetuning.tasks import Prepared, load
from experiments.finetuning.tasks.registry import base_model
from loca_theory.sweeps import generator
from loca_theory.sweeps.store import Point

EXPERIMENT = "low-rank"
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
"""The packages and modules whose code trains and measures."""
ALL = "all"
"""The whole pool of examples, or all kinds of layers."""

_SETTINGS = ("warmup", "most_gradient")


@dataclass(frozen=True)
class TrainingGrid:
    """The trainings of a task.

    Attributes:
        rates: Default learning rate of each optimiser.
        default: Values of ``steps``, ``batch`` and ``examples`` of a default training; without
            ``examples``, every seed trains on the whole pool.
        multiples: Learning rates that are tried, in units of the default.
        varied: Values of ``steps``, ``batch`` and ``examples`` that are tried, None for the whole
            pool.
        seeds: Number of seeds.
    """

    rates: Mapping[str, float]
    default: Mapping[str, Any]
    multiples: Sequence[float] = ()
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
    """A training as one value of a factor.

    Attributes:
        factor: ``optimizer``, ``rate``, ``steps``, ``batch`` or ``examples``.
        label: The value in words.
        value: The value as a number, a rate in units of the default; None for an optimiser, or for
            the whole pool.
        training: The training.
    """

    factor: str
    label: str
    value: float | None
    training: Training


def point(
    prepared: Prepared,
    chosen: Mapping[str, Any],
    training: Training | None,
    seed: int,
    device: str,
) -> Point:
    """Define one run by everything that it depends on.

    Args:
        prepared: Data and model of the task.
        chosen: Settings of the task.
        training: The training; None for a control with independent entries.
        seed: Seed of the head, the training set and the batches.
        device: ``cpu`` or ``cuda``.
    """
    return Point(
        EXPERIMENT,
        {
            "task": prepared.task,
            "folder": prepared.folder.name,
            "digest": prepared.digest,
            "settings": {**prepared.settings, **{name: chosen[name] for name in _SETTINGS}},
            "training": training and asdict(training),
            "seed": seed,
            "device": device,
        },
        PACKAGES,
    )


def compute(point: Point, folder: Path) -> dict[str, Any]:
    """Fine-tune a model in full once, and measure its increments.

    Args:
        point: Everything that determines the run; made by :func:`point`.
        folder: Folder of the prepared tasks.

    Returns:
        ``loss`` and ``accuracy`` on the test set, None if the loss did not stay finite and for a
        control; ``diverged``; ``examples``, the size of the training set; ``matrices``, see
        :func:`~experiments.finetuning.low_rank.spectra.measure`, none if the run diverged.
    """
    p = point.parameters
    device, settings = torch.device(p["device"]), p["settings"]
    prepared = Prepared(folder / p["folder"], p["task"], settings, p["digest"])
    splits, _ = load(prepared.folder, prepared.digest)
    splits = {
        name: {key: value.to(device) for key, value in split.items()}
        for name, split in splits.items()
    }
    # Modules draw from torch's global generators; these are seeded here and restored afterwards.
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda), quiet():
        torch.manual_seed(int(generator(p["seed"], "low-rank.model").integers(2**62)))
        model = base_model(prepared, settings).to(device)
        before = {name: value.detach().clone() for name, value in model.state_dict().items()}
        if p["training"] is None:
            drawn = independent_increments(before, generator(p["seed"], "low-rank.independent"))
            found = {"loss": None, "accuracy": None, "diverged": False, "examples": None}
            return found | {"matrices": measure(drawn)}
        training = Training(**p["training"])
        # Dropout draws from the global generator too.
        torch.manual_seed(int(generator(p["seed"], "low-rank.training").integers(2**62)))
        options = {name: settings[name] for name in _SETTINGS}
        rng = generator(p["seed"], "low-rank.batches")
        finite = train(model, splits["train"], training, rng, **options)
        loss, accuracy = evaluate(model, splits["test"]) if finite else (None, None)
        if loss is not None and not math.isfinite(loss):
            finite, loss, accuracy = False, None, None
        matrices = measure(increments_of(before, model.state_dict()), before) if finite else []
    pool = len(splits["train"]["labels"])
    return {
        "loss": loss,
        "accuracy": accuracy,
        "diverged": not finite,
        "examples": min(training.examples or pool, pool),
        "matrices": matrices,
    }
