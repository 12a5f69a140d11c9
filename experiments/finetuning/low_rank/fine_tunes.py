"""Full fine-tunes with any optimiser, in which one factor of the training varies at a time.

What the optimisers make of a batch's gradient is in docs/theory/low-rank-increments.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from experiments.finetuning.low_rank.spectra import measure, measured_layers
from experiments.finetuning.protocol import run_settings
from experiments.finetuning.tasks import Split
from experiments.finetuning.tasks.prepared import Prepared, base_model, opened, random_batches
from loca_theory.checkpoints.pairs.task import MatrixCell
from loca_theory.sweeps import generator
from loca_theory.sweeps.store import Point

# The packages and modules whose code trains and measures.
PACKAGES = (
    "experiments.finetuning.low_rank",
    "experiments.finetuning.settings",
    "experiments.finetuning.tasks",
    *MatrixCell.packages,
)
ALL = "all"
"""The whole pool of examples, or all kinds of layers."""

_SETTINGS = ("warmup", "most_gradient")
_EVALUATED_AT_ONCE = 200
OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": partial(torch.optim.SGD, momentum=0.9),
    "Adam": torch.optim.Adam,
    "AdamW": partial(torch.optim.AdamW, weight_decay=0.1),
}


@dataclass(frozen=True)
class Training:
    """What can vary between full fine-tunes of one model."""

    optimizer: str
    rate: float  # highest of the schedule, of all parameters
    steps: int
    batch: int
    examples: int  # that each seed draws from the task's pool


def train(
    model: nn.Module,
    pool: Split,
    training: Training,
    rng: np.random.Generator,
    *,
    warmup: float = 0.0,
    most_gradient: float = math.inf,
) -> bool:
    """Train all parameters in place; return whether the losses stayed finite."""
    parameters = list(model.parameters())
    optimizer = OPTIMIZERS[training.optimizer](parameters, lr=training.rate)
    steps, warm = training.steps, max(round(warmup * training.steps), 1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, (steps - step) / max(steps - warm, 1), 1.0)
    )
    batches = random_batches(len(pool["labels"]), training.examples, training.batch, rng)
    model.train()
    for which in islice(batches, steps):
        loss: torch.Tensor = model(**{name: values[which] for name, values in pool.items()}).loss
        if not math.isfinite(float(loss.detach())):
            return False
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, most_gradient)
        optimizer.step()
        schedule.step()
    return True


@torch.no_grad()
def evaluate(model: nn.Module, examples: Split) -> tuple[float, float]:
    """Mean loss and accuracy of a classifier."""
    model.eval()
    labels, loss, right = examples["labels"], 0.0, 0
    for start in range(0, len(labels), _EVALUATED_AT_ONCE):
        batch = {k: v[start : start + _EVALUATED_AT_ONCE] for k, v in examples.items()}
        found: Any = model(**batch)
        loss += float(found.loss) * len(batch["labels"])
        right += int((found.logits.argmax(-1) == batch["labels"]).sum())
    return loss / len(labels), right / len(labels)


@dataclass(frozen=True)
class TrainingGrid:
    """The trainings of a task."""

    rates: Mapping[str, float]  # default learning rate of each optimiser
    # ``steps``, ``batch`` and ``examples`` of a default training, the whole pool without the last.
    default: Mapping[str, int]
    multiples: Sequence[float] = ()  # learning rates that are tried, in units of the default
    # Values of the others that are tried, one at a time; None for the whole pool.
    varied: Mapping[str, Sequence[int | None]] = field(default_factory=dict)
    seeds: int = 4

    def cases(self, pool: int) -> list[Case]:
        """All trainings by factor; the default ones take part in every factor."""
        found = []
        for optimizer, rate in self.rates.items():
            default = Training(optimizer, rate, **{"examples": pool, **self.default})
            found.append(Case("optimizer", optimizer, None, default))
            for multiple in self.multiples:
                own = replace(default, rate=float(f"{multiple * rate:.6g}"))
                found.append(Case("rate", f"{multiple:g}", multiple, own))
            for name, values in self.varied.items():
                for value in values:
                    own = replace(default, **{name: value or pool})
                    found.append(Case(name, str(value or ALL), value or pool, own))
        return found


class Case(NamedTuple):
    """A training as one value of a factor, which is None for an optimiser."""

    factor: str  # ``optimizer``, ``rate``, ``steps``, ``batch`` or ``examples``
    label: str
    value: float | None  # a rate is in units of the default
    training: Training


def point(
    task: str,
    prepared: Prepared,
    chosen: Mapping[str, Any],
    training: Training | None,
    seed: int,
    device: str,
) -> Point:
    """Define one run by all that it depends on; no training is a control of independent entries."""
    parameters = {
        "task": task,
        "folder": prepared.folder.name,
        "digest": prepared.digest,
        "settings": run_settings(chosen),
        "training": training and asdict(training),
        "seed": seed,
        "device": device,
    }
    return Point("low-rank", parameters, PACKAGES)


def compute(point: Point, folder: Path) -> dict[str, Any]:
    """Fine-tune a model in full once, and measure its increments."""
    p, settings = point.parameters, point.parameters["settings"]

    def source(purpose: str) -> np.random.Generator:
        return generator(p["seed"], f"low-rank.{purpose}")

    with opened(p, folder) as (prepared, splits, device):
        torch.manual_seed(int(source("model").integers(2**62)))
        model = base_model(prepared, settings).to(device)
        before = {name: value.detach().clone() for name, value in model.state_dict().items()}
        if p["training"] is None:
            rng = source("independent")
            drawn = {name: torch.from_numpy(rng.standard_normal(before[name].shape)).float()
                     for name in measured_layers(before)}  # fmt: skip
            return {"accuracy": None, "diverged": False, "matrices": measure(drawn)}
        # Dropout draws from the global generator too.
        torch.manual_seed(int(source("training").integers(2**62)))
        options = {name: settings[name] for name in _SETTINGS}
        training = Training(**p["training"])
        finite = train(model, splits["train"], training, source("batches"), **options)
        loss, accuracy = evaluate(model, splits["test"]) if finite else (math.nan, None)
        if not math.isfinite(loss):
            return {"accuracy": None, "diverged": True, "matrices": []}
        after = model.state_dict()
        changes = {name: after[name] - before[name] for name in measured_layers(before)}
        return {"accuracy": accuracy, "diverged": False, "matrices": measure(changes, before)}
