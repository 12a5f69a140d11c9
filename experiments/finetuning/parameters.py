"""Trained parameters of an adapted model: groups for the optimiser, and counts."""

from __future__ import annotations

from typing import Any

from torch import nn

from loca_theory.adapters import CosineSpectrum, parameter_groups


def groups(
    model: nn.Module, *, head: str | None, rate: float, head_rate: float, location_rate: float
) -> list[dict[str, Any]]:
    """Parameter groups for the optimiser: those of the method, the head, the locations."""
    heads = {id(p) for name, p in model.named_parameters() if head and head in name.split(".")}
    separate: list[nn.Parameter] = []
    found = []
    for group in parameter_groups(model, lr=rate, location_lr=location_rate):
        separate += [p for p in group["params"] if id(p) in heads]
        group["params"] = [p for p in group["params"] if id(p) not in heads]
        found.append(group)
    found.append({"params": separate, "lr": head_rate, "weight_decay": 0.0})
    return [group for group in found if group["params"]]


def count(model: nn.Module, head: str | None, *, pruned_to: int | None = None) -> dict[str, int]:
    """Count the trained numbers without the head, those of the head, and the stored numbers.

    An adapter stores its trained numbers and, if its locations are learned, one integer per
    component; locations that follow from a seed need no storage. If AdaLoRA prunes its factors to a
    mean rank of ``pruned_to``, only the remaining numbers are stored.
    """
    spectra = [m for m in model.modules() if isinstance(m, CosineSpectrum)]
    searching = [s for s in spectra if s.learns_locations or s.needs_initialisation]
    learned = sum(s.coefficients.numel() for s in searching)
    indices = {id(s.locations) for s in spectra if s.locations is not None}
    coefficients = {id(s.coefficients) for s in spectra}
    counts = {"trained": 0, "head": 0}
    for name, p in model.named_parameters():
        if id(p) in indices or not (p.requires_grad or id(p) in coefficients):
            continue
        counts["head" if head and head in name.split(".") else "trained"] += p.numel()
    stored = counts["trained"] + learned
    if pruned_to is not None:
        # AdaLoRA's factors p×r and r×q, and r singular values.
        layers: list[Any] = [m for m in model.modules() if hasattr(m, "lora_E")]
        stored = sum(int(m.in_features) + int(m.out_features) + 1 for m in layers) * pruned_to
    return {**counts, "stored": stored}
