"""One fine-tuning run."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from experiments.finetuning import methods, parameters
from experiments.finetuning.increments import describe_increments
from experiments.finetuning.messages import quiet
from experiments.finetuning.tasks import Prepared, Split, load
from experiments.finetuning.tasks.registry import base_model
from loca_theory.adapters import CosineSpectrum
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps import Point, generator

EXPERIMENT = "finetuning"
HIGHER_IS_BETTER = {"accuracy": True, "bits per byte": False}
_EVALUATED_AT_ONCE = 100
# A run also counts as diverged if its final loss exceeds this multiple of the first step's loss. A
# run that ends at chance level is not counted as diverged; its metric shows it.
_DIVERGED = 10.0


def compute(point: Point, folder: Path) -> dict[str, Any]:
    """Fine-tune a model once and measure it.

    Args:
        point: Everything that determines the run; made by :mod:`experiments.finetuning.protocol`.
        folder: Folder of the prepared tasks.

    Returns:
        For a run that selects the learning rate, ``validation``: the metric on the whole validation
        set, None if the run diverged. For any other run, ``metric`` and ``loss`` on the test set,
        which tuning runs never use, and ``curve``: step, training loss since the last evaluation,
        loss and metric on the first examples of the validation set. For all runs, ``counts`` of
        trained and stored numbers; ``diverged``; ``moved``, the fraction of components that changed
        their location; ``seconds`` of training; ``increments``, their description, if the point
        asks for it.
    """
    p = dict(point.parameters)
    device = torch.device(p["device"])
    prepared = Prepared(folder / p["folder"], p["task"], p["settings"], p["digest"])
    splits, _ = load(prepared.folder, prepared.digest)
    splits = {
        name: {key: t.to(device) for key, t in split.items()} for name, split in splits.items()
    }
    cuda = [device] if device.type == "cuda" else []
    # Heads, adapters and dropout draw from torch's global generators and cannot be given others, so
    # these are seeded here and restored afterwards.
    with torch.random.fork_rng(devices=cuda), quiet():
        torch.manual_seed(int(generator(p["seed"], "finetuning.model").integers(2**62)))
        model = base_model(prepared, p["settings"]).to(device)
        before = {name: value.detach().clone() for name, value in model.state_dict().items()}
        run = _Run(p, model, splits)
        # Adapters draw different amounts of random numbers; reseed so that all get equal dropout.
        torch.manual_seed(int(generator(p["seed"], "finetuning.training").integers(2**62)))
        result = run.train()
        if p["analyse"] and not result["diverged"]:
            after = run.merged()
            result["increments"] = describe_increments(before, after, run.targets, p["analyse"])
    return result


def layer_shape(prepared: Prepared, chosen: dict[str, Any]) -> tuple[int, int]:
    """Number of outputs and inputs of a task's target layers."""
    with torch.random.fork_rng(devices=[]), quiet():
        model = base_model(prepared, chosen)
    return methods.target_shape(model, _targets(model, chosen))


def _targets(model: nn.Module, chosen: dict[str, Any]) -> list[str]:
    """The names of target layers that exist in this version of transformers."""
    leaves = {name.rsplit(".", 1)[-1] for name, _ in model.named_modules()}
    return [name for name in chosen["targets"] if name in leaves]


