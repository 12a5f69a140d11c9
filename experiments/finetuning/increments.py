"""What fine-tuning has added to the target layers: who could keep how much of it, and its look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from loca_theory.expressivity import Accounting, Budget, mean_retained_energies

# Curves, and how they count: chosen locations are charged under "paper" and free under "trainable".
METHODS = ("F1", "V1", "FourierFT", "F3", "D", "S")
ACCOUNTINGS = (Accounting.PAPER, Accounting.TRAINABLE)


def describe_increments(
    before: Mapping[str, torch.Tensor],
    after: Mapping[str, torch.Tensor],
    targets: Sequence[str],
    wanted: Mapping[str, Any],
) -> dict[str, Any]:
    """Errors of reconstruction over all target layers, and small pictures of some.

    Args:
        before: Pretrained weights by name.
        after: Fine-tuned ones.
        targets: Last parts of the names of the target layers.
        wanted: ``ranks``, budgets to reconstruct at, may be empty; ``pool``, side of the blocks
            that a picture takes the mean of, or 0 for no pictures.

    Returns:
        ``errors``: relative squared errors, weighted by energy over all target layers, by
        accounting, curve and rank; ``R`` stands under ``paper`` alone. ``patterns``: means
        over blocks by name of the layer.
    """
    increments = {
        name: (after[name] - before[name]).double().cpu()
        for name in before
        if name.endswith(".weight") and name.split(".")[-2] in targets
    }
    return {
        "errors": _errors(list(increments.values()), wanted["ranks"]) if wanted["ranks"] else [],
        "energy": sum(float(w.square().sum()) for w in increments.values()),
        "patterns": _patterns(increments, wanted["pool"]) if wanted["pool"] else {},
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
    """Signed means of blocks, as the paper pools them, of the first and the last pair of layers."""
    names = list(increments)
    shown = names if len(names) <= 4 else [*names[:2], *names[-2:]]
    pictures = {}
    for name in shown:
        blocks = torch.nn.functional.avg_pool2d(increments[name][None, None], pool)[0, 0]
        pictures[name] = [[float(f"{value:.4g}") for value in row] for row in blocks.tolist()]
    return pictures
