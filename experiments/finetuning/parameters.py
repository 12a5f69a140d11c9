"""What an adapted model trains: groups for the optimiser, and how much it is."""

from __future__ import annotations

from typing import Any

from torch import nn

from loca_theory.adapters import CosineSpectrum, parameter_groups


def groups(
    model: nn.Module, *, head: str | None, rate: float, head_rate: float, location_rate: float
) -> list[dict[str, Any]]:
    """Groups for the optimiser: what the method trains, the head, the locations."""
    heads = {id(p) for name, p in model.named_parameters() if head and head in name.split(".")}
    separate: list[nn.Parameter] = []
    kept = []
    for group in parameter_groups(model, lr=rate, location_lr=location_rate):
        separate += [p for p in group["params"] if id(p) in heads]
        group["params"] = [p for p in group["params"] if id(p) not in heads]
        kept.append(group)
    kept.append({"params": separate, "lr": head_rate, "weight_decay": 0.0})
    return [group for group in kept if group["params"]]


def count(model: nn.Module, head: str | None, *, pruned_to: int | None = None) -> dict[str, int]:
    """What is trained beside the head, the head, and what has to be kept of an adapter.

    Kept are the trained numbers and, where locations are learned, a whole number for the location
    of each component; locations that a seed gives cost nothing. Of factors that are pruned to a
    mean rank only what is left is kept.
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
    kept = counts["trained"] + learned
    if pruned_to is not None:
        # AdaLoRA's factors p×r and r×q, and r singular values.
        layers: list[Any] = [m for m in model.modules() if hasattr(m, "lora_E")]
        kept = sum(int(m.in_features) + int(m.out_features) + 1 for m in layers) * pruned_to
    return {**counts, "stored": kept}
