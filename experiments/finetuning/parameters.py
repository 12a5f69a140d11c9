"""Trained parameters of an adapted model: groups for the optimiser, and counts."""

from __future__ import annotations

from typing import Any

from torch import nn

from loca_theory.adapters import CosineSpectrum


def groups(
    model: nn.Module, *, head: str | None, rate: float, head_rate: float
) -> list[dict[str, Any]]:
    """Parameter groups for the optimiser: those of the method, and the head."""
    parts: dict[bool, list[nn.Parameter]] = {False: [], True: []}
    for name, p in model.named_parameters():
        if p.requires_grad:
            parts[head is not None and head in name.split(".")].append(p)
    rates = {False: rate, True: head_rate}
    return [{"params": part, "lr": rates[is_head]} for is_head, part in parts.items() if part]


def count(model: nn.Module, head: str | None, *, pruned_to: int | None = None) -> dict[str, int]:
    """Count the trained parameters without the head, those of the head, and the stored numbers.

    An adapter stores its trained parameters and, if its locations are learned, one integer per
    component; locations that follow from a seed need no storage. If AdaLoRA prunes its factors to a
    mean rank of ``pruned_to``, only the remaining numbers are stored.
    """
    spectra = [m for m in model.modules() if isinstance(m, CosineSpectrum)]
    learned = sum(s.coefficients.numel() for s in spectra if s.is_searching)
    counts = {"trained": 0, "head": 0}
    for name, p in model.named_parameters():
        if p.requires_grad:
            counts["head" if head and head in name.split(".") else "trained"] += p.numel()
    stored = counts["trained"] + learned
    if pruned_to is not None:
        # AdaLoRA's factors p×r and r×q, and r singular values.
        layers: list[Any] = [m for m in model.modules() if hasattr(m, "lora_E")]
        stored = sum(int(m.in_features) + int(m.out_features) + 1 for m in layers) * pruned_to
    return {**counts, "stored": stored}
