"""Weights with known changes, of published fine-tunes and of synthetic merges.

``experiments.published.rounded`` tests ``extract`` and ``analyze`` on them. Fine-tunes are read
from wheels in the folder ``data``; nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import torch

from experiments.published.wheels import STUDIES, Weights, Wheels
from loca_theory.rounding import Format
from loca_theory.sweeps import generator
from loca_theory.transforms import idct2

# Of each study, every n-th of the changed matrices that are neither too large nor too narrow.
EVERY = {"rxnfp": 6, "rxnfp-10k": 6, "sre": 6, "chgnet": 2}
MOST_ENTRIES, SHORTEST_SIDE = 2**19, 32
# Ranks of merged changes, their sizes in median steps of the weights, and the width of the layer.
MERGED_RANKS, STEPS, WIDTH, SPREAD = (4, 32), (0.03, 0.1, 0.3, 1.0, 10.0, 100.0), 512, 0.02

Form = Literal["lora", "loca"]
Merge = tuple[Form, int, torch.Tensor, torch.Tensor]
"""Form and rank of a change, the weights before it, and the change."""


def published(name: str, data: Path) -> tuple[Weights, Weights]:
    """Base and change of the matrices of a study, in float64."""
    (pair,) = STUDIES[name].pairs(Wheels(data, STUDIES[name].packages))
    base: Weights = {}
    change: Weights = {}
    for key, before in pair.base.items():
        after = pair.tuned.get(key)
        if after is None or after.shape != before.shape or torch.equal(before, after):
            continue
        if min(before.shape) >= SHORTEST_SIDE and before.numel() <= MOST_ENTRIES:
            base[key], change[key] = before.double(), after.double() - before.double()
    chosen = list(base)[:: EVERY[name]]
    return {key: base[key] for key in chosen}, {key: change[key] for key in chosen}


def merges(steps: float, stored_as: Format) -> Iterator[Merge]:
    """Changes of low rank and of few cosines, each with its form, rank and weights."""
    for rank in MERGED_RANKS:
        source = generator(0, "rounded merges", rank, stored_as.name, round(1000 * steps))
        normal = [
            torch.from_numpy(source.standard_normal(shape))
            for shape in ((WIDTH, WIDTH), (WIDTH, rank), (rank, WIDTH))
        ]
        base = stored_as.round(SPREAD * normal[0])
        spectrum = torch.zeros(WIDTH**2, dtype=torch.float64)
        chosen = torch.from_numpy(source.choice(WIDTH**2, WIDTH * rank, replace=False))
        spectrum[chosen] = torch.from_numpy(source.standard_normal(WIDTH * rank))
        step = float(stored_as.steps(base).median())
        low, cosines = normal[1] @ normal[2], idct2(spectrum.view(WIDTH, WIDTH))
        yield "lora", rank, base, low * (steps * step / float(low.abs().median()))
        yield "loca", rank, base, cosines * (steps * step / float(cosines.abs().median()))


def stored(
    base: torch.Tensor, change: torch.Tensor, stored_as: Format
) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights before and after as a format stores them; the base is rounded first."""
    before = stored_as.round(base)
    return before.to(stored_as.dtype), stored_as.round(before + change).to(stored_as.dtype)
