"""Pairs whose change is known: published fine-tunes, and merges; and how a format stores them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import torch

from experiments.published.wheels import STUDIES, Weights, Wheels
from loca_theory.rounding import Format
from loca_theory.sweeps import generator
from loca_theory.transforms import idct2

# Of each study every sixth or second matrix, up to this many entries.
PAIRS = {"rxnfp": 6, "rxnfp-10k": 6, "sre": 6, "chgnet": 2}
LARGEST, SMALLEST = 2**19, 32
# Ranks of merged changes, their sizes in median steps of the weights, and the width of the layer.
MERGED_RANKS, STEPS, WIDTH, SPREAD = (4, 32), (0.03, 0.1, 0.3, 1.0, 10.0, 100.0), 512, 0.02

Form = Literal["lora", "loca"]
Merge = tuple[Form, int, torch.Tensor, torch.Tensor]
"""Form and rank of a change, the weights and the change."""


def published(name: str, data: Path) -> tuple[Weights, Weights]:
    """Base and change of the matrices of a study, in float64."""
    (pair,) = STUDIES[name].pairs(Wheels(data, STUDIES[name].packages))
    base: Weights = {}
    change: Weights = {}
    for key, before in pair.base.items():
        after = pair.tuned.get(key)
        if after is None or after.shape != before.shape or torch.equal(before, after):
            continue
        if min(before.shape) >= SMALLEST and before.numel() <= LARGEST:
            base[key], change[key] = before.double(), after.double() - before.double()
    chosen = list(base)[:: PAIRS[name]]
    return {key: base[key] for key in chosen}, {key: change[key] for key in chosen}


def merges(steps: float, form: Format) -> Iterator[Merge]:
    """Changes of low rank, and of few cosines: their form, size, weights and the change."""
    for rank in MERGED_RANKS:
        source = generator(0, "rounded merges", rank, form.name, round(1000 * steps))
        normal = [
            torch.from_numpy(source.standard_normal(shape))
            for shape in ((WIDTH, WIDTH), (WIDTH, rank), (rank, WIDTH))
        ]
        base = form.round(SPREAD * normal[0])
        spectrum = torch.zeros(WIDTH**2, dtype=torch.float64)
        chosen = torch.from_numpy(source.choice(WIDTH**2, WIDTH * rank, replace=False))
        spectrum[chosen] = torch.from_numpy(source.standard_normal(WIDTH * rank))
        step = float(form.steps(base).median())
        low, cosines = normal[1] @ normal[2], idct2(spectrum.view(WIDTH, WIDTH))
        yield "lora", rank, base, low * (steps * step / float(low.abs().median()))
        yield "loca", rank, base, cosines * (steps * step / float(cosines.abs().median()))


def stored(
    base: torch.Tensor, change: torch.Tensor, form: Format
) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights before and after as a format stores them; the base is rounded first."""
    before = form.round(base)
    return before.to(form.dtype), form.round(before + change).to(form.dtype)