class _Run:
    """A model in training, with its data, optimiser and schedule."""

    def __init__(self, p: dict[str, Any], model: nn.Module, splits: dict[str, Split]) -> None:
        self.p, self.chosen = p, p["settings"]
        self.splits = splits
        self.metric = self.chosen["metric"]
        self.head: str | None = self.chosen.get("head")
        self.targets = _targets(model, self.chosen)
        method = methods.find_method(p["method"])
        self.model = methods.adapt(
            model,
            method,
            methods.Budget(p["r"], self.chosen["steps"]),
            targets=self.targets,
            head=self.head,
            seed=int(generator(p["seed"], "finetuning.places").integers(2**31)),
            overrides={"location_lr": p["location_rate"], **(p["loca"] or {})}
            if method.kind == "loca"
            else None,
        )
        self.is_adalora = method.kind == "adalora"
        is_head = method.kind == "head"
        head_rate = p["rate"] if is_head else self.chosen["head_rate"]
        self.optimizer = torch.optim.AdamW(
            parameters.groups(
                self.model,
                head=self.head,
                rate=p["rate"],
                head_rate=head_rate,
            ),
            weight_decay=0.0,
        )
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self._warm_up)

    def _warm_up(self, step: int) -> float:
        steps = self.chosen["steps"]
        warm = max(round(self.chosen["warmup"] * steps), 1)
        return min((step + 1) / warm, (steps - step) / max(steps - warm, 1), 1.0)

    def train(self) -> dict[str, Any]:
        """Train for all steps, with evaluations on the validation set in between."""
        steps, every = self.chosen["steps"], self.chosen["every"]
        rank = self.p["r"] if self.is_adalora else None
        counts = parameters.count(self.model, self.head, pruned_to=rank)
        indices = self._indices()
        curve: list[list[float | int | None]] = []
        losses: list[float] = []
        seconds, first, diverged = 0.0, math.nan, False
        batches = self._batches()
        for step in range(1, steps + 1):
            start = time.perf_counter()
            loss = self._step(next(batches), step)
            seconds += time.perf_counter() - start
            first = loss if step == 1 else first
            losses.append(loss)
            diverged = not math.isfinite(loss)
            if diverged:
                break
            if not self.p["tunes"] and (step % every == 0 or step == steps):
                looked = self._evaluate("validation", self.chosen["looks"])
                curve.append([step, sum(losses) / len(losses), *looked])
                losses = []
        final: tuple[float | None, float | None] = (None, None)
        if not diverged:
            final = self._evaluate("validation" if self.p["tunes"] else "test")
            diverged = final[0] is None or final[0] > _DIVERGED * max(first, 1.0)
        moved = [
            float((old != new).any(1).float().mean())
            for old, new in zip(indices, self._indices(), strict=True)
        ]
        loss, metric = (None, None) if diverged else final
        return {
            "validation" if self.p["tunes"] else "metric": metric,
            "loss": loss,
            "curve": curve,
            "counts": counts,
            "diverged": diverged,
            "moved": sum(moved) / len(moved) if moved else None,
            "seconds": seconds,
        }

    def _step(self, batch: Split, step: int) -> float:
        self.model.train()
        # Calling PEFT's outer wrapper would omit AdaLoRA's regulariser.
        forward: Any = self.model.base_model if self.is_adalora else self.model
        loss = forward(**batch).loss
        value = float(loss.detach())
        if not math.isfinite(value):
            return value
        loss.backward()
        for group in self.optimizer.param_groups:
            # Clip each group separately: large gradients of one would shrink those of the other.
            nn.utils.clip_grad_norm_(group["params"], self.chosen["most_gradient"])
        self.optimizer.step()
        self.schedule.step()
        if self.is_adalora:
            self.model.base_model.update_and_allocate(step)  # type: ignore[union-attr]
        self.optimizer.zero_grad()
        return value

    def _batches(self) -> Iterator[Split]:
        """Random batches; with one seed every method gets the same batches."""
        rng = generator(self.p["seed"], "finetuning.batches")
        train = self.splits["train"]
        total, size = len(train["labels"]), self.chosen["batch"]
        if min(total, self.chosen.get("train", total)) < size:
            msg = f"batch={size} exceeds the training set of {self.p['task']}; use a smaller batch"
            raise InvalidArgumentError(msg)
        mine = rng.permutation(total)[: self.chosen.get("train", total)]
        while True:
            order = rng.permutation(mine)
            for start in range(0, len(order) - size + 1, size):
                which = torch.from_numpy(order[start : start + size])
                yield {name: values[which] for name, values in train.items()}

    @torch.no_grad()
    def _evaluate(self, split: str, most: int | None = None) -> tuple[float | None, float | None]:
        """Mean loss and metric on the first ``most`` examples; None if the loss is not finite."""
        self.model.eval()
        examples = {name: values[:most] for name, values in self.splits[split].items()}
        total, right = len(examples["labels"]), 0
        losses = 0.0
        for start in range(0, total, _EVALUATED_AT_ONCE):
            batch = {k: v[start : start + _EVALUATED_AT_ONCE] for k, v in examples.items()}
            found = self.model(**batch)
            losses += float(found.loss) * len(batch["labels"])
            if self.metric == "accuracy":
                right += int((found.logits.argmax(-1) == batch["labels"]).sum())
        mean = losses / total
        if not math.isfinite(mean):
            return None, None
        return mean, right / total if self.metric == "accuracy" else mean / math.log(2)

    def _indices(self) -> list[torch.Tensor]:
        spectra = [m for m in self.model.modules() if isinstance(m, CosineSpectrum)]
        return [spectrum.indices.clone() for spectrum in spectra]

    def merged(self) -> dict[str, torch.Tensor]:
        """Weights with the adapter merged, under the names of the pretrained model."""
        model: Any = self.model
        if hasattr(model, "merge_and_unload"):
            model = model.merge_and_unload()
        return model.state_dict()
