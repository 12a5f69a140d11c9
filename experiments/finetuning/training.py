"""Fine-tuning runs of one configuration that differ in their seeds, trained together."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from experiments.finetuning.methods import find_method, target_shape
from experiments.finetuning.metrics import DEFAULT_METRIC, METRICS, predictions, targets
from experiments.finetuning.run import Run
from experiments.finetuning.tasks import Split
from experiments.finetuning.tasks.prepared import Prepared, base_model, opened, quiet
from experiments.finetuning.tasks.transformer import (
    SmallTransformer,
    group_losses,
    use_parameters,
)
from loca_theory.sweeps import generator
from loca_theory.sweeps.store import Point

EXPERIMENT = "finetuning"
# Modules whose source is hashed, so that stored runs become stale when it changes.
TRAINING_CODE = (
    "experiments.finetuning.adaptation",
    "experiments.finetuning.methods",
    "experiments.finetuning.metrics",
    "experiments.finetuning.run",
    "experiments.finetuning.settings",
    "experiments.finetuning.tasks",
    "experiments.finetuning.training",
    "loca_theory.adapters",
    "loca_theory.locations",
    "loca_theory.sweeps.random",
    "loca_theory.transforms",
)
_EVALUATED_AT_ONCE = 100
# A run also counts as diverged if its final loss exceeds this multiple of the first step's loss. A
# run that ends at chance level is not counted as diverged; its metric shows it.
_DIVERGED = 10.0
# The mean training loss is recorded over the steps from the first number to the second.
EARLY = {"loss_10": (1, 10), "loss_25": (16, 25)}

Measured = tuple[float | None, float | None, list[float] | None]
"""Mean loss, metric, and metric on each of ``parts`` interleaved subsets; None if it diverged."""


def compute(
    point: Point, folder: Path, start: Callable[[SeedGroup], None] | None = None
) -> dict[str, Any]:
    """Fine-tune a model once for each seed and measure it: ``runs`` has a result per seed."""
    p = dict(point.parameters)
    with training_runs(point, folder, start) as (group, results, seconds):
        for run, result in zip(group.runs, results, strict=True):
            result["seconds"] = seconds
            if run.seed == 0 and not (p["tunes"] or p["settings"]["draw"] or result["diverged"]):
                result["patterns"] = run.block_means()
    return {"runs": results}


@contextmanager
def training_runs(
    point: Point, folder: Path, start: Callable[[SeedGroup], None] | None = None
) -> Iterator[tuple[SeedGroup, list[dict[str, Any]], float]]:
    """The runs of a point after training, their results, and the seconds of each.

    Seeds torch's global generator, which :func:`opened` restores afterwards.
    """
    p = dict(point.parameters)
    with opened(p, folder) as (prepared, splits, device):
        began = time.process_time()
        group = SeedGroup(p, prepared, splits, device)
        if start:
            start(group)
        # Adapters draw different amounts of random numbers; reseed so that all get equal dropout.
        torch.manual_seed(_seed_of(p["seeds"][0], "training"))
        results = group.train()
        yield group, results, (time.process_time() - began) / len(results)


def layer_shape(prepared: Prepared, chosen: dict[str, Any]) -> tuple[int, int]:
    """Number of outputs and inputs of a task's target layers."""
    with torch.random.fork_rng(devices=[]), quiet():
        model = base_model(prepared, chosen)
    return target_shape(model, chosen["targets"])


def _seed_of(seed: int, purpose: str) -> int:
    return int(generator(seed, f"finetuning.{purpose}").integers(2**62))


