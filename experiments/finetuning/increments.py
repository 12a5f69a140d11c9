"""Increments of the target layers: the energy that each method can retain, and small images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from loca_theory.expressivity import Accounting, Budget
from loca_theory.expressivity.matrices import mean_retained_energies

# Methods and accountings: "paper" charges chosen locations, "trainable" does not.
METHODS = ("F1", "V1", "FourierFT", "F3", "D", "S")
ACCOUNTINGS = (Accounting.PAPER, Accounting.TRAINABLE)


def describe_increments(
    increments: Mapping[str, torch.Tensor], ranks: Sequence[int], pool: int
) -> dict[str, Any]:
    """Compute reconstruction errors over all target layers, and small images of some layers.

    Args:
        increments: ΔW by name of the layer.
        ranks: The budgets to reconstruct at; may be empty.
        pool: Side length of the blocks that are averaged for an image; 0 for no images.

    Returns:
        ``errors``: relative squared errors by accounting, method and rank, weighted by energy over
        all target layers; ``R`` has only the accounting ``paper``. ``energy``: the total energy.
        ``patterns``: block means by name of the layer.
    """
    increments = {name: increment.double().cpu() for name, increment in increments.items()}
    return {
        "errors": _errors(list(increments.values()), ranks) if ranks else [],
        "energy": sum(float(w.square().sum()) for w in increments.values()),
        "patterns": _patterns(increments, pool) if pool else {},
    }


def _errors(increments: list[torch.Tensor], ranks: Sequence[int]) -> list[dict[str, Any]]:
    total = sum(float(w.square().sum()) for w in increments)
    if total == 0:
        return []
    retained: dict[tuple[str, str], list[float]] = {}
    for increment in increments:
        p, q = increment.shape
        squares = torch.linalg.svdvals(increment).square().cumsum(0)
        found = {("paper", "R"): [float(squares[r - 1]) for r in ranks]}
        for accounting in ACCOUNTINGS:
            budgets = [Budget(p, q, r, accounting) for r in ranks]
            energies = mean_retained_energies(increment, METHODS, budgets)
            found |= {(accounting.value, c): [float(e) for e in energies[c]] for c in METHODS}
        for key, energies in found.items():
            sums = retained.setdefault(key, [0.0] * len(ranks))
            retained[key] = [a + b for a, b in zip(sums, energies, strict=True)]
    return [
        {"accounting": accounting, "method": method, "r": r, "error": max(1 - energy / total, 0.0)}
        for (accounting, method), energies in retained.items()
        for r, energy in zip(ranks, energies, strict=True)
    ]


def _patterns(increments: Mapping[str, torch.Tensor], pool: int) -> dict[str, list[list[float]]]:
    """Signed block means, as in the paper, of the first two and the last two target layers."""
    names = list(increments)
    shown = names if len(names) <= 4 else [*names[:2], *names[-2:]]
    pictures = {}
    for name in shown:
        blocks = torch.nn.functional.avg_pool2d(increments[name][None, None], pool)[0, 0]
        pictures[name] = [[float(f"{value:.4g}") for value in row] for row in blocks.tolist()]
    return pictures
