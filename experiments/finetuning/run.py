"""A fine-tuning run of one seed: the adapted model, its optimiser and order of the data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from experiments.finetuning.adaptation import adapt, count, parameter_groups
from experiments.finetuning.methods import Budget, find_method
from experiments.finetuning.tasks.prepared import random_batches
from loca_theory.adapters import CosineSpectrum, follow
from loca_theory.sweeps import generator


class Run:
    """One model in training, with its optimiser, schedule and order of the data."""

    def __init__(self, p: dict[str, Any], seed: int, model: nn.Module) -> None:
        self.p, self.seed, chosen = p, seed, p["settings"]
        self.head: str | None = chosen.get("head")
        method = find_method(p["method"])
        self.pretrained: dict[str, Any] = {
            name: parameter.detach().clone() if method.changes_body else parameter
            for name, parameter in model.named_parameters()
        }
        is_loca = method.kind == "loca"
        self.model = adapt(
            model,
            method,
            Budget(p["r"], chosen["steps"]),
            targets=chosen["targets"],
            head=self.head,
            seed=int(generator(seed, "finetuning.places").integers(2**31)),
            loca_defaults={"location_lr": p["location_rate"], **p["loca"]} if is_loca else None,
        )
        self.is_adalora = method.kind == "adalora"
        head_rate = p["rate"] if method.kind == "head" else chosen["head_rate"]
        self.optimizer = torch.optim.AdamW(
            parameter_groups(self.model, head=self.head, rate=p["rate"], head_rate=head_rate),
            weight_decay=0.0,
            fused=True,
        )
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self._warm_up)
        # Count now: later, ``is_searching`` is false and learned locations would be missed.
        self.counts = count(self.model, self.head, pruned_to=p["r"] if self.is_adalora else None)
        self.spectra = [m for m in self.model.modules() if isinstance(m, CosineSpectrum)]
        if any(spectrum.is_searching for spectrum in self.spectra):
            follow(self.model, self.optimizer)
        self.first_indices = [spectrum.indices.clone() for spectrum in self.spectra]
        self.losses: list[float] = []
        self.diverged = False

    def _warm_up(self, step: int) -> float:
        steps = self.p["settings"]["steps"]
        warm = max(round(self.p["settings"]["warmup"] * steps), 1)
        return min((step + 1) / warm, (steps - step) / max(steps - warm, 1), 1.0)

    @property
    def core(self) -> nn.Module:
        """The model without PEFT's wrappers."""
        wrapped: Any = self.model
        return wrapped.get_base_model() if hasattr(wrapped, "get_base_model") else wrapped

    def batches(self, total: int) -> Iterator[torch.Tensor]:
        """Indices of random batches; with one seed every method gets the same batches."""
        chosen = self.p["settings"]
        rng = generator(self.seed, "finetuning.batches")
        return random_batches(total, chosen.get("train"), chosen["batch"], rng)

    def update(self, loss: float) -> None:
        """Record the loss and take a step; no more steps after a loss that is not finite."""
        self.losses.append(loss)
        self.diverged = self.diverged or not math.isfinite(loss)
        if not self.diverged:
            for group in self.optimizer.param_groups:
                # Clip each group separately: large gradients of one would shrink the other's.
                nn.utils.clip_grad_norm_(group["params"], self.p["settings"]["most_gradient"])
            self.optimizer.step()
            self.schedule.step()
            if self.is_adalora:
                wrapped: Any = self.model
                wrapped.base_model.update_and_allocate(len(self.losses))
        self.optimizer.zero_grad()

    def moved(self) -> float | None:
        """Fraction of components that are elsewhere than at the start; None without components."""
        parts = [
            float((old != spectrum.indices).any(1).float().mean())
            for old, spectrum in zip(self.first_indices, self.spectra, strict=True)
        ]
        return sum(parts) / len(parts) if parts else None

    @torch.no_grad()
    def increments(self) -> dict[str, torch.Tensor]:
        """ΔW of each target layer, by name."""
        changes = {}
        for name, module in self.core.named_modules():
            if name.rsplit(".", 1)[-1] not in self.p["settings"]["targets"]:
                continue
            layer: Any = module
            if hasattr(layer, "get_base_layer"):
                layer = deepcopy(layer)
                layer.merge()
                layer = layer.get_base_layer()
            changes[name] = layer.weight - self.pretrained[f"{name}.weight"]
        return changes

    def block_means(self) -> dict[str, list[list[float]]]:
        """Signed block means, as in the paper, of the first two and the last two target layers."""
        increments, side = self.increments(), self.p["settings"]["block_side"]
        names = list(increments)
        pictures = {}
        for name in dict.fromkeys([*names[:2], *names[-2:]]):
            increment = increments[name].double().cpu()
            blocks = nn.functional.avg_pool2d(increment[None, None], side)[0, 0]
            pictures[name] = [[float(f"{value:.4g}") for value in row] for row in blocks.tolist()]
        return pictures