class SeedGroup:
    """Runs of one configuration that differ only in their seed, trained on one batch loop."""

    def __init__(
        self, p: dict[str, Any], prepared: Prepared, splits: dict[str, Split], device: torch.device
    ) -> None:
        self.p, self.splits = p, splits
        self.runs: list[Run] = []
        for seed in p["seeds"]:
            torch.manual_seed(_seed_of(seed, "model"))
            model = base_model(prepared, p["settings"]).to(device)
            if self.runs and not find_method(p["method"]).changes_body:
                use_parameters(model, self.runs[0].pretrained, self._is_head)
            self.runs.append(Run(p, seed, model))
        self.is_small = isinstance(self.runs[0].core, SmallTransformer)

    def _is_head(self, name: str) -> bool:
        return self.p["settings"].get("head") in name.split(".")

    def train(self) -> list[dict[str, Any]]:
        """Train for all steps, with evaluations on the validation set in between."""
        p, chosen = self.p, self.p["settings"]
        train = self.splits["train"]
        batches = [run.batches(len(train["labels"])) for run in self.runs]
        curves: list[list[list[float | int | None]]] = [[] for _ in self.runs]
        is_watched = chosen["looks"] and not p["tunes"]
        for step in range(1, chosen["steps"] + 1):
            rows = torch.stack([next(batch) for batch in batches])
            self._step({name: values[rows] for name, values in train.items()})
            if is_watched and (step % chosen["every"] == 0 or step == chosen["steps"]):
                looked = self.evaluate("validation", chosen["looks"])
                for run, curve, (loss, metric, _) in zip(self.runs, curves, looked, strict=True):
                    since = run.losses[curve[-1][0] if curve else 0 :]  # type: ignore[misc]
                    if not run.diverged:
                        curve.append([step, sum(since) / len(since), loss, metric])
        measured = self.evaluate("validation" if p["tunes"] else "test")
        return [self._result(*parts) for parts in zip(self.runs, measured, curves, strict=True)]

    def _result(self, run: Run, measured: Measured, curve: list[Any]) -> dict[str, Any]:
        loss, metric, parts = measured
        diverged = run.diverged or loss is None or loss > _DIVERGED * max(run.losses[0], 1.0)
        if diverged:
            loss = metric = parts = None
        early = {}
        for name, (first, last) in EARLY.items():
            part = run.losses[first - 1 : last]
            is_whole = len(part) == last - first + 1 and not run.diverged
            early[name] = sum(part) / len(part) if is_whole else None
        return {
            "validation" if self.p["tunes"] else "metric": metric,
            "loss": loss,
            "curve": curve,
            "counts": run.counts,
            "diverged": diverged,
            "parts": parts,
            "moved": run.moved(),
            **early,
        }

    def _step(self, batch: Split) -> None:
        for run in self.runs:
            run.model.train()
        losses, _ = self._outputs(batch)
        # A run that has diverged must not stop the others.
        losses.sum().backward()
        for run, loss in zip(self.runs, losses.tolist(), strict=True):
            run.update(loss)

    def _outputs(self, batch: Split) -> tuple[torch.Tensor, torch.Tensor]:
        """Losses (R,) and logits of all runs, each on its own part of the batch."""
        if self.is_small:
            return group_losses([run.core for run in self.runs], **batch)
        outputs = []
        for n, run in enumerate(self.runs):
            # In training, AdaLoRA's regulariser is part of the loss; only PEFT's wrapper adds it.
            regularised: Any = run.model.base_model if run.is_adalora else run.core
            forward = regularised if run.model.training else run.core
            outputs.append(forward(**{name: values[n] for name, values in batch.items()}))
        losses = torch.stack([output.loss for output in outputs])
        return losses, torch.stack([output.logits for output in outputs])

    @torch.no_grad()
    def evaluate(self, split: str, limit: int | None = None) -> list[Measured]:
        """Each run's mean loss, metric, and metric on each of ``parts`` interleaved subsets.

        All are of the first ``limit`` examples of a split.
        """
        for run in self.runs:
            run.model.eval()
        examples = {name: values[:limit] for name, values in self.splits[split].items()}
        total, count = len(examples["labels"]), len(self.runs)
        losses = torch.zeros(count, dtype=torch.float64)
        predicted = []
        for start in range(0, total, _EVALUATED_AT_ONCE):
            part = {k: v[start : start + _EVALUATED_AT_ONCE] for k, v in examples.items()}
            loss, logits = self._outputs(
                {name: values.expand(count, *values.shape) for name, values in part.items()}
            )
            losses += loss.double().cpu() * len(part["labels"])
            predicted.append(predictions(logits, part["labels"]).cpu())
        labels, settings = targets(examples["labels"]).cpu(), self.p["settings"]
        metric, parts = METRICS[settings.get("measure", DEFAULT_METRIC)], settings.get("parts", 0)
        measured = []
        for loss, y in zip((losses / total).tolist(), torch.cat(predicted, dim=1), strict=True):
            if math.isfinite(loss):
                of_parts = [metric(y[i::parts], labels[i::parts]) for i in range(parts)]
                measured.append((loss, metric(y, labels), of_parts))
            else:
                measured.append((None, None, None))
        return measured
